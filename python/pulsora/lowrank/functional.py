"""The gated low-rank update and the gradients of an adapter, for tensors of torch."""

from __future__ import annotations

from math import isfinite
from numbers import Real
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad

from pulsora._core import InputError
from pulsora.lowrank import operators

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "adapter_gradients",
    "adapter_product",
    "autocast_type",
    "gated_low_rank",
    "gradients_by_torch",
    "require_finite",
    "require_tensors",
]


class _GatedLowRank(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch has no type for it
        x: Tensor,
        v: Tensor,
        codes: Tensor | None,
        u: Tensor,
        base: Tensor | None,
        u_layout: str,
        scale: float,
    ) -> Tensor:
        ctx.save_for_backward(x, v, codes, u)
        ctx.u_layout, ctx.scale = u_layout, scale
        y: Tensor = operators.gated_low_rank(x, v, codes, u, u_layout, scale, base)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        x, v, codes, u = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        of_base = dy if wanted[4] else None
        if not any(wanted[:4]):
            return None, None, None, None, of_base, None, None
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            # Second derivatives will be asked for: torch can differentiate its own operations.
            made = gradients_by_torch(dy, x, v, codes, u, ctx.u_layout, ctx.scale)
            kept = (
                each if is_wanted else None for each, is_wanted in zip(made, wanted, strict=False)
            )
            return *kept, of_base, None, None
        made = operators.gated_low_rank_backward(
            dy, x, v, codes, u, ctx.u_layout, ctx.scale, wanted[:4]
        )
        dx, dv, dcodes, du = (
            gradient if is_wanted else None
            for gradient, is_wanted in zip(made, wanted[:4], strict=True)
        )
        return dx, dv, dcodes, du, of_base, None, None


_LARGEST = 1e15  # the limit of every setting (parameters/limits.h)
_OPTIONAL = ("codes", "base", "bias")


