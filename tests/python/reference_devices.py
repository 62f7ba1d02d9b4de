"""One pulse of every device model in numpy and double precision, from the published formulas.

Written independently of the C++ sources; the formulas are those of Gokmen and Vlasov, Front.
Neurosci. 10:333 (2016), and of AIHWKit's device models. `params` holds a model's parameters by
name, `cells` its stored planes by name, as arrays of one shape.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.interpolate import PchipInterpolator

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Params = Mapping[str, Any]
    Cells = Mapping[str, Array]


@dataclass
class Common:
    """Step sizes (magnitudes) and bounds of every cell, before a model's own reference."""

    up: Array
    down: Array
    w_max: Array
    w_min: Array

    @property
    def span(self) -> Array:
        return self.w_max - self.w_min


def _nonzero(mean: float, otherwise: float) -> float:
    return mean if mean != 0 else otherwise


def _ratio(a: Array, b: Array) -> Array:
    """a / b, and 0 where b is 0."""
    return np.divide(a, b, out=np.zeros_like(a), where=b != 0)


def common(params: Params, cells: Cells) -> Common:
    asymmetry = params["up_down"]
    w_max, w_min = params["w_max"], params["w_min"]
    c = Common(
        params["dw_min"] * _nonzero(1 + min(asymmetry, 0), 1) * cells["gain_up"],
        params["dw_min"] * _nonzero(1 - max(asymmetry, 0), 1) * cells["gain_down"],
        _nonzero(w_max, w_min) * cells["bound_max"],
        _nonzero(w_min, w_max) * cells["bound_min"],
    )
    stuck = (c.up == 0) & (c.down == 0)
    c.w_min = np.where(stuck, c.w_max, c.w_min)
    return c


def _constant(_w: Array, c: Common, _params: Params, _cells: Cells) -> tuple[Array, Array]:
    return c.up, c.down


def _linear(w: Array, c: Common, params: Params, cells: Cells) -> tuple[Array, Array]:
    gamma_up = params["gamma_up"] + params["gamma_up_dtod"] * cells["gamma_up"]
    gamma_down = params["gamma_down"] + params["gamma_down_dtod"] * cells["gamma_down"]
    if not params["allow_increasing"]:
        gamma_up, gamma_down = abs(gamma_up), abs(gamma_down)
    mean = params["mean_bound_reference"]
    top = np.full_like(w, params["w_max"]) if mean else c.w_max
    bottom = np.full_like(w, params["w_min"]) if mean else c.w_min
    offset = params["reverse_offset"]
    at_up = bottom - offset if params["reverse_up"] else top
    at_down = top + offset if params["reverse_down"] else bottom
    return c.up * (1 - gamma_up * _ratio(w, at_up)), c.down * (1 - gamma_down * _ratio(w, at_down))


def _soft(w: Array, c: Common, _params: Params, _cells: Cells) -> tuple[Array, Array]:
    up = c.up * np.where(c.w_max != 0, 1 - _ratio(w, c.w_max), 0)
    down = c.down * np.where(c.w_min != 0, 1 - _ratio(w, c.w_min), 0)
    return up, down


def reference(params: Params, cells: Cells) -> tuple[Array, Array]:
    """SoftBoundsReference: what a weight is read against, and the symmetric point of its cell."""
    c = common(params, cells)
    up_slope = _ratio(c.up * cells["slope_up"], c.w_max)
    down_slope = _ratio(c.down * cells["slope_down"], c.w_min)
    symmetric = _ratio(c.up - c.down, up_slope - down_slope)
    zero = params["reference_mean"] + params["reference_std"] * cells["reference"]
    return zero + symmetric * params["subtract_symmetry_point"], symmetric


def _soft_reference(w: Array, c: Common, params: Params, cells: Cells) -> tuple[Array, Array]:
    v = w + reference(params, cells)[0]
    up = c.up * (1 - cells["slope_up"] * _ratio(v, c.w_max))
    down = c.down * (1 - cells["slope_down"] * _ratio(v, c.w_min))
    return np.where(c.w_max != 0, up, 0), np.where(c.w_min != 0, down, 0)


def _exp(w: Array, c: Common, params: Params, _cells: Cells) -> tuple[Array, Array]:
    z = 2 * params["a"] * _ratio(w, c.span) + params["b"]
    up = np.maximum(1 - params["a_up"] * np.exp(params["gamma_up"] * z), 0)
    down = np.maximum(1 - params["a_down"] * np.exp(-params["gamma_down"] * z), 0)
    return c.up * up, c.down * down


