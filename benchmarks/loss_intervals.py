"""How many later losses the intervals of a loss forecast contain, on made curves of known kinds.

    python benchmarks/loss_intervals.py [--curves 300] [--level 0.9] [--seed 0]

Curves of n losses are continued by n more. "within" is the share of all later losses in the
intervals, "last quarter" that of the last n / 4. "told" is the share of forecasts that say that the
curve bends away from the law, and "turned" of those that say that it rises. The forecast was chosen
on the kinds in CHOSEN_ON; the kinds in HELD_OUT were made afterwards.
"""

from __future__ import annotations

import argparse
import zlib
from typing import TYPE_CHECKING

import numpy as np

from pulsora.forecast import forecast_loss

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Values = NDArray[np.float64]
    Kind = Callable[[np.random.Generator, Values, int], Values]


def correlated(rng: np.random.Generator, count: int, correlation: float) -> Values:
    """Normal errors of deviation 1, each correlated with the one before."""
    errors: Values = rng.standard_normal(count)
    for step in range(1, count):
        errors[step] *= np.sqrt(1.0 - correlation**2)
        errors[step] += correlation * errors[step - 1]
    return errors


def law(rng: np.random.Generator, t: Values) -> Values:
    """The logarithm of a power law."""
    logs: Values = np.log(2.0) - rng.uniform(0.1, 0.8) * np.log(t)
    return logs


def power(rng: np.random.Generator, t: Values, _count: int) -> Values:
    """A power law with independent normal errors."""
    return law(rng, t) + rng.uniform(0.01, 0.1) * rng.standard_normal(len(t))


def heavy_tails(rng: np.random.Generator, t: Values, _count: int) -> Values:
    """A power law with errors of heavy tails."""
    return law(rng, t) + 0.03 * rng.standard_t(3, len(t))


def spikes(rng: np.random.Generator, t: Values, _count: int) -> Values:
    """A power law with single losses that are half as large again."""
    noise = 0.03 * rng.standard_normal(len(t)) + 0.4 * (rng.random(len(t)) < 0.05)
    return law(rng, t) + noise


def power_above_floor(rng: np.random.Generator, t: Values, count: int) -> Values:
    """A power law above a floor."""
    floor = rng.uniform(0.1, 0.5) * count**-0.5
    logs = np.log(t ** -rng.uniform(0.3, 1.0) + floor)
    return logs + rng.uniform(0.01, 0.1) * rng.standard_normal(len(t))


def correlated_errors(rng: np.random.Generator, t: Values, _count: int) -> Values:
    """A power law with errors that are correlated over many steps."""
    return law(rng, t) + rng.uniform(0.01, 0.1) * correlated(rng, len(t), 0.95)


def exponential_above_floor(rng: np.random.Generator, t: Values, count: int) -> Values:
    """An exponential above a floor."""
    logs = np.log(rng.uniform(0.05, 0.5) + np.exp(-t / (count * rng.uniform(0.1, 1.0))))
    return logs + rng.uniform(0.01, 0.05) * rng.standard_normal(len(t))


def u_shape(rng: np.random.Generator, t: Values, count: int) -> Values:
    """A power law that falls and one that rises, with a minimum after 0.3 to 1 of the losses."""
    least, fall, rise = count * rng.uniform(0.3, 1.0), rng.uniform(0.3, 0.7), rng.uniform(0.5, 2.0)
    logs = np.log(t**-fall + fall / rise * least ** (-fall - rise) * t**rise)
    return logs + rng.uniform(0.01, 0.05) * rng.standard_normal(len(t))


def stretched_above_floor(rng: np.random.Generator, t: Values, count: int) -> Values:
    """A stretched exponential above a floor, with correlated errors."""
    decay = np.exp(-((t / (count * rng.uniform(0.05, 0.5))) ** rng.uniform(0.5, 1.5)))
    noise = rng.uniform(0.01, 0.05) * correlated(rng, len(t), 0.5)
    return np.log(rng.uniform(0.1, 0.4) + decay) + noise


def exponential(rng: np.random.Generator, t: Values, count: int) -> Values:
    """An exponential without a floor."""
    return -t / (count * rng.uniform(0.5, 2.0)) + 0.03 * rng.standard_normal(len(t))


def u_of_log_steps(rng: np.random.Generator, t: Values, count: int) -> Values:
    """A parabola in log step, with a minimum after 0.4 to 0.9 of the losses."""
    logs = rng.uniform(0.05, 0.3) * np.log(t / (count * rng.uniform(0.4, 0.9))) ** 2
    return logs + rng.uniform(0.01, 0.05) * rng.standard_t(5, len(t))


def overfitting(rng: np.random.Generator, t: Values, count: int) -> Values:
    """A fall to a floor that rises by a constant each step from the middle on."""
    floor = 0.3 + rng.uniform(0.1, 0.5) * np.maximum(t / count - rng.uniform(0.3, 0.8), 0.0)
    logs = np.log(floor + np.exp(-t / (0.15 * count)))
    return logs + rng.uniform(0.01, 0.05) * rng.standard_normal(len(t))


def logistic(rng: np.random.Generator, t: Values, count: int) -> Values:
    """A plateau, then a fall to another one."""
    falls = 1.0 / (1.0 + np.exp((t / count - rng.uniform(0.2, 1.0)) / 0.1))
    noise = rng.uniform(0.01, 0.05) * rng.standard_normal(len(t))
    return np.log(0.3 + 0.7 * falls) + noise


CHOSEN_ON: dict[str, Kind] = {
    "power law": power,
    "power law, heavy tails": heavy_tails,
    "power law, spikes": spikes,
    "power law above a floor": power_above_floor,
    "power law, errors correlated by 0.95": correlated_errors,
    "exponential above a floor": exponential_above_floor,
    "U shape": u_shape,
}
HELD_OUT: dict[str, Kind] = {
    "stretched exponential above a floor, errors correlated by 0.5": stretched_above_floor,
    "exponential": exponential,
    "U shape in log step, heavy tails": u_of_log_steps,
    "floor that rises": overfitting,
    "plateau, fall, plateau": logistic,
}


def measured(kind: Kind, name: str, count: int, curves: int, level: float, seed: int) -> str:
    """A row of the table."""
    results = []
    for number in range(curves):
        rng = np.random.default_rng([seed, number, zlib.crc32(name.encode())])
        losses = np.exp(kind(rng, np.arange(1.0, 2 * count + 1.0), count))
        made = forecast_loss(losses[:count], count, level=level)
        later = losses[count:]
        inside = (made.lower <= later) & (later <= made.upper)
        last = inside[-max(count // 4, 1) :].mean()
        results.append((inside.mean(), last, not made.follows_law, made.turned))
    shares = " | ".join(f"{100.0 * share:.0f} %" for share in np.mean(results, axis=0))
    return f"| {name} | {count} | {shares} |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--curves", type=int, default=300)
    parser.add_argument("--level", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--losses", type=int, nargs="+", default=[10, 20, 60, 200])
    given = parser.parse_args()
    print("| curve | losses | within | last quarter | told | turned |")
    print("|---|---|---|---|---|---|")
    for name, kind in {**CHOSEN_ON, **HELD_OUT}.items():
        for count in given.losses:
            print(measured(kind, name, count, given.curves, given.level, given.seed), flush=True)


if __name__ == "__main__":
    main()
