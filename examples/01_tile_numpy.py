"""A tile with NumPy alone: read it, update it by pulses, look inside."""

import numpy as np
from matplotlib.figure import Figure

import pulsora as pl

# 1. The tile: an array of electrochemical cells under a low-rank adapter. Its weight alpha is
#    larger than by default, because the errors of this task are larger; explain() would warn.
config = pl.LRTTConfig(rank=8, visible=pl.devices.EcRam(), lora_alpha=1.0, transfer_every=100)
tile = pl.Tile(32, 64, config, seed=7)

# 2. A task: make the tile equal to a given matrix of rank 4, by the error of its outputs.
rng = np.random.default_rng(0)
target = (rng.standard_normal((32, 4)) @ rng.standard_normal((4, 64))).astype(np.float32) / 20


def distance() -> float:
    """Return the distance of the weights from the target, relative to the target."""
    return float(np.linalg.norm(tile.weights - target) / np.linalg.norm(target))


# 3. What one update will do, before it is done.
x = rng.standard_normal((16, 64)).astype(np.float32)
d = (tile.forward(x) - x @ target.T) / 16
print(tile.explain(x, d, lr=0.05))

# 4. Stochastic gradient descent: 300 mini-batches of 16 samples.
print(f"\ndistance before: {distance():.3f}")
distances = [distance()]
for _ in range(300):
    x = rng.standard_normal((16, 64)).astype(np.float32)
    d = (tile.forward(x) - x @ target.T) / 16
    tile.update(x, d, lr=0.05)
    distances.append(distance())
print(f"distance after:  {distance():.3f}")
assert distances[-1] < 0.5 * distances[0]

# 5. Pulses and transfers.
statistics = tile.statistics()
print(f"pulses: {statistics['pulses']}, transfers: {statistics['transfers']}")
print(f"gain of the transfers: {statistics['transfer']['gain']:.3f}")

# 6. The distance over the mini-batches; it falls while A and B learn, and transfers keep it.
figure = Figure(figsize=(5.0, 3.0), layout="constrained")
axes = figure.subplots()
axes.plot(distances)
axes.set(xlabel="mini-batch", ylabel="distance from the target", ylim=(0.0, None))
figure.savefig("distance.png")
