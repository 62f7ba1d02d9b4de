"""AIHWKit's example 26: which algorithm finds correlated inputs on cells with offsets.

Five inputs and five errors are random; each error is correlated with its own input. Weights of
correlated pairs should move away from 0, and the others should stay there.
"""

import numpy as np
from matplotlib.figure import Figure

import pulsora as pl

STEPS, SIZE, ALPHA = 5000, 5, 0.4
cells = pl.devices.SoftBoundsReference(
    dw_min=0.1,
    dw_min_dtod=0.0,
    dw_min_std=0.0,
    w_max=1.0,
    w_min=-1.0,
    up_down_dtod=0.0,
    slope_up_dtod=0.0,
    slope_down_dtod=0.0,
    mult_noise=False,
    subtract_symmetry_point=True,
    enforce_consistency=True,
)
io = pl.IOParameters(inp_res=1 / 254, out_res=1 / 254, out_bound=10.0, out_noise=0.04)
reads = {"forward": io, "backward": io}
chain = reads | {"transfer_every": 1, "auto_granularity": 200, "auto_scale": True}
algorithms = {
    "SGD": pl.SingleConfig(device=cells, **reads),
    "mixed precision": pl.MixedPrecisionConfig(
        visible=cells, digital_weight=False, transfer_every=5, n_rows_per_transfer=1,
        granularity=0.1, n_x_bins=4, n_d_bins=4, **reads,
    ),
    "TTv2": pl.TTv2(cells, **reads),
    "c-TTv2": pl.ChoppedTTv2(cells, in_chop_random=False, **chain),
    "AGAD": pl.AGAD(cells, in_chop_random=False, **chain),
}  # fmt: skip
correlated = np.eye(SIZE, dtype=bool)
axes = (figure := Figure(figsize=(12, 2.6))).subplots(1, len(algorithms), sharey=True)
found = {}
for place, (name, config) in zip(axes, algorithms.items(), strict=True):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((STEPS, 1, SIZE)).astype(np.float32)
    d = ALPHA * x + (1 - ALPHA) * rng.standard_normal(x.shape).astype(np.float32)
    tile = pl.Tile(SIZE, SIZE, config, seed=1)
    trace = []
    for row, error in zip(x, d, strict=True):
        tile.update(row, error, lr=0.1)
        trace.append(tile.weights)
    late = -np.array(trace[STEPS // 2 :])
    gap = late[:, correlated].mean() - late[:, ~correlated].mean()
    found[name] = gap / late[:, ~correlated].std()
    print(f"{name:16} gap {gap:.3f}, {found[name]:.1f} standard deviations of the others")
    place.plot(np.array(trace)[:, correlated], "r", linewidth=0.4)
    place.plot(np.array(trace)[:, ~correlated], "b", linewidth=0.2)
    place.set(title=name, xlabel="updates")
figure.savefig("correlations.png")
assert found["AGAD"] > found["SGD"]
