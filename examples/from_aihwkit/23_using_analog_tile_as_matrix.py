"""AIHWKit's example 23: a tile as a matrix, without layers and without torch.

ECRAM takes the place of ReRamSB, whose write noise is as large as this matrix.
"""

import numpy as np

import pulsora as pl

rng = np.random.default_rng(0)
matrix = 0.1 * rng.standard_normal((50, 200)).astype(np.float32)
x = rng.standard_normal((10, 200)).astype(np.float32)
d = rng.standard_normal((10, 50)).astype(np.float32)

tile = pl.Tile(50, 200, pl.presets.EcRamSingle(), seed=1)
tile.weights = matrix  # as far as the cells' bounds admit it
stored = tile.weights
forward = tile.forward(x)  # x A^T, through DACs, noise and ADCs
backward = tile.backward(d)  # d A
tile.update(x, d, lr=0.01)  # A - 0.01 d^T x, by pulses


def error(found: np.ndarray, wanted: np.ndarray) -> float:
    """The relative error of a matrix."""
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


print(f"written weights: error {error(stored, matrix):.3f}")
print(f"forward read:    error {error(forward, x @ stored.T):.3f}")
print(f"backward read:   error {error(backward, d @ stored):.3f}")
change = tile.weights - stored
print(f"update:          error {error(change, -0.01 * d.T @ x):.3f}, {tile.statistics()}")
assert error(forward, x @ stored.T) < 0.3
assert np.corrcoef(change.ravel(), (-d.T @ x).ravel())[0, 1] > 0.5
