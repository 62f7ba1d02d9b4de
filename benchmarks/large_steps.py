#!/usr/bin/env python3
"""Shows how the adapters of LeNet-5 run away at a large learning rate, and what a limit does.

    python benchmarks/large_steps.py [--lr 0.4] [--limits 0 1] [--preset EcRam] [--seed 1]
        [--data /usr/share/datasets/fashion-mnist]

The network, data and order of lrtt_study.py (batch 64). Printed after some mini-batches, for each
`ab_step_limit`: the loss, and of each layer on a tile the root mean square of A as a share of the
range of its cells, and the largest eigenvalue of B B^T in units of its first value.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from lrtt_study import BATCH, network
from lrtt_study_grids import setting
from pulsora.optim import AnalogSGD
from pulsora.training import data as datasets

if TYPE_CHECKING:
    import pulsora as pl

SHOWN = (5, 10, 15, 20, 40, 80)


def show(args: argparse.Namespace, limit: float) -> None:
    """One training of a few mini-batches, as lines of numbers."""
    torch.set_num_threads(1)
    data = datasets.load(str(args.data))
    x, y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
    chosen = setting(lr=args.lr, seed=args.seed, network="lenet", visible=args.preset)
    model = network(chosen | {"default": "adapter", "ab_step_limit": limit}, "cpu")
    tiles = [tile for layer in model if hasattr(layer, "tiles") for tile in layer.tiles]
    optimizer = AnalogSGD(model.parameters(), lr=args.lr)

    def largest(tile: pl.Tile) -> float:
        return float(np.linalg.norm(tile.adapter.b.astype(np.float64), 2) ** 2)

    first = [largest(tile) for tile in tiles]
    order = torch.from_numpy(datasets.shuffled(len(x), args.seed, 0))
    for step, rows in enumerate(order.split(BATCH)[: SHOWN[-1]], start=1):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
        if step in SHOWN:
            filled = [float(np.sqrt(np.mean(np.square(tile.adapter.a)))) for tile in tiles]
            grown = [largest(tile) / begin for tile, begin in zip(tiles, first, strict=True)]
            cells = " | ".join(f"{a:.2f}, {b:.1f}" for a, b in zip(filled, grown, strict=True))
            print(f"| {limit:g} | {step} | {loss.item():.2f} | {cells} |", flush=True)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--lr", type=float, default=0.4)
    parser.add_argument("--limits", type=float, nargs="+", default=[0.0, 1.0])
    parser.add_argument("--preset", default="EcRam")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    args = parser.parse_args()
    print("| limit | mini-batch | loss | conv 1 | conv 2 | linear 1 | linear 2 |")
    print("|---|---|---|---|---|---|---|")
    for limit in args.limits:
        show(args, limit)


if __name__ == "__main__":
    main()
