"""Numbers that a fit takes as they are: a scale of weights and steps, and where steps were seen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["NODES", "Setting", "Starts", "bounds"]

NODES = 5  # nodes of a table


@dataclass(frozen=True)
class Setting:
    """Numbers that are not fitted.

    Attributes:
        low: A lower bound of the weights, from which the fit of the bound begins.
        high: An upper bound of the weights, likewise.
        step: A scale that makes steps of order 1.
        seen: For each direction, which nodes of a table have pulses near them; the steps at the
            others follow from these.
    """

    low: float
    high: float
    step: float
    seen: dict[str, tuple[int, ...]] = field(
        default_factory=lambda: dict.fromkeys(("up", "down"), tuple(range(NODES)))
    )


@dataclass(frozen=True)
class Starts:
    """Mean steps as polynomials of the weight, by least squares, from which fits begin."""

    up: Callable[[Array], Array]
    down: Callable[[Array], Array]


def bounds(t: Mapping[str, Array], _e: object, s: Setting) -> tuple[Any, Any]:
    """The bounds of a cell without spread: those of the setting, or fitted ones."""
    return s.low * np.exp(t.get("log_low", 0.0)), s.high * np.exp(t.get("log_high", 0.0))
