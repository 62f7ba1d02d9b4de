"""One regression on pairs of cells: two arrays, an array with references, cells that only grow."""

import numpy as np

import pulsora as pl

STEPS, BATCH, LR = 600, 16, 0.05

# A cell whose step down is weaker than its step up. Noise of gradients pulls its weight upwards.
BOUNDS = {"w_max": 1.0, "w_min": -1.0, "w_max_dtod": 0.0, "w_min_dtod": 0.0}
ASYMMETRIC = pl.devices.SoftBounds(dw_min=0.01, up_down=0.5, **BOUNDS)
# Cells that only grow. The two of a pair have to be alike: noise moves both, by their own steps.
GROWING = pl.devices.ConstantStep(
    dw_min=0.002, dw_min_dtod=0.05, w_max=1.0, w_min=0.0, w_max_dtod=0.0
)
EXACT = pl.devices.ConstantStep(dw_min=1e-4, **BOUNDS)

perfect = pl.IOParameters(is_perfect=True)
io = {"forward": perfect, "backward": perfect}
configs = {
    "one array": pl.SingleConfig(device=ASYMMETRIC, **io),
    "two arrays": pl.VectorConfig(devices=[ASYMMETRIC, ASYMMETRIC], **io),
    "with references": pl.ReferenceConfig(
        visible=ASYMMETRIC, reference=EXACT, reference_start="symmetric_point", **io
    ),
    "pairs that grow": pl.OneSidedConfig(device=GROWING, **io),
}


def error(config: pl.TileConfig) -> tuple[float, pl.Tile]:
    """Return the distance from a given matrix after training on noisy labels, and the tile."""
    rng = np.random.default_rng(0)
    target = rng.uniform(-0.2, 0.2, (24, 32)).astype(np.float32)
    tile = pl.Tile(24, 32, config, seed=1)
    for _ in range(STEPS):
        x = rng.standard_normal((BATCH, 32)).astype(np.float32)
        labels = x @ target.T + 0.3 * rng.standard_normal((BATCH, 24)).astype(np.float32)
        tile.update(x, (tile.forward(x) - labels) / BATCH, LR)
    return float(np.linalg.norm(tile.weights - target) / np.linalg.norm(target)), tile


errors = {}
for name, config in configs.items():
    errors[name], tile = error(config)
    print(f"{name:16} error {errors[name]:.3f}, arrays {', '.join(tile.arrays)}")

# References at the symmetric points of the cells remove the pull; two arrays share their noise.
assert errors["with references"] < errors["one array"]
assert errors["two arrays"] < errors["one array"]
