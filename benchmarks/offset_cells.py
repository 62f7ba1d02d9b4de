"""Algorithms on cells whose symmetric points are not 0: two experiments, with plots.

    python benchmarks/offset_cells.py correlation [--seeds N] [--out FOLDER]
    python benchmarks/offset_cells.py map [--seeds N] [--out FOLDER]

correlation: 20 noisy inputs, one of which is correlated with the label, and 1 output. All cells
have steps up that differ from those down by 30 %, so that pulses without information pull weights
away from 0. Drawn are the weight of the correlated input and the others, over the steps.

map: linear regression with noisy labels, 20 inputs and 10 outputs, over the number of states of a
cell and the spread of `up_down` from cell to cell. The error is |W - W*|^2 / |W*|^2, a mean over
the last tenth of the steps and over seeds.

All reads are exact, so that the cells alone make the difference. A table and the numbers are
printed, and FOLDER (docs/images by default) gets correlation.png or weight_error_map.png.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

import pulsora as pl

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

LR, NOISE = 0.05, 0.3
PERFECT = pl.IOParameters(is_perfect=True)
READS = {"forward": PERFECT, "backward": PERFECT}
CHAIN = READS | {"transfer_forward": PERFECT, "units_in_mbatch": False}
FAST = {"fast_lr": 0.1, "scale_fast_lr": False}
ALGORITHMS: dict[str, Callable[[pl.devices.Device], pl.TileConfig]] = {
    "plain pulses": lambda c: pl.SingleConfig(device=c, **READS),
    "TTv2": lambda c: pl.TTv2(c, **CHAIN, **FAST),
    "mixed precision": lambda c: pl.MixedPrecisionConfig(visible=c, **READS),
    "c-TTv2": lambda c: pl.ChoppedTTv2(c, fast_lr=0.1, in_chop_prob=0.05, **CHAIN),
    "AGAD": lambda c: pl.AGAD(c, fast_lr=0.1, in_chop_prob=0.05, **CHAIN),
}


def regress(
    config: pl.TileConfig, target: NDArray[np.float32], steps: int, seed: int
) -> NDArray[np.float32]:
    """Returns the weights before each step of a linear regression with noisy labels."""
    rng = np.random.default_rng(seed)
    tile = pl.Tile(*target.shape, config, seed=seed, threads=1)
    course = np.empty((steps, *target.shape), np.float32)
    for step in range(steps):
        course[step] = tile.weights
        x = rng.uniform(-1, 1, (1, target.shape[1])).astype(np.float32)
        noise = NOISE * rng.standard_normal((1, len(target))).astype(np.float32)
        tile.update(x, x @ (course[step] - target).T - noise, LR)
    return course


def error(course: NDArray[np.float32], target: NDArray[np.float32]) -> float:
    """Returns |W - W*|^2 / |W*|^2 over the last tenth of the steps."""
    last = course[-len(course) // 10 :]
    return float(np.mean(np.sum((last - target) ** 2, axis=(1, 2))) / np.sum(target**2))


def correlation(seeds: int, steps: int, folder: Path) -> dict[str, float]:
    """Draws the weights of one correlated input and 19 others; returns relative errors."""
    cells = pl.devices.SoftBounds(dw_min=0.01, up_down=0.3, up_down_dtod=0.01)
    target = np.zeros((1, 20), np.float32)
    target[0, 0] = 0.4
    figure = Figure(figsize=(11.0, 2.6), layout="constrained")
    panels = figure.subplots(1, len(ALGORITHMS), sharey=True)
    errors = {}
    for axes, (name, config) in zip(panels, ALGORITHMS.items(), strict=True):
        courses = [regress(config(cells), target, steps, seed) for seed in range(seeds)]
        errors[name] = float(np.mean([error(course, target) for course in courses]))
        shown = courses[0][:: max(1, steps // 400), 0]
        x = np.linspace(0, steps, len(shown))
        axes.plot(x, shown[:, 1:], color="0.7", linewidth=0.7)
        axes.plot(x, shown[:, 0], color="tab:blue")
        axes.axhline(0.4, color="k", linewidth=0.5, linestyle=":")
        axes.set(title=f"{name}: {errors[name]:.3f}", xlabel="step")
    panels[0].set_ylabel("weight")
    figure.savefig(folder / "correlation.png", dpi=130)
    print("| algorithm | relative error |\n|---|---|")
    for name, value in errors.items():
        print(f"| {name} | {value:.3f} |")
    return errors


STATES = (20, 50, 120, 300)
SPREADS = (0.0, 0.1, 0.2, 0.3)


def weight_error_map(seeds: int, steps: int, folder: Path) -> dict[str, NDArray[Any]]:
    """Draws the error over states and spreads; returns it for each algorithm."""
    maps = {}
    for name, config in ALGORITHMS.items():
        maps[name] = np.empty((len(STATES), len(SPREADS)))
        for i, states in enumerate(STATES):
            for j, spread in enumerate(SPREADS):
                cells = pl.devices.SoftBounds(
                    dw_min=1.6 / states, w_max=0.8, w_min=-0.8, up_down_dtod=spread,
                    w_max_dtod=0.1, w_min_dtod=0.1, dw_min_dtod=0.1,
                )  # fmt: skip
                found = []
                for seed in range(seeds):
                    target = np.random.default_rng(seed).uniform(-0.4, 0.4, (10, 20))
                    wanted = target.astype(np.float32)
                    found.append(error(regress(config(cells), wanted, steps, seed), wanted))
                maps[name][i, j] = np.mean(found)
    figure = Figure(figsize=(12.0, 2.8), layout="constrained")
    panels = figure.subplots(1, len(maps), sharey=True)
    for axes, (name, values) in zip(panels, maps.items(), strict=True):
        image = axes.imshow(np.log10(values), vmin=-2.0, vmax=0.3, origin="lower", aspect="auto")
        axes.set_xticks(range(len(SPREADS)), [f"{each:g}" for each in SPREADS])
        axes.set_yticks(range(len(STATES)), [str(each) for each in STATES])
        axes.set(title=name, xlabel="spread of up_down")
    panels[0].set_ylabel("states of a cell")
    figure.colorbar(image, ax=panels, label="log10 of the relative error")
    figure.savefig(folder / "weight_error_map.png", dpi=130)
    head = " | ".join(f"{spread:g}" for spread in SPREADS)
    print(f"| algorithm | states | spread {head} |\n|---|---|{'---|' * len(SPREADS)}")
    for name, values in maps.items():
        for states, row in zip(STATES, values, strict=True):
            print(f"| {name} | {states} | {' | '.join(f'{value:.3f}' for value in row)} |")
    return maps


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("correlation", "map"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs/images")
    args = parser.parse_args()
    start = time.perf_counter()
    made = correlation if args.what == "correlation" else weight_error_map
    made(args.seeds, args.steps, args.out)
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
