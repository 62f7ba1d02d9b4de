"""Gradients of learned input ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pulsora.nn.autograd.differentiation import differentiable_once

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["with_range"]


class _WithRange(torch.autograd.Function):
    """The inputs themselves, and the gradient of the range beyond which a DAC clips them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, limit: Tensor) -> Tensor:  # noqa: ANN401 - torch gives no type
        ctx.save_for_backward(x, limit)
        return x.view_as(x)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, dx: Tensor) -> tuple[Tensor, Tensor | None]:  # noqa: ANN401
        x, limit = ctx.saved_tensors
        if not ctx.needs_input_grad[1]:
            return dx, None
        clipped = x.abs() > limit
        return dx, (clipped * x.sign() * dx).sum().reshape(1).to(limit.dtype)


def with_range(x: Tensor, limit: Tensor) -> Tensor:
    """Returns x, through which the range c of its converter gets the gradient of a clip.

    x^ = clip(x, -c, c) has d x^ / d c = sign(x) beyond the range and 0 within it. The gradient of x
    passes unchanged, as through the levels of a converter.

    Args:
        x: Inputs of a layer.
        limit: The range c, [1].
    """
    found: Tensor = _WithRange.apply(x, limit)  # type: ignore[no-untyped-call]
    return found
