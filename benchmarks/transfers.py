"""Times of updates of chains of arrays on a GPU, beside a single array: a table in Markdown.

    python benchmarks/transfers.py [--size 4096] [--out FILE]

A transfer is due after every sample. Before anything is timed, a small tile of each kind has to
have the bits of the CPU after three mini-batches. Times are means over 20 mini-batches of 64
samples, whose pulse trains have one slot at most (small gradients).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

import pulsora as pl

BATCH, REPEATS = 64, 20
CELLS = pl.devices.SoftBounds(dw_min=0.01)
PERFECT = pl.IOParameters(is_perfect=True)
ONE = {"units_in_mbatch": False, "transfer_every": 1}
KINDS = {
    "single array": pl.SingleConfig(device=CELLS),
    "Tiki-Taka v1": pl.TikiTaka(CELLS, transfer_forward=PERFECT, **ONE),
    "TTv2": pl.TTv2(CELLS, transfer_forward=PERFECT, **ONE),
    "c-TTv2": pl.ChoppedTTv2(CELLS, transfer_forward=PERFECT, fast_lr=0.01, **ONE),
    "AGAD": pl.AGAD(CELLS, transfer_forward=PERFECT, fast_lr=0.01, **ONE),
    "AGAD, auto_scale": pl.AGAD(CELLS, fast_lr=0.01, auto_scale=True, **ONE),
}


def samples(size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns x and d [BATCH, size]."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((BATCH, size)).astype("f")
    return x, (0.002 * rng.standard_normal((BATCH, size))).astype("f")


def state_after(config: pl.TileConfig, device: str) -> bytes:
    """Returns the state of a small tile after three mini-batches."""
    tile = pl.Tile(96, 96, config, seed=3, device=device)
    for seed in range(3):
        x, d = (torch.from_numpy(a).to(device) for a in samples(96, seed))
        tile.update(x, d, lr=0.1)
    return pl.state.dumps(tile.state())


def time_of(config: pl.TileConfig, size: int) -> float:
    """Returns microseconds of an update with its end of the mini-batch."""
    tile = pl.Tile(size, size, config, seed=3, device="cuda")
    x, d = (torch.from_numpy(a).cuda() for a in samples(size, 1))
    for _ in range(3):
        tile.update(x, d, lr=0.1)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(REPEATS):
        tile.update(x, d, lr=0.1)
    end.record()
    torch.cuda.synchronize()
    return 1000 * start.elapsed_time(end) / REPEATS


def main() -> None:
    """Compares and measures each kind."""
    parser = argparse.ArgumentParser(description="Times of updates of chains of arrays.")
    parser.add_argument("--size", type=int, default=4096, help="inputs and outputs of the tile")
    parser.add_argument("--out", type=Path, help="file for the table")
    options = parser.parse_args()
    rows = [f"| {options.size} x {options.size}, {BATCH} samples | us | beside a single array |"]
    rows.append("|---|---|---|")
    single = None
    for name, config in KINDS.items():
        if state_after(config, "cpu") != state_after(config, "cuda"):
            raise SystemExit(f"{name}: the states of CPU and GPU differ")
        taken = time_of(config, options.size)
        single = single or taken
        rows.append(f"| {name} | {taken:.0f} | {taken / single:.2f} |")
    table = f"{torch.cuda.get_device_name()}\n\n" + "\n".join(rows) + "\n"
    print(table)
    if options.out:
        options.out.write_text(table)


if __name__ == "__main__":
    main()
