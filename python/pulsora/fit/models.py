"""The device models as a fit sees them: mean steps as functions of weight, cell and free numbers.

A free number ("theta") has any sign and is of order 1. `t[name]` is an array that broadcasts
against the weights; `e[name]` is the deviation of a cell in one quantity, of mean 0 in the
population. Steps are magnitudes. The formulas come from src/rpucuda/devices;
tests/python/test_fit.py compares them with tiles.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pulsora.fit import nodes
from pulsora.fit.setting import bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from pulsora.fit.setting import Setting, Starts

    Array = NDArray[np.float64]
    Named = Mapping[str, Array]

__all__ = ["MODELS", "Model"]


@dataclass(frozen=True)
class Model:
    """A device model.

    Attributes:
        name: Name of the device model.
        step: (t, e, setting, weights, up) -> mean step, a magnitude.
        spread: The same arguments -> cycle noise relative to that step and to dw_min_std.
        effects: Quantities in which cells deviate, under names of their own, with the parameter of
            their spread.
        start: (starts, setting) -> free numbers to begin with, one or several sets.
        natural: (t, setting) -> parameters of the device; each may be a list.
        fixed: Parameters that are not fitted.
        bounds: (t, e, setting) -> lowest and highest weight.
        hard: Whether pulses drive weights into their bounds; otherwise steps vanish there.
        limits: The least and the largest value of parameters, beyond which no search goes.
        priors: Free numbers that are taken to be normal around 0, with their standard deviations.
    """

    name: str
    step: Callable[[Named, Named, Setting, Array, bool], Array]
    start: Callable[[Starts, Setting], list[dict[str, float]]]
    natural: Callable[[Named, Setting], dict[str, Any]]
    effects: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    spread: Callable[[Named, Setting, Array, bool], Array | float] = lambda *_: 1.0
    bounds: Callable[[Named, Named, Setting], tuple[Any, Any]] = bounds
    hard: bool = True
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    priors: Mapping[str, float] = field(default_factory=dict)


_GAINS = {"gain": "dw_min_dtod", "asymmetry": "up_down_dtod"}


def _pair(t: Named, s: Setting) -> tuple[Array, Array, Array]:
    """dw_min, and the factors of steps up and down."""
    up, down = s.step * np.exp(t["log_up"]), s.step * np.exp(t["log_down"])
    largest = np.maximum(up, down)
    return largest, up / largest, down / largest


def _gain(t: Named, e: Named, s: Setting, up: bool) -> Array:
    """The factor of a cell's step, as devices/pulsed_model.h samples it."""
    dw_min, of_up, of_down = _pair(t, s)
    return dw_min * (
        of_up + e["gain"] + e["asymmetry"] if up else of_down + e["gain"] - e["asymmetry"]
    )


def _natural_pair(t: Named, s: Setting) -> dict[str, Any]:
    dw_min, up, down = _pair(t, s)
    return {"dw_min": dw_min, "up_down": up - down}


def _at_zero(starts: Starts, s: Setting, w: float = 0.0) -> dict[str, float]:
    zero = np.array(w)
    return {
        "log_up": float(np.log(max(float(starts.up(zero)) / s.step, 0.05))),
        "log_down": float(np.log(max(float(starts.down(zero)) / s.step, 0.05))),
    }


def _slopes(starts: Starts, s: Setting) -> tuple[float, float]:
    """Slopes of both steps across the range, relative to the steps at 0, per weight."""
    found = []
    for curve in (starts.up, starts.down):
        ends = curve(np.array([s.low, 0.0, s.high]))
        found.append(float((ends[2] - ends[0]) / (s.high - s.low) / max(ends[1], 0.05 * s.step)))
    return found[0], found[1]


# ConstantStep


def _constant(t: Named, e: Named, s: Setting, w: Array, up: bool) -> Array:
    return _gain(t, e, s, up) + 0.0 * w


# LinearStep: gammas between -1 and 1, measured at the mean bounds


def _linear(t: Named, e: Named, s: Setting, w: Array, up: bool) -> Array:
    low, high = bounds(t, e, s)
    way, at = ("up", high) if up else ("down", low)
    shrunk: Array = 1.0 - (np.tanh(t[f"gamma_{way}"]) + e[f"shift_{way}"]) * w / at
    return _gain(t, e, s, up) * shrunk


