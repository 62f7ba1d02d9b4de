"""A tile with NumPy alone: read it, update it by pulses, look inside."""

import numpy as np

import pulsora as pl

# 1. What the tile is made of: an array of electrochemical cells under a low-rank adapter. Its weight alpha is larger than by
#    default, because the errors of this task are: explain() says so otherwise.
config = pl.LRTTConfig(rank=8, visible=pl.devices.EcRam(), lora_alpha=1.0, transfer_every=100)
tile = pl.Tile(32, 64, config, seed=7)

# 2. A task: make the tile equal to a given matrix of rank 4, by the error of its outputs.
rng = np.random.default_rng(0)
target = (rng.standard_normal((32, 4)) @ rng.standard_normal((4, 64))).astype(np.float32) / 20


def distance() -> float:
    """Of the tile's weights from the target, relative to the target."""
    return float(np.linalg.norm(tile.weights - target) / np.linalg.norm(target))


# 3. What one update will do, before it is done.
x = rng.standard_normal((16, 64)).astype(np.float32)
d = (tile.forward(x) - x @ target.T) / 16
print(tile.explain(x, d, lr=0.05))

# 4. Stochastic gradient descent: 300 mini-batches of 16 samples.
print(f"\ndistance before: {distance():.3f}")
start = distance()
for _ in range(300):
    x = rng.standard_normal((16, 64)).astype(np.float32)
    d = (tile.forward(x) - x @ target.T) / 16
    tile.update(x, d, lr=0.05)
print(f"distance after:  {distance():.3f}")
assert distance() < 0.5 * start

# 5. What it took.
statistics = tile.statistics()
print(f"pulses: {statistics['pulses']}, transfers: {statistics['transfers']}")
print(f"gain of the transfers: {statistics['transfer']['gain']:.3f}")
