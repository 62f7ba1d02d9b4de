"""The gated low-rank update and the gradients of an adapter, for tensors of torch."""

from __future__ import annotations

from math import isfinite
from numbers import Real
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad

from pulsora._core import InputError
from pulsora._internal.transforms import in_transform
from pulsora.lowrank import operators, plain

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "adapter_gradients",
    "adapter_product",
    "autocast_type",
    "gated_low_rank",
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
            made = plain.gradients(dy, x, v, codes, u, ctx.u_layout, ctx.scale)
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


class _TransformedUpdate(_GatedLowRank):
    """Function for transforms of torch.func, which takes the host longer in plain calls."""

    generate_vmap_rule = True

    @staticmethod
    def forward(  # type: ignore[override] # the context has a function of its own
        x: Tensor,
        v: Tensor,
        codes: Tensor | None,
        u: Tensor,
        base: Tensor | None,
        u_layout: str,
        scale: float,
    ) -> Tensor:
        y: Tensor = operators.gated_low_rank(x, v, codes, u, u_layout, scale, base)
        return y

    @staticmethod
    def setup_context(
        ctx: Any,  # noqa: ANN401
        inputs: tuple[Any, ...],
        output: Tensor,  # noqa: ARG004 - as torch calls it
    ) -> None:
        x, v, codes, u, _, ctx.u_layout, ctx.scale = inputs
        ctx.save_for_backward(x, v, codes, u)


_LARGEST = 1e15  # the limit of every setting (parameters/limits.h)
_OPTIONAL = ("codes", "base", "bias")


def require_finite(name: str, value: object) -> None:
    """Raises InputError unless the setting is a finite number within the limits of all settings."""
    if isinstance(value, bool) or not isinstance(value, Real) or not isfinite(value):
        raise InputError(f"{name} is {value!r}; it must be a finite number")
    if abs(float(value)) > _LARGEST:
        raise InputError(f"{name} is {value!r}; give {_LARGEST:g} at most, of either sign")


