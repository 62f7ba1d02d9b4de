"""The measurement that decides whether a predicted move of the weights is made."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    from pulsora.forecast.batches import Stream
    from pulsora.forecast.weights import Weights

    Values = list[Tensor]

__all__ = ["Guard", "Trial"]

_BATCHES = 4
_ERRORS = 2.0  # standard errors that a gain must exceed
_SHARE = 0.5  # of the fall of the loss in as many steps of training, which a jump must reach


class Trial(NamedTuple):
    """The effect of a move of the weights on the loss, on the guard's batches.

    Attributes:
        before: Loss at the mean of the weights over the latest window of blocks.
        moved: Loss at that mean plus the move.
        needed: The fall from `before` to `moved` that the move needs to be made.
    """

    before: float
    moved: float
    needed: float

    @property
    def helps(self) -> bool:
        """Whether the move lowers the loss by as much as is needed; False for losses of NaN."""
        return self.before - self.moved > self.needed


class Guard:
    """Tries moves of the weights on a copy of the model, by forward passes of four mini-batches.

    The batches are the next of the training, which it has not seen, and which it still gets.

    Args:
        model: The model.
        loss: A function of the model and a batch.
        weights: The weights of the model.
        stream: Source of the batches.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[[nn.Module, Any], Tensor],
        weights: Weights,
        stream: Stream,
    ) -> None:
        self.passes = 0  # forward passes so far
        self._model = model
        self._loss = loss
        self._weights = weights
        self._stream = stream

    def __call__(self, early: Values, late: Values, deltas: Values, share: float) -> Trial:
        """Tries a move.

        It helps if it lowers the loss at the mean of the weights by more than two standard errors,
        and by at least half of what as many steps of training have gained lately.

        Args:
            early: Mean of the weights over the window of blocks before the latest.
            late: Mean of the weights over the latest window of blocks.
            deltas: The move.
            share: Steps that the move replaces, over the passes from one window to the next.
        """
        moved = [value + delta for value, delta in zip(late, deltas, strict=True)]
        at_early, at_late, at_moved = self.losses(early, late, moved)
        gains = at_late - at_moved
        error = float(gains.std()) / math.sqrt(_BATCHES)
        progress = float((at_early - at_late).mean())
        needed = max(_ERRORS * error, _SHARE * share * progress)
        return Trial(float(at_late.mean()), float(at_moved.mean()), needed)

    def losses(self, *points: Values) -> list[Tensor]:
        """The losses of the batches at each of some weights, written digitally."""
        batches = self._stream.peek(_BATCHES)
        self.passes += len(points) * len(batches)
        return self._weights.losses_at(points, self._model, self._loss, batches)
