"""Every device preset on one regression task, with and without the adapter.

What one sees: on cells that can be trained, full-rank pulses come closer to the target than an
adapter, which moves W by rank 8 at a time. The two ReRam presets are too noisy to be trained: 1 means
that nothing was learned. There an adapter of better cells is the better choice, if it is never
transferred: it learns what fits into rank 8, while the noisy cells stay as they are.
"""

import numpy as np

import pulsora as pl

STEPS, BATCH, LR = 500, 16, 0.05


def error(config: pl.TileConfig) -> float:
    """Distance from a given matrix after training, relative to the start."""
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

# 2. One array of each device; an adapter of the same device, which is transferred every 1000
# samples; and one of fine, symmetric cells that is never transferred.
print(f"\n{'preset':16}{'pulsed SGD':>12}{'LRTT':>8}{'fine adapter alone':>20}")
for name in pl.presets.names():
    full = error(pl.presets.single(name, **io))
    adapter = error(pl.presets.lrtt(name, rank=8, transfer_every=1000, **io))
    fine = {"fast": pl.devices.Idealized(), "transfer_every": 0}
    alone = error(pl.presets.lrtt(name, rank=8, **fine, **io))
    print(f"{name:16}{full:>12.3f}{adapter:>8.3f}{alone:>20.3f}")
    assert (alone < full) == name.startswith("ReRam")