def _linear_start(starts: Starts, s: Setting) -> list[dict[str, float]]:
    up, down = _slopes(starts, s)
    gammas = np.arctanh(np.clip([-up * s.high, -down * s.low], -0.95, 0.95))
    return [_at_zero(starts, s) | {"gamma_up": float(gammas[0]), "gamma_down": float(gammas[1])}]


def _linear_natural(t: Named, s: Setting) -> dict[str, Any]:
    gammas = {name: np.tanh(t[name]) for name in ("gamma_up", "gamma_down")}
    return _natural_pair(t, s) | gammas


# SoftBounds


def _soft_bounds(t: Named, e: Named, s: Setting) -> tuple[Array, Array]:
    low, high = bounds(t, e, s)
    return low * (1.0 + e["low"]), high * (1.0 + e["high"])


def _soft(t: Named, e: Named, s: Setting, w: Array, up: bool) -> Array:
    low, high = _soft_bounds(t, e, s)
    return _gain(t, e, s, up) * (1.0 - w / (high if up else low))


def _soft_start(starts: Starts, s: Setting) -> list[dict[str, float]]:
    up, down = _slopes(starts, s)
    high = np.clip(-1.0 / min(up, -1e-6) / s.high, 0.7, 3.0)
    low = np.clip(1.0 / max(down, 1e-6) / -s.low, 0.7, 3.0)
    return [_at_zero(starts, s) | {"log_high": float(np.log(high)), "log_low": float(np.log(low))}]


# ExpStep, with a = 1 and b = 0, so that its z is the weight over half the range. It is written as
# s0 (1 + k expm1(g w)/g), with the step s0 and its slope k at weight 0. A device has 1 - k/g > 0:
# either g > 0, and the step falls faster and faster with the weight ("log_rate" is log g), or g <
# -abs(k), and it falls less and less ("log_excess" is log(-g - abs(k))).


def _exp_parts(t: Named, s: Setting) -> dict[str, tuple[Array, Array, Array]]:
    """For each direction: the step without its exponential, the exponential's weight and rate."""
    parts = {}
    for way in ("up", "down"):
        slope = t[f"slope_{way}"]
        if f"log_rate_{way}" in t:
            rate = 1e-4 + np.exp(t[f"log_rate_{way}"])
        else:
            rate = -np.abs(slope) - np.exp(t[f"log_excess_{way}"])
        share = slope / rate
        left = np.maximum(1.0 - share, 1e-6)
        parts[way] = s.step * np.exp(t[f"log_{way}"]) * left, -share / left, rate
    return parts


def _exp(t: Named, e: Named, s: Setting, w: Array, up: bool) -> Array:
    parts = _exp_parts(t, s)
    step, _, rate = parts["up" if up else "down"]
    largest = np.maximum(parts["up"][0], parts["down"][0])
    gain = 1.0 + (e["gain"] + (e["asymmetry"] if up else -e["asymmetry"])) * largest / step
    at_zero = s.step * np.exp(t["log_up" if up else "log_down"])
    change = np.expm1(np.clip(rate * (w if up else -w), -30.0, 30.0)) / rate
    return at_zero * np.maximum(1.0 + t["slope_up" if up else "slope_down"] * change, 0.0) * gain


def _exp_start(starts: Starts, s: Setting) -> list[dict[str, float]]:
    up, down = _slopes(starts, s)
    slopes = {"slope_up": min(up, 0.0), "slope_down": min(-down, 0.0)}
    size = float(np.log(1.0 / max(s.high, -s.low)))
    # Rates begin small, where steps are nearly the straight lines of the slopes: searches from
    # larger rates were seen to get lost.
    return [
        _at_zero(starts, s) | slopes | {f"{name}_up": begin, f"{name}_down": begin}
        for name, begin in (("log_rate", size - 1.5), ("log_excess", size))
    ]


