"""Every device preset on one regression task, with and without the adapter.

A target of full rank, to be met in 500 steps, is the worst case for an adapter, which moves W in
16 directions at a time: on cells that can be trained, full-rank pulses come closer. The two ReRam
presets are too noisy for such exact weights: 1 means that nothing was learned. There an adapter
that is never transferred comes closest: it learns the part that fits into rank 16, and the noisy
cells stay as they are. (A network needs no exact weights, and learns on ReRam cells too.)
"""

import numpy as np
from matplotlib.figure import Figure

import pulsora as pl

STEPS, BATCH, LR = 500, 16, 0.05


def error(config: pl.TileConfig) -> float:
    """Return the distance from a given matrix after training, relative to the start."""
    rng = np.random.default_rng(0)
    target = rng.uniform(-0.3, 0.3, (24, 32)).astype(np.float32)
    tile = pl.Tile(24, 32, config, seed=1)
    for _ in range(STEPS):
        x = rng.standard_normal((BATCH, 32)).astype(np.float32)
        d = (tile.forward(x) - x @ target.T) / BATCH
        tile.update(x, d, LR)
    return float(np.linalg.norm(tile.weights - target) / np.linalg.norm(target))


# 1. Ideal periphery, so that the devices alone make the difference.
perfect = pl.IOParameters(is_perfect=True)
io = {"forward": perfect, "backward": perfect}
print(f"{'floating point':16}{error(pl.IdealConfig(**io)):.3f}")

# 2. One array of each device; the same with an adapter that is transferred every 50 steps; and with
# one that is never transferred.
print(f"\n{'preset':16}{'pulsed SGD':>12}{'LRTT':>8}{'no transfer':>13}")
results = {}
for name in pl.presets.names():
    full = error(pl.presets.single(name, **io))
    adapter = error(pl.presets.lrtt(name, transfer_every=50, **io))
    alone = error(pl.presets.lrtt(name, transfer_every=0, **io))
    results[name] = (full, adapter, alone)
    print(f"{name:16}{full:>12.3f}{adapter:>8.3f}{alone:>13.3f}")
    assert (alone < full) == name.startswith("ReRam")

# 3. The same as a figure.
figure = Figure(figsize=(7.0, 3.2), layout="constrained")
axes = figure.subplots()
for column, label in enumerate(("pulsed SGD", "LRTT", "LRTT, no transfer")):
    places = np.arange(len(results)) + 0.27 * (column - 1)
    axes.bar(places, [row[column] for row in results.values()], width=0.25, label=label)
axes.set_xticks(range(len(results)), list(results), rotation=30)
axes.set(ylabel="relative error")
axes.legend(frameon=False)
figure.savefig("presets.png")
