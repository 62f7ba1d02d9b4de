"""What predicts a move of the weights from the means of the latest blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsora.forecast.history import drift

if TYPE_CHECKING:
    from torch import Tensor

    from pulsora.forecast.history import BlockMeans

    Values = list[Tensor]

__all__ = ["LinearForecaster", "forecaster_of"]


class LinearForecaster:
    """The drift of block means goes on as it was.

    Args:
        alpha: Factor of the moves; 1 by default.
    """

    blocks = 2  # of a cycle
    window = 4  # blocks whose mean is compared with that of as many before
    kept = 2 * window

    def __init__(self, alpha: float | None = None) -> None:
        self._alpha = 1.0 if alpha is None else alpha

    def __call__(self, blocks: BlockMeans, steps: int) -> Values:
        """The move for so many steps."""
        factor = self._alpha * steps
        return [factor * value for value in drift(blocks, self.window)]


FORECASTERS: dict[str, type[LinearForecaster] | None] = {"linear": LinearForecaster, "none": None}
"""What `HybridTrainer` takes, by name; None moves nothing."""


def forecaster_of(name: str) -> type[LinearForecaster] | None:
    """The forecaster of that name; ValueError if there is none."""
    if name not in FORECASTERS:
        raise ValueError(f"forecaster must be one of {', '.join(FORECASTERS)} (got {name!r})")
    return FORECASTERS[name]
