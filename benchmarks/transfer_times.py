"""Times a transfer of LRTT by program and verify.

    python benchmarks/transfer_times.py [--device cuda] [--size 4096] [--threads N] [--out FILE]

A new tile of each preset gets one update by 64 rows, and then one transfer, with defaults. Times
are medians of transfers of new tiles, from an idle device to an idle device; pulses and reads are
those of a transfer, for each cell of W. A transfer is checked first: the weights of the tile, with
its adapter, stay where they are to twice the tolerance, but for one in a hundred. Aims: 3 ms on an
H200 with 4096 x 4096 cells, 30 ms on a CPU with 512 x 512.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import torch

import pulsora as pl
from pulsora._internal.text_tables import aligned

PRESETS = ("EcRam", "ReRamES", "ReRamSB")
ROWS = 64
MOST_MOVED = 0.01


def updated(preset: str, size: int, device: str, threads: int, seed: int) -> pl.Tile:
    """A new tile after an update by 64 rows."""
    visible = pl.presets.device(preset)
    tile = pl.Tile(
        size, size, pl.LRTTConfig(visible=visible), seed=seed, device=device, threads=threads
    )
    torch.manual_seed(seed)
    weights = torch.empty(size, size, device=device).uniform_(-0.3, 0.3)
    tile.weights = weights
    x, d = (torch.randn(ROWS, size, device=device) for _ in range(2))
    tile.update(x, 0.01 * d, 0.1)
    return tile


def weights_of(tile: pl.Tile) -> torch.Tensor:
    """A copy of the tile's weights."""
    weights = tile.weights
    return torch.tensor(weights) if isinstance(weights, np.ndarray) else weights.clone()


def check(tile: pl.Tile) -> None:
    """Transfers once, and compares the weight of the tile before and after."""
    before = weights_of(tile)
    tile.adapter.transfer()
    error = (weights_of(tile) - before).abs()
    moved = (error > 2.0 * tile.adapter.tolerance).float().mean().item()
    if moved > MOST_MOVED:
        raise SystemExit(f"{100 * moved:.2f} % of the weights moved by twice the tolerance or more")


def row(preset: str, size: int, device: str, threads: int, repeats: int) -> tuple[str, ...]:
    """A row of the table."""
    check(updated(preset, min(size, 512), device, threads, 1))
    times = []
    for seed in range(repeats + 1):
        tile = updated(preset, size, device, threads, seed + 1)
        wait(device)
        start = time.perf_counter()
        tile.adapter.transfer()
        wait(device)
        times.append(1e3 * (time.perf_counter() - start))
    last = tile.statistics()["last_transfer"]
    own = times[1:]  # the first has the first use of each kernel
    spread = f"{statistics.median(own):.2f} ({min(own):.2f} ... {max(own):.2f})"
    cells = size * size
    return preset, spread, f"{last['pulses'] / cells:.1f}", f"{last['reads'] / cells:.1f}"


def wait(device: str) -> None:
    """Waits until the device has nothing to do."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, help="a file for the table")
    args = parser.parse_args()
    head = (f"{args.size} x {args.size}", "ms of a transfer", "pulses a cell", "reads a cell")
    text = aligned(
        [head, *(row(p, args.size, args.device, args.threads, args.repeats) for p in PRESETS)]
    )
    print(text)
    if args.out:
        args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
