#!/usr/bin/env python3
"""Tells which layer loses accuracy at a transfer, and which cells are the reason.

    python benchmarks/transfer_layers.py [--visible ReRamSB] [--lr 0.2] [--ab-update sample]
        [--seeds 5] [--state FILE]

LeNet-5 of lrtt_study.py is trained as there, with seed 1 (`--state FILE`: read from there, or
trained and written). Then one layer at a time is transferred; seeds draw other noise of pulses.
Accuracies are those of exact products with the effective weights. A cell is out of reach if its
weight lies more than 0.04 of the range of W beyond its bound. A row is cut if its A ends at a bound
of its own. "Within" is a transfer whose A is found within all bounds by bounded(), by two merges.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from lrtt_study import network, train
from lrtt_study_grids import setting
from pulsora.nn import AnalogModule
from pulsora.tile import Tile
from pulsora.training import data as datasets
from pulsora.training.models import lenet
from pulsora.training.run import accuracy

DATA = Path("/usr/share/datasets/fashion-mnist")


def bounded(tile: Tile, weights: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The A within its bounds for which W within its own comes closest to weights - A b."""
    cells, fast = tile.describe_cells(), tile.describe_cells("fast_a")
    a = np.zeros((len(weights), len(b)))
    for _ in range(50):  # of descent in one column of A after the other; the squares are convex
        for k, row in enumerate(b):
            rest = weights - a @ b
            rest -= np.clip(rest, cells["w_min"], cells["w_max"])
            step = rest @ row / max(row @ row, 1e-12)
            a[:, k] = np.clip(a[:, k] + step, fast["w_min"][:, k], fast["w_max"][:, k])
    return a


def transferred(tile: Tile, seed: int, reach: float, *, within: bool) -> Tile:
    """A copy of the tile, after a transfer with the noise of a seed (0: its own)."""
    copied = Tile.from_state(tile.state())
    if seed:
        copied.reseed(1000 + seed)
    if not within:
        copied.adapter.transfer()
        return copied
    weights = copied.weights.astype(float)
    product = copied.adapter.a.astype(float) @ copied.adapter.b
    alpha = np.vdot(weights - copied.visible, product) / np.vdot(product, product)
    copied.adapter.merge(weights.astype(np.float32))
    written, b = copied.visible, copied.adapter.b.copy()
    held = (np.abs(weights - written) > reach).any(1, keepdims=True)
    a = (weights - written) @ np.linalg.pinv(alpha * b)
    a = np.where(held, bounded(copied, weights, alpha * b), a)
    copied.adapter.merge(np.where(held, weights - alpha * a @ b, written).astype(np.float32))
    copied.adapter.a, copied.adapter.b = a.astype(np.float32), b
    return copied


def main() -> None:
    """Prints a table with a row for each analog layer."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--visible", default="ReRamSB")
    parser.add_argument("--lr", type=float, default=0.2)
    parser.add_argument("--ab-update", default="sample", choices=["sample", "accumulated"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--state", type=Path, default=Path("transfer_layers.pt"))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    run = setting(network="lenet", visible=chosen.visible, default="adapter", lr=chosen.lr)
    run |= {} if chosen.ab_update == "sample" else {"ab_update": chosen.ab_update}
    if not chosen.state.is_file():
        train(run, DATA, "cpu", chosen.state)
    model, plain = network(run, "cpu"), lenet((28, 28), 10)
    model.load_state_dict(torch.load(chosen.state, weights_only=True))
    plain.load_state_dict(model.state_dict(), strict=False)
    data = datasets.load(str(DATA))
    test = torch.from_numpy(data.test_x), torch.from_numpy(data.test_y)
    parts = dict(plain.named_modules())
    layers = [pair for pair in model.named_modules() if isinstance(pair[1], AnalogModule)]
    tiles = {name: next(iter(layer.tiles)) for name, layer in layers}

    def percent(name: str, weights: np.ndarray) -> float:
        """The accuracy with these weights of a layer."""
        parts[name].weight.data = torch.from_numpy(weights.copy()).view_as(parts[name].weight)
        return 100.0 * accuracy(plain, *test)

    start = [percent(name, tile.weights) for name, tile in tiles.items()][-1]
    print(f"exact products: {start:.2f} %\n")
    print("| layer | out of reach, farthest | rows cut | error | lost | within |")
    print("|---" * 6 + "|")
    for name, tile in tiles.items():
        cells, fast = tile.describe_cells(), tile.describe_cells("fast_a")
        reach = 0.04 * (tile.config.visible.w_max - tile.config.visible.w_min)
        far = np.maximum(tile.weights - cells["w_max"], cells["w_min"] - tile.weights)
        columns, cut = ([], [], []), 0
        for seed in range(chosen.seeds):
            ways = [transferred(tile, seed, reach, within=within) for within in (False, True)]
            a = ways[0].adapter.a
            cut += int(((a >= fast["w_max"]) | (a <= fast["w_min"])).any(1).sum())
            columns[0].append(np.abs(ways[0].weights - tile.weights).max())
            for column, way in zip(columns[1:], ways, strict=True):
                column.append(start - percent(name, way.weights))
        percent(name, tile.weights)
        means = (f"{np.mean(x):.2f} ({min(x):.2f} ... {max(x):.2f})" for x in columns)
        counts = f"{(far > reach).sum()}, {far.max():.2f} | {cut / chosen.seeds:.1f}"
        print(f"| {name} {list(far.shape)} | {counts} | {' | '.join(means)} |", flush=True)


if __name__ == "__main__":
    main()
