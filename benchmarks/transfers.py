"""Times of updates of compounds beside a single array: a table in Markdown.

    python benchmarks/transfers.py [--size 4096] [--device cuda] [--threads N] [--out FILE]

A transfer is due after every sample. Before anything is timed on a GPU, a small tile of each kind
has to have the bits of the CPU after three mini-batches. Times are the least of 20 mini-batches of
64 samples on a CPU and means on a GPU; the pulse trains have one slot at most (small gradients).
Mixed precision makes d^T x and counts pulses, or follows a digital weight that has changed by a
quarter of a step.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

import pulsora as pl

if TYPE_CHECKING:
    from collections.abc import Callable

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
    "mixed precision": pl.MixedPrecisionConfig(visible=CELLS, digital_weight=False),
    "mixed precision, follow": pl.MixedPrecisionConfig(visible=CELLS),
}


def samples(size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns x and d [BATCH, size]."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((BATCH, size)).astype("f")
    return x, (0.002 * rng.standard_normal((BATCH, size))).astype("f")


def step_of(tile: pl.Tile, device: str, seed: int) -> Callable[[], None]:
    """Returns a function that makes an update of a tile, with its end of the mini-batch."""
    x, d = (torch.from_numpy(a).to(device) for a in samples(tile.x_size, seed))
    if not getattr(tile.config, "digital_weight", False):
        return lambda: tile.update(x, d, lr=0.1)
    change = np.random.default_rng(seed).standard_normal((tile.d_size, tile.x_size)).astype("f")
    master = torch.from_numpy(np.array(tile.weights)).to(device)
    step = torch.from_numpy(0.25 * CELLS.dw_min * change).to(device)
    values = [master, master + step]

    def follow() -> None:
        values.reverse()
        tile.follow(values[0])

    return follow


def state_after(config: pl.TileConfig, device: str) -> bytes:
    """Returns the state of a small tile after three mini-batches."""
    tile = pl.Tile(96, 96, config, seed=3, device=device)
    for seed in range(3):
        step_of(tile, device, seed)()
    return pl.state.dumps(tile.state())


def time_of(config: pl.TileConfig, size: int, device: str, threads: int | None) -> float:
    """Returns microseconds of an update with its end of the mini-batch."""
    tile = pl.Tile(size, size, config, seed=3, device=device, threads=threads)
    step = step_of(tile, device, 1)
    for _ in range(3):
        step()
    if device == "cpu":
        times = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
        return 1e6 * min(times)
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begun.record()
    for _ in range(REPEATS):
        step()
    ended.record()
    torch.cuda.synchronize()
    return 1000 * begun.elapsed_time(ended) / REPEATS


def main() -> None:
    """Compares and measures each kind."""
    parser = argparse.ArgumentParser(description="Times of updates of compounds.")
    parser.add_argument("--size", type=int, default=4096, help="inputs and outputs of the tile")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--threads", type=int, help="threads of the CPU")
    parser.add_argument("--out", type=Path, help="file for the table")
    options = parser.parse_args()
    rows = [f"| {options.size} x {options.size}, {BATCH} samples | us | beside a single array |"]
    rows.append("|---|---|---|")
    single = None
    for name, config in KINDS.items():
        is_gpu = options.device == "cuda"
        if is_gpu and state_after(config, "cpu") != state_after(config, "cuda"):
            raise SystemExit(f"{name}: the states of CPU and GPU differ")
        taken = time_of(config, options.size, options.device, options.threads)
        single = single or taken
        rows.append(f"| {name} | {taken:.0f} | {taken / single:.2f} |")
    where = torch.cuda.get_device_name() if options.device == "cuda" else _cpu(options.threads)
    table = f"{where}\n\n" + "\n".join(rows) + "\n"
    print(table)
    if options.out:
        options.out.write_text(table)


def _cpu(threads: int | None) -> str:
    names = [
        line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    count = pl.Tile(1, 1, threads=threads).threads
    return f"{names[0].partition(': ')[2] if names else 'CPU'}, {count} threads"


if __name__ == "__main__":
    main()
