"""AIHWKit's example 34: products of an array of CMO/HfOx resistive memory, over time."""

import numpy as np

import pulsora as pl

rng = np.random.default_rng(0)
weights = rng.uniform(-1, 1, (64, 64))
x = rng.uniform(-1, 1, (256, 64)).astype(np.float32)
exact = x @ weights.T
errors = {}
for acceptance in (0.2, 2.0):
    tile = pl.Tile(64, 64, pl.presets.ReRamCMO(acceptance, compensation="none"), seed=1)
    tile.weights = weights
    tile.programming.program()
    for time in (0.0, 1.0, 3600.0, 86400.0, 3.15e7):
        tile.programming.drift(time)
        error = np.std(tile.forward(x) - exact) / np.std(exact)
        errors[acceptance, time] = error
        print(f"acceptance {acceptance} %, {time:10.0f} s: error {error:.3f}")
assert errors[0.2, 0.0] < errors[2.0, 0.0] < errors[2.0, 3.15e7]