def _exp_natural(t: Named, s: Setting) -> dict[str, Any]:
    (up, a_up, rate_up), (down, a_down, rate_down) = _exp_parts(t, s).values()
    largest = np.maximum(up, down)
    low, high = bounds(t, {}, s)
    half = 0.5 * (high - low)
    return {
        "dw_min": largest, "up_down": (up - down) / largest, "a_up": a_up, "a_down": a_down,
        "gamma_up": rate_up * half, "gamma_down": rate_down * half,
    }  # fmt: skip


# PowStep


def _exponents(t: Named) -> tuple[Array, Array, Array]:
    up, down = np.exp(t["log_gamma_up"]), np.exp(t["log_gamma_down"])
    largest = np.maximum(up, down)
    return largest, up / largest, down / largest


def _pow(t: Named, e: Named, s: Setting, w: Array, up: bool) -> Array:
    low, high = bounds(t, e, s)
    largest, of_up, of_down = _exponents(t)
    distance = np.maximum((high - w if up else w - low) / (high - low), 1e-9)
    exponent = largest * ((of_up if up else of_down) + e["gamma"])
    power: Array = np.exp(np.abs(exponent) * np.log(distance))
    return _gain(t, e, s, up) * power


def _pow_start(starts: Starts, s: Setting) -> list[dict[str, float]]:
    up, down = _slopes(starts, s)
    high, low = s.high * 1.1, s.low * 1.1
    gammas = np.clip([-up * high, -down * low], 0.1, 4.0)
    shares = np.array([high, -low]) / (high - low)
    logs = _at_zero(starts, s)
    return [
        {
            "log_up": logs["log_up"] - float(gammas[0] * np.log(shares[0])),
            "log_down": logs["log_down"] - float(gammas[1] * np.log(shares[1])),
            "log_gamma_up": float(np.log(gammas[0])),
            "log_gamma_down": float(np.log(gammas[1])),
            "log_high": float(np.log(1.1)),
            "log_low": float(np.log(1.1)),
        }
    ]


def _pow_natural(t: Named, s: Setting) -> dict[str, Any]:
    gamma, up, down = _exponents(t)
    exponents = {"pow_gamma": gamma, "pow_up_down": up - down}
    return _natural_pair(t, s) | exponents


_GAMMAS = dict.fromkeys(("gamma_up", "gamma_down"), (-1.0, 1.0))
_TREND = (float(np.exp(-nodes.STEEPEST)), float(np.exp(nodes.STEEPEST)))

MODELS: dict[str, Model] = {
    model.name: model
    for model in (
        Model("ConstantStep", _constant, lambda a, s: [_at_zero(a, s)], _natural_pair, _GAINS),
        Model(
            "LinearStep", _linear, _linear_start, _linear_natural,
            {**_GAINS, "shift_up": "gamma_up_dtod", "shift_down": "gamma_down_dtod"},
            {"allow_increasing": True}, limits=_GAMMAS,
        ),
        Model(
            "SoftBounds", _soft, _soft_start, _natural_pair,
            {**_GAINS, "low": "w_min_dtod", "high": "w_max_dtod"}, {"mult_noise": True},
            bounds=_soft_bounds, hard=False,
        ),
        Model("ExpStep", _exp, _exp_start, _exp_natural, _GAINS, {"a": 1.0, "b": 0.0}),
        Model(
            "PowStep", _pow, _pow_start, _pow_natural, {**_GAINS, "gamma": "pow_gamma_dtod"},
            hard=False,
        ),
        Model(
            "PiecewiseStep", nodes.piecewise, lambda a, s: [nodes.nodes_start(a, s)],
            nodes.piecewise_natural, _GAINS,
            limits=dict.fromkeys(("piecewise_up", "piecewise_down"), (0.0, np.inf)),
        ),
        Model(
            "TableStep", nodes.table,
            lambda a, s: [nodes.nodes_start(a, s) | {"noise_up": 0.0, "noise_down": 0.0}],
            nodes.table_natural, _GAINS, {"table_curve": "cubic"}, spread=nodes.table_spread,
            limits={
                **dict.fromkeys(("table_up", "table_down"), (0.0, np.inf)),
                **dict.fromkeys(("table_std_up", "table_std_down"), _TREND),
            },
            priors={"noise_up": 0.5, "noise_down": 0.5},
        ),
    )
}  # fmt: skip
"""Models that can be fitted, by name, from simple to complex."""
