"""Reads of tiles whose weights are a parameter of torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pulsora.lowrank.functional import autocast_type
from pulsora.nn.autograd.differentiation import differentiable_once
from pulsora.nn.autograd.gated_product import own
from pulsora.nn.tiles.checkpointing import require_first_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from pulsora.nn.tiles.followed_weights import FollowedWeights
    from pulsora.nn.tiles.held_weights import HeldWeights
    from pulsora.nn.tiles.tile_read import ReadPosition

__all__ = ["read_held"]


class _HeldProduct(torch.autograd.Function):
    """y = W x + bias, read from tiles that hold W, with torch's gradient of W."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch gives no type
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        held: HeldWeights | FollowedWeights,
        position: ReadPosition,
        recorded: bool,
    ) -> Tensor:
        low = autocast_type(x)
        held.before_read(weight, evaluation=position.evaluation)
        noted = held.noted(position)
        if recorded:
            # The gradient of W takes the inputs that the array saw.
            # Under autocast, that product has autocast's type, as those of torch.
            seen = held.converted(x).to(low or x.dtype) if ctx.needs_input_grad[1] else x
            ctx.save_for_backward(seen, weight, bias)
        ctx.held, ctx.position, ctx.noted = held, position, noted
        # Gradients that are scaled may overflow in float16. Others that are not finite are errors,
        # because the step of torch's optimiser would not refuse them.
        ctx.may_overflow = low == torch.float16
        y = held.array.forward(x, position)
        return y if bias is None else y + bias

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        seen, weight, bias = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        held: HeldWeights | FollowedWeights = ctx.held
        d = own(d).float().contiguous()
        dx = None
        if needs_x:
            held.before_backward(weight, ctx.noted)
            dx = held.array.backward(d, ctx.position, takes_infinite=ctx.may_overflow)
        return (
            dx,
            held.gradient(seen, d.to(seen.dtype)).reshape(weight.shape).to(weight.dtype)
            if needs_weight
            else None,
            d.sum(0).to(bias.dtype) if needs_bias else None,
            None,
            None,
            None,
        )


def read_held(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    held: HeldWeights | FollowedWeights,
    rows: tuple[Sequence[int], int, bool],
) -> Tensor:
    """Reads y = W x + bias, differentiable.

    Args:
        x: Inputs [m, groups * in_features], of float32.
        weight: W, of any shape with out_features rows.
        bias: Bias [out_features], or None.
        held: The tiles that hold W.
        rows: Shape of the mini-batch and number of time steps, as `TileArray.begin_read` takes
            them, and whether the layer is in training mode.

    Raises:
        RuntimeError: If a part of the model is run again without `replayed_reads`.
    """
    require_first_run()
    shape, steps, training = rows
    position = held.array.begin_read(shape, steps, training=training)
    y: Tensor = _HeldProduct.apply(  # type: ignore[no-untyped-call]
        x, weight, bias, held, position, torch.is_grad_enabled()
    )
    return y
