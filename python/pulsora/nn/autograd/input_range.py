"""Gradients of learned input ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from pulsora.nn.autograd.differentiation import differentiable_once

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Decay", "with_range"]


class Decay(NamedTuple):
    """When and how fast a range decays."""

    rate: float
    """Gradient of the range, relative to it."""
    inside: float
    """Share of the inputs within the range above which it decays."""


class _WithRange(torch.autograd.Function):
    """The inputs themselves, and the gradient of the range beyond which a DAC clips them."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch gives no type
        x: Tensor,
        limit: Tensor,
        seen: Tensor | None,
        decay: Decay | None,
    ) -> Tensor:
        ctx.save_for_backward(x, limit, seen)
        ctx.decay = decay
        return x.view_as(x)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, dx: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        x, limit, seen = ctx.saved_tensors
        if not ctx.needs_input_grad[1]:
            return dx, None, None, None
        if ctx.decay is not None:
            found = _one_sided(x, limit, dx, ctx.decay)
        else:
            clipped = x.abs() > limit
            slope = clipped * x.sign()
            if seen is not None:
                slope = torch.where(clipped, slope, seen - x / limit)
            found = (slope * dx).sum()
        return dx, found.reshape(1).to(limit.dtype), None, None


def _one_sided(x: Tensor, limit: Tensor, dx: Tensor, decay: Decay) -> Tensor:
    """Returns the gradient of a range that inputs only widen, and that decays."""
    outside = x.abs() >= limit
    widening = (x.sign() * dx).clamp(max=0.0)
    decays = 1.0 - outside.float().mean() > decay.inside
    return limit * ((outside * widening).sum() + decay.rate * decays)


def with_range(
    x: Tensor, limit: Tensor, *, seen: Tensor | None = None, decay: Decay | None = None
) -> Tensor:
    """Returns x, through which the range c of its converter gets a gradient.

    x^ = clip(x, -c, c) has d x^ / d c = sign(x) beyond the range and 0 within it. With `seen`, the
    rounding counts too: x^ = c q(x / c) has d x^ / d c = q(x / c) - x / c within the range, if
    q passes gradients unchanged (Esser et al., ICLR 2020). With `decay`, the range gets c times the
    gradient of a clip, of the inputs alone that ask for a wider range, and a decay. The gradient of
    x passes unchanged, as through the levels of a converter.

    Args:
        x: Inputs of a layer.
        limit: The range c, [1].
        seen: q(x / c), the inputs as the array sees them, relative to the range.
        decay: The decay of a range that inputs only widen.
    """
    found: Tensor = _WithRange.apply(x, limit, seen, decay)  # type: ignore[no-untyped-call]
    return found
