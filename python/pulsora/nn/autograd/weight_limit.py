"""Gradients of learned limits of weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pulsora.nn.autograd.differentiation import differentiable_once

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["with_limit"]


class _WithLimit(torch.autograd.Function):
    """The weights themselves, and the gradient of the limits at which they are clipped."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, limit: Tensor) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(weight, limit)
        return weight.view_as(weight)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, dw: Tensor) -> tuple[Tensor, Tensor | None]:  # noqa: ANN401
        weight, limit = ctx.saved_tensors
        if not ctx.needs_input_grad[1]:
            return dw, None
        rows = weight.flatten(1)
        at_limit = rows.abs() >= limit[:, None]
        return dw, (at_limit * rows.sign() * dw.flatten(1)).sum(dim=1).to(limit.dtype)


def with_limit(weight: Tensor, limit: Tensor) -> Tensor:
    """Returns the weights W, through which the limits c of their outputs get a clip's gradient.

    clip(W_ij, -c_i, c_i) has the derivative sign(W_ij) by c_i where abs(W_ij) has reached c_i, and
    else 0. The gradient of W passes unchanged.

    Args:
        weight: W, of any shape with out_features rows.
        limit: c, [out_features].
    """
    found: Tensor = _WithLimit.apply(weight, limit)  # type: ignore[no-untyped-call]
    return found
