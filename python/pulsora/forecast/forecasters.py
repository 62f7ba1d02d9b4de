"""Forecasters, which predict a move of the weights from the means of the latest blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pulsora.forecast.gru.forecaster import GRUForecaster
from pulsora.forecast.history import drift

if TYPE_CHECKING:
    from torch import Tensor

    from pulsora.forecast.history import History

    Values = list[Tensor]

__all__ = ["Forecaster", "LinearForecaster", "forecaster_of"]


class Forecaster(Protocol):
    """A function of the history of a training that gives the move of the weights in so many steps.

    Anything else that it depends on must be in its repr(), by which a saved training is compared.

    Attributes:
        name: Its name in reports.
        blocks: Blocks of a cycle, an even number.
        kept: Most blocks in the history.
        least: Fewest blocks that a forecast needs.
    """

    name: str
    blocks: int
    kept: int
    least: int

    def __call__(self, history: History, steps: int) -> Values:
        """The move, a tensor for each of the weights."""
        ...


class LinearForecaster:
    """Continues the drift of the block means.

    Args:
        alpha: Factor of the moves; 1 by default.
    """

    name = "linear"
    blocks = 2
    window = 4  # blocks per mean; the latest are compared with as many before
    kept = 2 * window
    least = 2

    def __init__(self, alpha: float | None = None) -> None:
        self._alpha = 1.0 if alpha is None else alpha

    def __call__(self, history: History, steps: int) -> Values:
        """The move for `steps` steps."""
        factor = self._alpha * steps
        return [factor * value for value in drift(history.blocks, self.window)]

    def __repr__(self) -> str:
        return f"linear(alpha={self._alpha:g})"


FORECASTERS: dict[str, type[LinearForecaster | GRUForecaster] | None] = {
    "linear": LinearForecaster,
    "gru": GRUForecaster,
    "none": None,
}
"""Forecasters of `HybridTrainer` by name; None moves nothing."""


def forecaster_of(given: str | Forecaster, alpha: float | None) -> Forecaster | None:
    """The forecaster of that name, or the one given.

    Raises:
        ValueError: for an unknown name, or alpha with a forecaster that has its own.
    """
    if not isinstance(given, str):
        if alpha is not None:
            raise ValueError(f"alpha = {alpha:g} is for forecasters by name; {given!r} has its own")
        return given
    if given not in FORECASTERS:
        names = ", ".join(FORECASTERS)
        raise ValueError(f"forecaster must be one of {names}, or an object (got {given!r})")
    made = FORECASTERS[given]
    return None if made is None else made(alpha=alpha)