def _pow(w: Array, c: Common, params: Params, cells: Cells) -> tuple[Array, Array]:
    asymmetry = params["pow_up_down"]
    up = params["pow_gamma"] * _nonzero(1 + min(asymmetry, 0), 1) * cells["exponent_up"]
    down = params["pow_gamma"] * _nonzero(1 - max(asymmetry, 0), 1) * cells["exponent_down"]
    above = np.maximum(_ratio(c.w_max - w, c.span), 0)
    below = np.maximum(_ratio(w - c.w_min, c.span), 0)
    return c.up * above ** abs(up), c.down * below ** abs(down)


def _piecewise(w: Array, c: Common, params: Params, _cells: Cells) -> tuple[Array, Array]:
    def curve(nodes: list[float]) -> Array:
        return np.interp(_ratio(w - c.w_min, c.span), np.linspace(0, 1, len(nodes)), nodes)

    return c.up * curve(params["piecewise_up"]), c.down * curve(params["piecewise_down"])


def _table_curve(w: Array, c: Common, params: Params, name: str) -> Array:
    """A table of TableStep at weight w; SciPy's PCHIP is the reference of the monotone cubic."""
    table = np.asarray(params[name], float)
    if len(table) == 1:
        return np.full_like(w, table[0])
    place = _ratio(w - c.w_min, c.span)
    given = np.asarray(params["table_w"], float)
    nodes = np.linspace(0, 1, len(table))
    if len(given):
        nodes = (given - params["w_min"]) / (params["w_max"] - params["w_min"])
    if params["table_curve"] == "linear":
        return np.interp(place, nodes, table)
    return PchipInterpolator(nodes, table)(np.clip(place, nodes[0], nodes[-1]))


def _table(w: Array, c: Common, params: Params, _cells: Cells) -> tuple[Array, Array]:
    up, down = (_table_curve(w, c, params, f"table_{way}") for way in ("up", "down"))
    return c.up * up, c.down * down


STEPS: dict[str, Callable[[Array, Common, Params, Cells], tuple[Array, Array]]] = {
    "ConstantStep": _constant,
    "LinearStep": _linear,
    "SoftBounds": _soft,
    "SoftBoundsReference": _soft_reference,
    "ExpStep": _exp,
    "PowStep": _pow,
    "PiecewiseStep": _piecewise,
    "TableStep": _table,
}


def bounds(model: str, params: Params, cells: Cells) -> tuple[Array, Array]:
    """Lower and upper bound of the weight of each cell."""
    c = common(params, cells)
    shift = reference(params, cells)[0] if model == "SoftBoundsReference" else 0.0
    return c.w_min - shift, c.w_max - shift


def mean_steps(model: str, w: Array, params: Params, cells: Cells) -> tuple[Array, Array]:
    """Magnitudes of the mean up and down step at weight w, before the bounds."""
    return STEPS[model](w, common(params, cells), params, cells)


def symmetric_point(model: str, params: Params, cells: Cells) -> Array:
    """Weight of each cell at which the mean steps up and down are equal; 0 if there is none.

    It is the first such weight on a grid from 0 (clipped to the bounds) to the bound towards which
    the cell drifts, or else to the other bound.
    """
    low, high = bounds(model, params, cells)
    start = np.clip(0.0, low, high)

    def drift(w: Array) -> Array:
        up, down = mean_steps(model, w, params, cells)
        return up - down

    first = drift(start)
    towards = np.where(first > 0, high, low)
    before, after, missing = start.copy(), start.copy(), first != 0
    for end in (towards, low + high - towards):
        shares = np.linspace(0, 1, 257)
        for share, following in itertools.pairwise(shares):
            crosses = missing & (drift(start + following * (end - start)) * first <= 0)
            before[crosses] = (start + share * (end - start))[crosses]
            after[crosses] = (start + following * (end - start))[crosses]
            missing &= ~crosses
    for _ in range(40):
        middle = 0.5 * (before + after)
        early = drift(middle) * first > 0
        before, after = np.where(early, middle, before), np.where(early, after, middle)
    return after


def pulse(
    model: str, w: Array, up: NDArray[np.bool_] | bool, params: Params, cells: Cells, xi: Array
) -> Array:
    """The weight after one pulse, `xi` being the standard normal of its cycle noise."""
    c = common(params, cells)
    step_up, step_down = mean_steps(model, w, params, cells)
    step = np.where(up, step_up, -step_down)
    scale = step
    if model == "ExpStep":
        scale = abs(step) + params["dw_min_std_add"] + params["dw_min_std_slope"] * abs(w)
    elif model == "TableStep":
        spread = [_table_curve(w, c, params, f"table_std_{way}") for way in ("up", "down")]
        if params["table_spread"] == "absolute":
            scale = np.where(up, c.up, c.down)
        scale = scale * np.where(up, *spread)
    elif not params.get("mult_noise", True):
        scale = np.where(up, c.up, -c.down)
    lower, upper = bounds(model, params, cells)
    return np.clip(w + step + params["dw_min_std"] * scale * xi, lower, upper)