def gradients_by_torch(
    dy: Tensor, x: Tensor, v: Tensor, codes: Tensor | None, u: Tensor, u_layout: str, scale: float
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """Gradients of x, v, codes and u, by operations of torch."""
    wide = u if u_layout == "kn" else u.t()
    h, g = x @ v, dy @ wide * scale
    gates = torch.ones_like(h) if codes is None else codes
    gated_h, gated_g = h * gates, g * gates
    rank = v.shape[1]
    of_v = x.reshape(-1, x.shape[-1]).t() @ gated_g.reshape(-1, rank)
    of_u = dy.reshape(-1, dy.shape[-1]).t() @ gated_h.reshape(-1, rank) * scale
    of_codes = None if codes is None else (h * g).sum_to_size(codes.shape)
    return gated_g @ v.t(), of_v, of_codes, of_u if u_layout == "kn" else of_u.t()


def require_finite(name: str, value: object) -> None:
    """Raises InputError unless the setting is a finite number within the limits of all settings."""
    if isinstance(value, bool) or not isinstance(value, Real) or not isfinite(value):
        raise InputError(f"{name} is {value!r}; it must be a finite number")
    if abs(float(value)) > _LARGEST:
        raise InputError(f"{name} is {value!r}; give {_LARGEST:g} at most, of either sign")


def require_tensors(**operands: object) -> None:
    """Raises TypeError, naming the operand, unless all are tensors, or None where optional.

    Raises NotImplementedError for forward-mode derivatives, in which the update would be lost.
    """
    for name, operand in operands.items():
        if not isinstance(operand, torch.Tensor) and not (operand is None and name in _OPTIONAL):
            raise TypeError(
                f"{name} is a {type(operand).__name__}; give a tensor"
                + ", for example torch.as_tensor(codes).to(x)" * (name == "codes")
            )
    if forward_ad._current_level < 0:  # noqa: SLF001 - torch has no other way to ask
        return
    for name, tensor in operands.items():
        if tensor is None:
            continue
        if forward_ad.unpack_dual(tensor).tangent is not None:  # type: ignore[no-untyped-call]
            raise NotImplementedError(
                f"{name} has a tangent, but gated_low_rank and gated_low_rank_linear make no "
                "derivatives in forward mode (torch.func.jvp, torch.autograd.forward_ad); take "
                "those of reverse mode, or write the update in operations of torch"
            )


def autocast_type(tensor: Tensor) -> torch.dtype | None:
    """The type that `torch.autocast` gives products on the tensor's device; None if it is off."""
    kind = tensor.device.type
    if kind == "meta" or not torch.is_autocast_enabled(kind):  # torch knows no autocast on meta
        return None
    return torch.get_autocast_dtype(kind)


def gated_low_rank(
    x: Tensor,
    v: Tensor,
    codes: Tensor | None,
    u: Tensor,
    *,
    u_layout: str,
    scale: float = 1.0,
    base: Tensor | None = None,
) -> Tensor:
    """A low-rank adapter with gates per row: y = base + scale ((x v) * codes) u^T.

    All operands have the dtype (float32, float16 or bfloat16) and the device of x; under
    `torch.autocast` they are converted to its dtype, as torch does for a product. Sums are in
    single precision, x v is never rounded to 16 bits, and the result is rounded once. Gradients of
    all operands are made in one pass, from the operands alone. Codes, v and u may have any strides;
    an x or base whose rows are not contiguous (at any distance) is copied.

    Args:
        x: inputs [..., K1].
        v: [K1, N]; in LoRA, the transposed `lora_A`.
        codes: gates that broadcast to [..., N], without being copied; None: all 1.
        u: [K2, N] with u_layout="kn", or [N, K2] with u_layout="nk".
        u_layout: the layout of u; it is never guessed.
        scale: any finite number, such as LoRA's alpha / r.
        base: the tensor that the update is added to, [..., K2]; None: nothing.

    Returns:
        A new tensor [..., K2].

    Raises:
        InputError: if a shape does not fit, or u_layout or scale are out of range.
        TypeError: if a dtype does not fit, or an operand is no tensor.
        DeviceError: if the operands are on several devices.
        NotImplementedError: for derivatives in forward mode.
    """
    require_finite("scale", scale)
    require_tensors(x=x, v=v, codes=codes, u=u, base=base)
    if (dtype := autocast_type(x)) is not None:
        x, v, u = x.to(dtype), v.to(dtype), u.to(dtype)
        codes = None if codes is None else codes.to(dtype)
        base = None if base is None else base.to(dtype)
    if torch.is_grad_enabled() and (
        x.requires_grad
        or v.requires_grad
        or u.requires_grad
        or (codes is not None and codes.requires_grad)
        or (base is not None and base.requires_grad)
    ):
        made: Tensor = _GatedLowRank.apply(  # type: ignore[no-untyped-call]
            x, v, codes, u, base, u_layout, float(scale)
        )
        return made
    y: Tensor = operators.gated_low_rank(x, v, codes, u, u_layout, float(scale), base)
    return y


def adapter_gradients(
    dc: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    wanted: tuple[bool, bool] = (True, True),
    out: tuple[Tensor | None, Tensor | None] | None = None,
    accumulate: bool | tuple[bool, bool] = False,
) -> tuple[Tensor | None, Tensor | None]:
    """(dA, dB) = (dC b^T, a^T dC), the gradients of an adapter C = A B, in single precision.

    Each operand may be float32, float16 or bfloat16 on its own; a 16-bit copy of weights may stand
    beside gradients in single precision. Nothing is rounded to 16 bits or to tf32, whatever
    `torch.backends` allows.

    Args:
        dc: the gradient at C, [..., n].
        a: [..., K].
        b: [K, n].
        wanted: whether dA and dB are made; a gradient that is not wanted costs nothing. With `out`,
            leave `wanted` out.
        out: contiguous float32 tensors for dA and dB, of the shapes of a and b, or None in the
            place of a gradient that is not wanted. By default, tensors are made.
        accumulate: whether to add to the values in `out`, as for the next micro-batch; one bool, or
            one for each of dA and dB.

    Returns:
        dA and dB, or `out`; None in the place of a gradient that is not wanted.

    Raises:
        InputError: if a shape does not fit, there is nothing to add to, or `out` shares memory with
            operands.
        TypeError: if a dtype does not fit.
        DeviceError: if the operands are on several devices.
    """
    adds = (accumulate, accumulate) if isinstance(accumulate, bool) else tuple(accumulate)
    if out is None:
        if any(adds):
            raise InputError("accumulate is True without out; pass out=(da, db) to add to")
        out = _like(a) if wanted[0] else None, _like(b) if wanted[1] else None
    elif not all(wanted):
        raise InputError("wanted is given with out; pass None in out for a gradient not wanted")
    operators.adapter_gradients(dc, a, b, *out, adds)
    return out


def _like(operand: Tensor) -> Tensor:
    return torch.empty(operand.shape, dtype=torch.float32, device=operand.device)


class _AdapterProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx: Any, dc: Tensor) -> tuple[Tensor | None, Tensor | None]:  # noqa: ANN401
        a, b = ctx.saved_tensors
        of_a, of_b = ctx.needs_input_grad
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            flat = a.reshape(-1, a.shape[-1]).t() @ dc.reshape(-1, dc.shape[-1]) if of_b else None
            return dc @ b.t() if of_a else None, flat
        da, db = adapter_gradients(dc, a, b, wanted=(of_a, of_b))
        return (
            None if da is None else da.to(a.dtype),
            None if db is None else db.to(b.dtype),
        )


def adapter_product(a: Tensor, b: Tensor) -> Tensor:
    """C = A B, a product of torch, with the gradients of `adapter_gradients`.

    Only the gradients that autograd asks for are computed: the factor that is frozen
    (`requires_grad=False`) costs nothing in the backward pass.

    Args:
        a: [..., K], float32, float16 or bfloat16.
        b: [K, n], of the type of a.

    Returns:
        C [..., n].

    Raises:
        TypeError: if an operand is no tensor.
        RuntimeError: if shapes or types do not fit, as for torch's product.
    """
    require_tensors(a=a, b=b)
    made: Tensor = _AdapterProduct.apply(a, b)  # type: ignore[no-untyped-call]
    return made
