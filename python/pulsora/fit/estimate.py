"""Maximum likelihood of one model, and the standard errors of its numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pulsora.fit.likelihood import filtered, read_variance
from pulsora.fit.models import MODELS
from pulsora.fit.setting import NODES, Setting, Starts, bounds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from pulsora.fit.models import Model
    from pulsora.fit.pulses import Pulses

    Array = NDArray[np.float64]

__all__ = ["Beginning", "Estimate", "beginning", "estimate"]

_DIFFERENCE = 3e-4  # step of difference quotients, for free numbers of order 1
_FEWEST = 3  # least pulses off the bounds for a polynomial through their steps
_FEWEST_CELLS = 3  # least for a spread between cells
_FLAT = 1e-9  # curvature relative to the largest, below which a direction counts as undetermined
_NO_CURVATURE = 1e-5  # largest that rounding makes
_VAGUE = 0.1  # relative error of a hard bound, from which on no cell seems to reach it
_LEAST_GAIN = 4.0  # of the log-likelihood by a hard bound; without it no cell seems to reach it
_COMMON = ("noise", "read", "gain", "asymmetry")  # numbers that all models have
_BOUNDS = {"w_max": "log_high", "w_min": "log_low"}


@dataclass(frozen=True)
class Beginning:
    """Estimates from the data before a fit."""

    setting: Setting
    starts: Starts
    common: dict[str, float]  # cycle noise relative to the step, read noise in steps, spreads
    reached: tuple[str, ...] = ()  # free numbers of hard bounds that cells reach


@dataclass(frozen=True)
class Estimate:
    """The best free numbers of a model.

    Attributes:
        model: The model.
        setting: Bounds and scale of the model.
        names: Names of the free numbers.
        values: [numbers].
        log_likelihood: Of all readings.
        curvature: Second derivatives of minus the log-likelihood, [numbers, numbers].
        converged: Whether the search ended at a maximum.
        given: Whether the caller gave the bounds.
    """

    model: Model
    setting: Setting
    names: tuple[str, ...]
    values: Array
    log_likelihood: float
    curvature: Array
    converged: bool
    given: bool = False

    def named(self, sets: Array | None = None) -> dict[str, Array]:
        """Free numbers by name, each [sets]; spreads that were not free are 0."""
        rows = self.values[None] if sets is None else sets
        return _named(self.model, self.names, rows)

    def natural(self) -> dict[str, tuple[Array, Array]]:
        """Parameters of the device and their standard errors (infinite where undetermined).

        Bounds that were given are no parameters. A hard bound that no cell reaches is at the
        extreme of the readings, and undetermined.
        """
        step = 1e-5
        rows = self.values + step * np.concatenate(
            [np.zeros((1, len(self.names))), np.eye(len(self.names)), -np.eye(len(self.names))]
        )
        count = len(self.names)
        root = self._root_of_covariance()
        found = {}
        for name, values in self._parameters(rows).items():
            plus, minus = values[..., 1 : count + 1], values[..., count + 1 :]
            slopes = (plus - minus) / (2.0 * step)
            with np.errstate(invalid="ignore"):
                parts = slopes @ root[0]
                unknown = np.abs(slopes @ root[1]).max(axis=-1, initial=0.0)
            size = np.sqrt((parts * parts).sum(axis=-1))
            scale = 1e-4 * np.abs(slopes).max(axis=-1, initial=0.0)
            found[name] = values[..., 0], np.where(unknown > scale, np.inf, size)
        for parameter, number in _BOUNDS.items():
            if number not in self.names:
                if self.given:
                    del found[parameter]
                else:
                    found[parameter] = found[parameter][0], np.array(np.inf)
        return found

    def _parameters(self, rows: Array) -> dict[str, Array]:
        t = self.named(rows)
        low, high = bounds(t, {}, self.setting)
        values = {k: np.asarray(v) for k, v in self.model.natural(t, self.setting).items()}
        ends = {"w_max": high, "w_min": low}
        values |= {name: np.broadcast_to(end, len(rows)) for name, end in ends.items()}
        # The likelihood does not depend on their signs. Taking away the sign that was found leaves
        # the slope 1 around 0.
        signs = dict(zip(self.names, np.where(self.values < 0.0, -1.0, 1.0), strict=True))
        values["dw_min_std"] = signs["noise"] * t["noise"]
        for effect, parameter in self.model.effects.items():
            if effect in self.names:
                values[parameter] = signs[effect] * t[effect]
        values["read noise"] = np.sqrt(read_variance(t["read"], self.setting))
        return values

    def _root_of_covariance(self) -> tuple[Array, Array]:
        """A root of the covariance of the free numbers, and the undetermined directions."""
        own = np.diag(self.curvature)
        sizes = np.sqrt(np.maximum(own, _NO_CURVATURE))
        curved = np.outer(own > _NO_CURVATURE, own > _NO_CURVATURE)
        values, vectors = np.linalg.eigh(
            np.where(curved, self.curvature / np.multiply.outer(sizes, sizes), 0.0)
        )
        known = values > _FLAT * values.max()
        directions = vectors / sizes[:, None]
        return directions[:, known] / np.sqrt(values[known]), vectors[:, ~known]


def beginning(pulses: Pulses, *, hard: bool) -> Beginning:
    """A scale of steps, polynomials through them, noise, and, for `hard` models, their bounds.

    Bounds that were not given are those of a fit of LinearStep, at the ends that its cells reach,
    and elsewhere the extremes of the readings.

    Raises:
        ValueError: if pulses move weights the wrong way, or not at all.
    """
    if pulses.given or not hard:
        return _beginning(pulses, pulses.bounds, ())
    ends = np.nanquantile(pulses.weights, (0.02, 0.98))
    within = (float(ends[0]), float(ends[1])) if ends[0] < 0.0 < ends[1] else pulses.bounds
    first = _beginning(pulses, within, tuple(_BOUNDS.values()))
    probe = estimate(MODELS["LinearStep"], pulses, first, most=30)
    extremes = dict(zip(("low", "high"), pulses.bounds, strict=True))
    for end, extreme in extremes.items():
        probe = _without(probe, f"log_{end}", _ending(probe.setting, end, extreme), pulses)
    low, high = (
        float(bound[0]) if f"log_{end}" in probe.names else extremes[end]
        for end, bound in zip(extremes, bounds(probe.named(), {}, probe.setting), strict=True)
    )
    reached = tuple(name for name in _BOUNDS.values() if name in probe.names)
    begin = _beginning(pulses, (low, high), reached)
    scale = probe.setting.step / begin.setting.step
    own = dict(zip(probe.names, np.abs(probe.values), strict=True))
    common = {name: float(own[name]) for name in _COMMON if name in own}
    return replace(begin, common=common | {"read": max(common["read"] * scale, 0.01)})


def _ending(setting: Setting, end: str, at: float) -> Setting:
    return replace(setting, low=at) if end == "low" else replace(setting, high=at)


def _without(one: Estimate, bound: str, setting: Setting, pulses: Pulses) -> Estimate:
    """The estimate, or one without a bound that hardly makes the readings more likely."""
    if bound not in one.names:
        return one
    start = dict(zip(one.names, one.values, strict=True))
    del start[bound]
    other = _search(one.model, pulses, setting, start, 6)  # one that is as good is near
    return one if one.log_likelihood > other.log_likelihood + _LEAST_GAIN else other


def _beginning(pulses: Pulses, limits: tuple[float, float], reached: tuple[str, ...]) -> Beginning:
    low, high = limits
    read = _read_noise(pulses)
    curves, left, means, seen = [], [], [], {}
    for up, sign in ((True, 1.0), (False, -1.0)):
        before, change = pulses.increments(up)
        name = "up" if up else "down"
        if len(before) == 0:
            raise ValueError(
                f"no two readings have {name} pulses between them; read the cells more often"
            )
        mean = sign * float(change.mean())
        if mean <= 0.0:
            raise ValueError(
                f"{name} pulses move readings by {sign * mean:g} on average, that is not {name}; "
                "check which direction is which, and that readings change with pulses"
            )
        after = before + change
        free = after < high - 2.0 * read if up else after > low + 2.0 * read
        if reached and free.sum() >= _FEWEST:  # bounds cut steps short
            before, change = before[free], change[free]
        order = min(2, len(np.unique(before)) - 1)
        curve = np.polynomial.Polynomial.fit(before, sign * change, order, domain=[low, high])
        curves.append(_held(curve, low, high, 0.05 * mean))
        left.append(sign * change - curve(before))
        means.append(mean)
        seen[name] = _seen(before, low, high)
    setting = Setting(low, high, float(np.mean(means)), seen)
    variance = float(np.mean([np.mean(part * part) for part in left])) / setting.step**2
    steps = read / setting.step
    noise = np.sqrt(max(variance - 2.0 * steps**2, 0.05 * variance, 1e-4))
    common = {"noise": float(noise), "read": max(steps, 0.01)}
    return Beginning(setting, Starts(*curves), common, reached)


def _seen(before: Array, low: float, high: float) -> tuple[int, ...]:
    """Nodes of a table that pulses begin near to."""
    places = np.clip(np.round((before - low) / (high - low) * (NODES - 1)), 0, NODES - 1)
    return tuple(np.unique(places.astype(int)).tolist())


def _held(curve: Any, low: float, high: float, least: float) -> Any:  # noqa: ANN401 - a polynomial
    return lambda w: np.maximum(curve(np.clip(w, low, high)), least)


def _read_noise(pulses: Pulses) -> float:
    """Read noise from successive changes: it correlates them negatively, unlike cycle noise."""
    steady = (pulses.direction[1:-1] != 0) & (pulses.direction[1:-1] == pulses.direction[2:])
    change = np.diff(pulses.weights, axis=0)
    first, second = change[:-1][steady], change[1:][steady]
    known = np.isfinite(first) & np.isfinite(second)
    if known.sum() < 3:
        return 0.0
    # Residuals of a local line in time, since steps change slowly.
    first, second = first[known], second[known]
    ups = (first + second) > 0.0
    total = sum(
        float(((first[s] - first[s].mean()) * (second[s] - second[s].mean())).sum())
        for s in (ups, ~ups)
        if s.any()
    )
    return float(np.sqrt(max(-total / len(first), 0.0)))


def estimate(
    model: Model, pulses: Pulses, begin: Beginning, start: Estimate | None = None, *, most: int = 60
) -> Estimate:
    """Maximum likelihood by Newton's method in a trust region.

    Args:
        model: The model to fit.
        pulses: The data.
        begin: First estimates; several beginnings are tried if the model has them.
        start: An estimate from similar data, to begin with instead.
        most: Iterations at most.
    """
    setting = begin.setting if start is None else start.setting
    if start is not None:
        sets = [dict(zip(start.names, start.values, strict=True))]
    else:
        more = dict.fromkeys(begin.reached, 0.0) if model.hard else {}
        sets = [one | more | begin.common for one in model.start(begin.starts, setting)]
    if len(pulses.cells) >= _FEWEST_CELLS:
        sets = [dict.fromkeys(model.effects, 0.1) | one for one in sets]
    else:
        sets = [{k: v for k, v in one.items() if k not in model.effects} for one in sets]
    found = [_search(model, pulses, setting, one, most) for one in sets]
    return _settled(max(found, key=lambda one: one.log_likelihood))


def _settled(one: Estimate) -> Estimate:
    """The estimate without the hard bounds that hardly matter, because no cell reaches them."""
    if not one.model.hard:
        return one
    errors = 1.0 / np.sqrt(np.maximum(np.diag(one.curvature), 1e-300))
    vague = [
        name in _BOUNDS.values() and error > _VAGUE
        for name, error in zip(one.names, errors, strict=True)
    ]
    if not any(vague):
        return one
    low, high = (float(bound[0]) for bound in bounds(one.named(), {}, one.setting))
    kept = ~np.array(vague)
    names = tuple(name for name, drop in zip(one.names, vague, strict=True) if not drop)
    values = one.values[kept]
    setting = replace(one.setting, low=low, high=high)
    for at, name in enumerate(names):
        if name in _BOUNDS.values():  # the setting has this bound now
            values[at] = 0.0
    return replace(
        one, setting=setting, names=names, values=values, curvature=one.curvature[kept][:, kept]
    )


def _named(model: Model, names: tuple[str, ...], rows: Array) -> dict[str, Array]:
    t = {name: np.zeros(len(rows)) for name in (*model.effects, *_BOUNDS.values())}
    return t | {name: rows[:, i] for i, name in enumerate(names)}


def _search(
    model: Model, pulses: Pulses, setting: Setting, start: Mapping[str, float], most: int
) -> Estimate:
    from scipy.optimize import minimize  # noqa: PLC0415 - optional

    names = tuple(start)

    def minus(rows: Array) -> Array:
        with np.errstate(all="ignore"):  # far from the maximum, values may overflow
            parts = filtered(model, setting, _named(model, names, rows), pulses).log_likelihood
        total: Array = _prior(model, names, rows) - parts.sum(axis=1)
        return np.nan_to_num(total, nan=1e15, posinf=1e15, neginf=1e15)

    derivatives = _Derivatives(minus, len(names))
    found = minimize(
        lambda x: float(minus(x[None])[0]),
        np.array(list(start.values())),
        method="trust-exact",
        jac=lambda x: derivatives.at(x)[0],
        hess=lambda x: derivatives.at(x)[1],
        options={
            "gtol": 0.03,
            "maxiter": most,
            "initial_trust_radius": 0.3,
            "max_trust_radius": 3.0,
        },
    )
    gradient, curvature = derivatives.at(found.x)
    # Expected gain of another step, the criterion where the data hardly determine a number.
    gain = 0.5 * float(gradient @ np.linalg.lstsq(curvature, gradient, rcond=1e-9)[0])
    converged = bool(found.success) or abs(gain) < 0.05
    most_likely = float(_prior(model, names, found.x[None])[0]) - float(found.fun)
    return Estimate(model, setting, names, found.x, most_likely, curvature, converged, pulses.given)


def _prior(model: Model, names: tuple[str, ...], rows: Array) -> Array:
    """Minus the logarithm of the prior, [sets], up to a constant."""
    widths = np.array([model.priors.get(name, np.inf) for name in names])
    total: Array = 0.5 * ((rows / widths) ** 2).sum(axis=1)
    return total


class _Derivatives:
    """First and second derivatives by difference quotients, all points around one place at once."""

    def __init__(self, function: Any, count: int) -> None:  # noqa: ANN401
        self.function = function
        self.count = count
        self.place: Array | None = None
        self.known: tuple[Array, Array] = (np.zeros(0), np.zeros((0, 0)))

    def at(self, x: Array) -> tuple[Array, Array]:
        if self.place is None or not np.array_equal(x, self.place):
            self.place, self.known = x.copy(), self._made(x)
        return self.known

    def _made(self, x: Array) -> tuple[Array, Array]:
        n, h = self.count, _DIFFERENCE
        units = h * np.eye(n)
        first, second = np.triu_indices(n, 1)
        points = x + np.concatenate([np.zeros((1, n)), units, -units, units[first] + units[second]])
        values = self.function(points)
        middle, plus, minus = values[0], values[1 : n + 1], values[n + 1 : 2 * n + 1]
        curvature = np.diag((plus - 2.0 * middle + minus) / h**2)
        mixed = (values[2 * n + 1 :] - plus[first] - plus[second] + middle) / h**2
        curvature[first, second] = curvature[second, first] = mixed
        return (plus - minus) / (2.0 * h), curvature
