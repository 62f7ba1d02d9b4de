"""PiecewiseStep and TableStep as a fit sees them: steps at nodes between the bounds.

A node without a pulse nearer to it than to the others is not fitted: its step is read from the
straight line between its fitted neighbours, and beyond the outermost fitted node it is the step of
that node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pulsora.fit.curves import linear_curve, monotone_curve
from pulsora.fit.setting import NODES, bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from pulsora.fit.setting import Setting, Starts

    Array = NDArray[np.float64]
    Named = Mapping[str, Array]

__all__ = [
    "STEEPEST", "nodes_start", "piecewise", "piecewise_natural", "table", "table_natural",
    "table_spread",
]  # fmt: skip

STEEPEST = 1.5  # of the logarithm of cycle noise, from the middle of the range to its ends

_LEAST = 0.01  # of setting.step: the step that a node at its limit of 0 has


def _positive(x: Array) -> Array:
    """x where it is well above 0, and a small positive number below."""
    return 0.5 * (x + np.sqrt(x * x + 4.0 * _LEAST**2))


def _steps(t: Named, s: Setting, way: str) -> Array:
    """Steps at all nodes, [nodes, ...]."""
    seen = s.seen[way]
    fitted = _positive(np.stack(np.broadcast_arrays(*(t[f"{way}_{i}"] for i in seen))))
    shares = np.array([np.interp(np.arange(NODES), seen, row) for row in np.eye(len(seen))])
    return s.step * np.tensordot(shares, fitted, axes=(0, 0))


def _of_cell(e: Named, up: bool) -> Array:
    return 1.0 + e["gain"] + (e["asymmetry"] if up else -e["asymmetry"])


def piecewise(t: Named, e: Named, s: Setting, w: Array, up: bool) -> Array:
    """Mean steps of PiecewiseStep."""
    return linear_curve(*bounds(t, e, s), _steps(t, s, "up" if up else "down"), w) * _of_cell(e, up)


def table(t: Named, e: Named, s: Setting, w: Array, up: bool) -> Array:
    """Mean steps of TableStep."""
    steps = _steps(t, s, "up" if up else "down")
    return monotone_curve(*bounds(t, e, s), steps, w) * _of_cell(e, up)


def _trend(t: Named, up: bool) -> Array:
    """Cycle noise at the nodes relative to the middle: it rises or falls exponentially."""
    places = np.linspace(-1.0, 1.0, NODES)
    rate = t["noise_up" if up else "noise_down"]
    return np.exp(np.multiply.outer(places, np.clip(rate, -STEEPEST, STEEPEST)))


def table_spread(t: Named, s: Setting, w: Array, up: bool) -> Array:
    """Cycle noise of TableStep relative to its step and to dw_min_std."""
    return monotone_curve(*bounds(t, {}, s), _trend(t, up), w)


def nodes_start(starts: Starts, s: Setting) -> dict[str, float]:
    """Steps at the fitted nodes to begin with."""
    found: dict[str, float] = {}
    for way, curve in (("up", starts.up), ("down", starts.down)):
        values = np.maximum(curve(np.linspace(s.low, s.high, NODES)) / s.step, 0.05)
        found |= {f"{way}_{i}": float(values[i]) for i in s.seen[way]}
    return found


def _natural(t: Named, s: Setting, curve: Callable[..., Array]) -> tuple[Array, Array, Array]:
    """dw_min (the mean of both steps at weight 0), and the nodes in units of dw_min."""
    up, down = _steps(t, s, "up"), _steps(t, s, "down")
    low, high = bounds(t, {}, s)
    zero = np.zeros(up.shape[1:])
    dw_min = 0.5 * (curve(low, high, up, zero) + curve(low, high, down, zero))
    return dw_min, up / dw_min, down / dw_min


def piecewise_natural(t: Named, s: Setting) -> dict[str, Any]:
    """Parameters of PiecewiseStep."""
    dw_min, up, down = _natural(t, s, linear_curve)
    return {"dw_min": dw_min, "piecewise_up": up, "piecewise_down": down}


def table_natural(t: Named, s: Setting) -> dict[str, Any]:
    """Parameters of TableStep."""
    dw_min, up, down = _natural(t, s, monotone_curve)
    return {
        "dw_min": dw_min,
        "table_up": up,
        "table_down": down,
        "table_std_up": _trend(t, up=True),
        "table_std_down": _trend(t, up=False),
    }
