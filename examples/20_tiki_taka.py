"""Tiki-Taka and its successors on cells whose symmetric points are spread.

Equal pulses up and down pull a cell to its symmetric point. Where that differs from cell to cell, a
linear regression with noisy labels fails under plain pulses. A slow array fed from a fast one is
pulled too, by the symmetric points of the fast array: Tiki-Taka v1 and v2 fail as well. Choppers
take most of that out, and the running reference of AGAD nearly all.
"""

import numpy as np
from matplotlib.figure import Figure

import pulsora as pl

STEPS, LR, NOISE, SEEDS = 4000, 0.05, 0.3, 3

# 1. Small arrays with ideal reads, so that the cells alone make the difference.
perfect = pl.IOParameters(is_perfect=True)
reads = {"forward": perfect, "backward": perfect}
chain = reads | {"transfer_forward": perfect, "units_in_mbatch": False}
plain = chain | {"fast_lr": 0.1, "scale_fast_lr": False}
chopped = chain | {"fast_lr": 0.1, "in_chop_prob": 0.05}
ALGORITHMS = {
    "plain pulses": lambda c: pl.SingleConfig(device=c, **reads),
    "Tiki-Taka v1": lambda c: pl.TikiTaka(c, transfer_every=2, **plain),
    "Tiki-Taka v2": lambda c: pl.TTv2(c, **plain),
    "c-TTv2": lambda c: pl.ChoppedTTv2(c, **chopped),
    "AGAD": lambda c: pl.AGAD(c, **chopped),
}


def error(config: pl.TileConfig, seed: int) -> float:
    """Return |W - W*|^2 / |W*|^2, a mean over the last 200 steps."""
    rng = np.random.default_rng(seed)
    target = rng.uniform(-0.4, 0.4, (10, 20)).astype(np.float32)
    tile = pl.Tile(10, 20, config, seed=seed)
    errors = []
    for _ in range(STEPS):
        x = rng.uniform(-1, 1, (1, 20)).astype(np.float32)
        labels = x @ target.T + NOISE * rng.standard_normal((1, 10)).astype(np.float32)
        tile.update(x, tile.forward(x) - labels, LR)
        errors.append(np.sum((tile.weights - target) ** 2) / np.sum(target**2))
    return float(np.mean(errors[-200:]))


# 2. Soft bounds, whose steps up and down differ by a spread from cell to cell.
spreads = [0.0, 0.1, 0.2, 0.3]
axes = (figure := Figure(figsize=(5.0, 3.2), layout="constrained")).subplots()
found = {}
for name, config in ALGORITHMS.items():
    cells = [pl.devices.SoftBounds(dw_min=0.01, up_down_dtod=spread) for spread in spreads]
    found[name] = [np.mean([error(config(c), seed) for seed in range(SEEDS)]) for c in cells]
    print(f"{name:14}" + "".join(f"{value:8.3f}" for value in found[name]))
    axes.plot(spreads, found[name], marker="o", label=name)
assert found["AGAD"][-1] < found["c-TTv2"][-1] < found["plain pulses"][-1]
axes.set(xlabel="spread of up_down", ylabel="relative error", yscale="log")
axes.legend(frameon=False)
figure.savefig("tiki_taka.png")
