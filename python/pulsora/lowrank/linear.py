"""A linear layer with a gated low-rank update, as one operation on tensors of torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pulsora._internal.transforms import in_transform
from pulsora.lowrank import operators, plain
from pulsora.lowrank.functional import (
    autocast_type,
    require_finite,
    require_tensors,
)

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["gated_low_rank_linear"]


def _matrix(tensor: Tensor) -> Tensor:
    """[..., K] as [M, K]."""
    return tensor.flatten(0, -2) if tensor.dim() > 1 else tensor.unsqueeze(0)


class _GatedLowRankLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch has no type for it
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        v: Tensor,
        codes: Tensor | None,
        u: Tensor,
        u_layout: str,
        scale: float,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, v, codes, u)
        ctx.u_layout, ctx.scale = u_layout, scale
        y: Tensor = operators.gated_low_rank_linear(x, weight, bias, v, codes, u, u_layout, scale)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        x, weight, v, codes, u = ctx.saved_tensors
        of_x, of_weight, of_bias, *of_factors = ctx.needs_input_grad[:6]
        rows = _matrix(dy)
        wanted = [of_x, *of_factors]
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            # Second derivatives will be asked for: torch can differentiate its own operations.
            made = list(plain.gradients(dy, x, v, codes, u, ctx.u_layout, ctx.scale))
            made[0] = made[0] + dy @ weight
        elif any(wanted):
            made = operators.gated_low_rank_backward(
                dy, x, v, codes, u, ctx.u_layout, ctx.scale, wanted
            )
            if of_x and in_transform():  # vmap has no rule for addmm_
                made[0] = made[0] + dy @ weight
            elif of_x:
                _matrix(made[0]).addmm_(rows, weight)
        else:
            made = [None] * 4
        # After the factors: cuBLAS warns if it runs first in a thread of autograd.
        dweight = rows.t() @ _matrix(x) if of_weight else None
        dbias = rows.sum(0) if of_bias else None
        dx, dv, dcodes, du = (
            gradient if is_wanted else None
            for gradient, is_wanted in zip(made, wanted, strict=True)
        )
        return dx, dweight, dbias, dv, dcodes, du, None, None


class _TransformedLayer(_GatedLowRankLinear):
    """Function for transforms of torch.func, which takes the host longer in plain calls."""

    generate_vmap_rule = True

    @staticmethod
    def forward(  # type: ignore[override] # the context has a function of its own
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        v: Tensor,
        codes: Tensor | None,
        u: Tensor,
        u_layout: str,
        scale: float,
    ) -> Tensor:
        y: Tensor = operators.gated_low_rank_linear(x, weight, bias, v, codes, u, u_layout, scale)
        return y

    @staticmethod
    def setup_context(
        ctx: Any,  # noqa: ANN401
        inputs: tuple[Any, ...],
        output: Tensor,  # noqa: ARG004 - as torch calls it
    ) -> None:
        x, weight, _, v, codes, u, ctx.u_layout, ctx.scale = inputs
        ctx.save_for_backward(x, weight, v, codes, u)


def gated_low_rank_linear(
    x: Tensor,
    weight: Tensor,
    v: Tensor,
    codes: Tensor | None,
    u: Tensor,
    *,
    u_layout: str,
    scale: float = 1.0,
    bias: Tensor | None = None,
) -> Tensor:
    """A linear layer with a low-rank adapter, in one operation.

    y = x weight^T + bias + scale ((x v) * codes) u^T.

    Equals `gated_low_rank` with `base=torch.nn.functional.linear(x, weight, bias)`, to rounding: on
    a GPU the sum is not rounded between its two parts where one kernel makes both. Elsewhere it is
    torch's product and the update, added in place. Types, autocast, sums, strides and gradients are
    as in `gated_low_rank`; gradients of weight and bias are torch's products, made only if needed.

    Args:
        x: inputs [..., K1].
        weight: [K2, K1], as `torch.nn.Linear` keeps it.
        v: [K1, N]; in LoRA, the transposed `lora_A`.
        codes: gates that broadcast to [..., N], without being copied; None: all 1.
        u: [K2, N] with u_layout="kn", or [N, K2] with u_layout="nk".
        u_layout: the layout of u; it is never guessed.
        scale: any finite number, such as LoRA's alpha / r.
        bias: [K2]; None: 0.

    Returns:
        A new tensor [..., K2].

    Raises:
        InputError: if a shape does not fit, or u_layout or scale are out of range.
        TypeError: if a dtype does not fit, or an operand is no dense tensor.
        DeviceError: if the operands are on several devices.
        NotImplementedError: for derivatives in forward mode.
    """
    require_finite("scale", scale)
    require_tensors(x=x, weight=weight, bias=bias, v=v, codes=codes, u=u)
    if (dtype := autocast_type(x)) is not None:
        x, weight, v, u = x.to(dtype), weight.to(dtype), v.to(dtype), u.to(dtype)
        codes = None if codes is None else codes.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    if torch.is_grad_enabled() and any(
        each is not None and each.requires_grad for each in (x, weight, bias, v, codes, u)
    ):
        layer = _TransformedLayer if in_transform() else _GatedLowRankLinear
        made: Tensor = layer.apply(  # type: ignore[no-untyped-call]
            x, weight, bias, v, codes, u, u_layout, float(scale)
        )
        return made
    y: Tensor = operators.gated_low_rank_linear(
        x, weight, bias, v, codes, u, u_layout, float(scale)
    )
    return y
