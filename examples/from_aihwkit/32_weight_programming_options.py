"""AIHWKit's example 32: the devices of a weight, and what programming errors leave of it."""

import numpy as np

import pulsora as pl

cells = {
    "pair": {},
    "two_sided_pair": {"cell": "two_sided_pair"},
    "two pairs": {"cell": "pairs", "significance": [1.0, 1.0]},
    "pairs of significance 1 and 4": {"cell": "pairs", "significance": [1.0, 4.0]},
    "single device": {"cell": "single"},
    "single device, column": {"cell": "single", "cell_reference": "column"},
}
weights = np.random.default_rng(0).standard_normal((128, 128))
errors = {}
for name, settings in cells.items():
    tile = pl.Tile(128, 128, pl.InferenceConfig(**settings), seed=1)
    tile.weights = weights
    found = []
    for time in (1.0, 86400.0, 3.15e7):
        tile.programming.program()
        tile.programming.drift(time)
        found.append(tile.programming.statistics()["weight_error"])
    errors[name] = found
    print(f"{name:30} {tile.programming.statistics()['devices']:6} devices, error", end="")
    print("".join(f" {error:.3f}" for error in found))
assert errors["two pairs"][0] < errors["pair"][0]