def require_tensors(**operands: object) -> None:
    """Raises TypeError, naming the operand, unless all are dense tensors, or None where optional.

    Raises NotImplementedError for forward-mode derivatives, in which the update would be lost.
    """
    for name, operand in operands.items():
        if not isinstance(operand, torch.Tensor) and not (operand is None and name in _OPTIONAL):
            raise TypeError(
                f"{name} is a {type(operand).__name__}; give a tensor"
                + ", for example torch.as_tensor(codes).to(x)" * (name == "codes")
            )
        if operand is not None and operand.layout is not torch.strided:
            raise TypeError(
                f"{name} has the layout {operand.layout}; give {name}.to_dense(), whose numbers "
                "are all in memory"
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


def _require_pair(name: str, value: object, wanted: str) -> tuple[Any, Any]:
    """Returns the two entries of a setting. Raises TypeError unless there are two."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise TypeError(f"{name} is {value!r}; give {wanted}, one for dA and one for dB")
    return value[0], value[1]


def _require_flags(name: str, value: object) -> tuple[bool, bool]:
    """Returns the two bools of a setting. Raises TypeError unless there are two."""
    pair = _require_pair(name, value, "two bools")
    if not all(isinstance(each, bool) for each in pair):
        raise TypeError(f"{name} is {value!r}; give two bools, one for dA and one for dB")
    return pair


def autocast_type(tensor: Tensor) -> torch.dtype | None:
    """The type that `torch.autocast` gives products on the tensor's device; None if it is off."""
    kind = tensor.device.type
    if tensor.dtype == torch.float64:
        return None  # as for torch's products
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

    All operands have the dtype (float32, float16, bfloat16 or float64) and the device of x; under
    `torch.autocast` they are converted to its dtype, as torch does for a product. Sums are in
    single precision (for float64 in double precision), x v is never rounded to 16 bits, and the
    result is rounded once. Gradients of all operands are made in one pass, from the operands alone.
    Codes, v and u may have any strides; an x or base whose rows are not contiguous (at any
    distance) is copied.

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
        TypeError: if a dtype does not fit, or an operand is no dense tensor.
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
        update = _TransformedUpdate if in_transform() else _GatedLowRank
        made: Tensor = update.apply(  # type: ignore[no-untyped-call]
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

    For operands in float64, all three of them, the gradients are in double precision. Otherwise
    each operand may be float32, float16 or bfloat16 on its own; a 16-bit copy of weights may stand
    beside gradients in single precision. Nothing is rounded to 16 bits or to tf32, whatever
    `torch.backends` allows.

    Args:
        dc: the gradient at C, [..., n].
        a: [..., K].
        b: [K, n].
        wanted: whether dA and dB are made; a gradient that is not wanted costs nothing. With `out`,
            leave `wanted` out.
        out: contiguous tensors for dA and dB, float32 (float64 for operands in float64), of the
            shapes of a and b, or None in the place of a gradient that is not wanted. By default,
            tensors are made.
        accumulate: whether to add to the values in `out`, as for the next micro-batch; one bool, or
            one for each of dA and dB.

    Returns:
        dA and dB, or `out`; None in the place of a gradient that is not wanted.

    Raises:
        InputError: if a shape does not fit, there is nothing to add to, or `out` shares memory with
            operands.
        TypeError: if a dtype does not fit, an operand is no dense tensor, or `wanted`, `out` or
            `accumulate` are no pair.
        DeviceError: if the operands are on several devices.
    """
    require_tensors(dc=dc, a=a, b=b)
    wanted = _require_flags("wanted", wanted)
    if isinstance(accumulate, bool):
        adds = (accumulate, accumulate)
    else:
        adds = _require_flags("accumulate", accumulate)
    if out is not None:
        da, db = _require_pair("out", out, "two tensors or None")
        given = {"out[0]": da, "out[1]": db}
        require_tensors(**{name: each for name, each in given.items() if each is not None})
        out = (da, db)
    if out is None:
        if any(adds):
            raise InputError("accumulate is True without out; pass out=(da, db) to add to")
        kind = plain.sum_type(dc.dtype)
        out = (
            dc.new_empty(a.shape, dtype=kind) if wanted[0] else None,
            dc.new_empty(b.shape, dtype=kind) if wanted[1] else None,
        )
    elif not all(wanted):
        raise InputError("wanted is given with out; pass None in out for a gradient not wanted")
    operators.adapter_gradients(dc, a, b, *out, adds)
    return out


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
            return plain.gradients_of_adapter(dc, a, b, (of_a, of_b))
        da, db = adapter_gradients(dc, a, b, wanted=(of_a, of_b))
        return (
            None if da is None else da.to(a.dtype),
            None if db is None else db.to(b.dtype),
        )


class _TransformedProduct(_AdapterProduct):
    """Function for transforms of torch.func."""

    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, b: Tensor) -> Tensor:  # type: ignore[override]
        return a @ b

    @staticmethod
    def setup_context(
        ctx: Any,  # noqa: ANN401
        inputs: tuple[Tensor, Tensor],
        output: Tensor,  # noqa: ARG004 - as torch calls it
    ) -> None:
        ctx.save_for_backward(*inputs)


def adapter_product(a: Tensor, b: Tensor) -> Tensor:
    """C = A B, a product of torch, with the gradients of `adapter_gradients`.

    Only the gradients that autograd asks for are computed: the factor that is frozen
    (`requires_grad=False`) costs nothing in the backward pass.

    Args:
        a: [..., K], float32, float16, bfloat16 or float64.
        b: [K, n], of the type of a.

    Returns:
        C [..., n].

    Raises:
        TypeError: if an operand is no dense tensor.
        RuntimeError: if shapes or types do not fit, as for torch's product.
    """
    require_tensors(a=a, b=b)
    product = _TransformedProduct if in_transform() else _AdapterProduct
    made: Tensor = product.apply(a, b)  # type: ignore[no-untyped-call]
    return made
