"""AIHWKit's example 33: a search for the way to write weights that errs least over a year.

A weight has two pairs of devices. The search chooses what the second pair is worth, and which share
of the largest weights is clipped. Needs SciPy.
"""

import numpy as np
from scipy.optimize import minimize

import pulsora as pl

TIMES = (1.0, 60.0, 3600.0, 86400.0, 2.6e6, 3.15e7)
rng = np.random.default_rng(0)
weights = 0.02 * rng.standard_t(df=4, size=(96, 96)).astype(np.float32)  # a few are large
x = rng.standard_normal((64, 96)).astype(np.float32)


def error(significance: float, clipped: float, number: int = 0) -> float:
    """Root mean square error of the weights at all times, relative to the weights."""
    config = pl.InferenceConfig(
        cell="pairs",
        significance=[1.0, significance],
        scaling_quantile=1.0 - clipped,
        compensation_read="exact",
    )
    tile = pl.Tile(96, 96, config, seed=1)
    tile.weights = weights
    tile.programming.program(number=number)
    errors = []
    for time in TIMES:
        tile.programming.drift(time)
        errors.append(tile.programming.statistics()["weight_error"])
    return float(np.sqrt(np.mean(np.square(errors))))


# Equal numbers have equal noise, so that the search sees a smooth function.
search = minimize(
    lambda p: error(float(np.exp(p[0])), float(np.exp(p[1]))),
    x0=[0.0, np.log(1e-3)],
    method="Nelder-Mead",
    options={"maxfev": 40, "initial_simplex": [[0.0, -7.0], [0.7, -7.0], [0.0, -4.0]]},
)
significance, clipped = np.exp(search.x)
print(f"second pair worth {significance:.2f} of the first, {clipped:.2%} of the weights clipped")
rows = {"equal pairs, nothing clipped": (1.0, 0.0), "found": (significance, clipped)}
errors = {}
for name, settings in rows.items():
    errors[name] = [error(*settings, number=number) for number in range(1, 6)]
    print(f"{name:30} error {np.mean(errors[name]):.4f} +- {np.std(errors[name]):.4f}")
assert max(errors["found"]) < min(errors["equal pairs, nothing clipped"])
