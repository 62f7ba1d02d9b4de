"""Times of updates of compounds beside a single array, and of merged noise: tables in Markdown.

    python benchmarks/transfers.py [--size 4096] [--device cuda] [--threads N] [--out FILE]
                                   [--only compounds | --only merged] [--aihwkit]

A transfer is due after every sample. Before anything is timed on a GPU, a small tile of each kind
has to have the bits of the CPU after three mini-batches. Times are the least of 20 mini-batches of
64 samples on a CPU and means on a GPU; the pulse trains have one slot at most (small gradients).
Mixed precision makes d^T x and counts pulses, or follows a digital weight that has changed by a
quarter of a step. With --aihwkit, where that package is installed, its tiles of the same devices
and periods stand beside them, on a CPU.

The table of merged noise has a single array of SoftBounds with noise_merge = "none" and "batch",
for gradients that leave most pulse trains empty (sparse) or fill them (dense). Updates descend and
ascend in turn, so that the weights stay. Aims are for an H200.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

import pulsora as pl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

AIMED_SIZE, BATCH, REPEATS = 4096, 64, 20
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

MERGES = ("none", "batch")
DRIVES = {"sparse": 0.01, "dense": 1.0}
"""Largest |d| of the samples for merged noise."""
MERGED_AIMS = {"sparse": 200, "dense": 900}
"""[us] For 4096 x 4096 on an H200."""


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


def swings(tile: pl.Tile, device: str, seed: int, largest: float) -> Callable[[], None]:
    """Returns a function that makes an update, whose sign changes from call to call."""
    rng = np.random.default_rng(seed)
    bound = tile.x_size**-0.5
    tile.weights = rng.uniform(-bound, bound, (tile.d_size, tile.x_size)).astype("f")
    x, d = (
        torch.from_numpy(rng.uniform(-most, most, (BATCH, size)).astype("f")).to(device)
        for most, size in ((1.0, tile.x_size), (largest, tile.d_size))
    )
    rates = [0.01, -0.01]

    def swing() -> None:
        rates.reverse()
        tile.update(x, d, lr=rates[0])

    return swing


def merged_config(merge: str) -> pl.SingleConfig:
    """The single array of the table of merged noise."""
    return pl.SingleConfig(device=pl.devices.SoftBounds(dw_min=0.001, noise_merge=merge))


def require_equal(
    name: str, config: pl.TileConfig, step: Callable[..., Callable[[], None]]
) -> None:
    """Ends the program if CPU and GPU differ in the state of a small tile after three updates."""
    states = []
    for device in ("cpu", "cuda"):
        tile = pl.Tile(96, 96, config, seed=3, device=device)
        for seed in range(3):
            step(tile, device, seed)()
        states.append(pl.state.dumps(tile.state()))
    if states[0] != states[1]:
        raise SystemExit(f"{name}: the states of CPU and GPU differ")


def time_of(step: Callable[[], None], device: str) -> float:
    """Returns microseconds of a step."""
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


def tile_of(config: pl.TileConfig, options: argparse.Namespace) -> pl.Tile:
    """A tile of the size to be timed."""
    size = options.size
    return pl.Tile(size, size, config, seed=3, device=options.device, threads=options.threads)


def compounds(options: argparse.Namespace) -> Iterator[str]:
    """Lines of the table of compounds."""
    head = f"| {options.size} x {options.size}, {BATCH} samples | us | beside a single array |"
    yield head + (" AIHWKit, us | AIHWKit / ours |" if options.aihwkit else "")
    yield "|---|---|---|" + ("---|---|" if options.aihwkit else "")
    single = None
    for name, config in KINDS.items():
        if options.device == "cuda":
            require_equal(name, config, step_of)
        taken = time_of(step_of(tile_of(config, options), options.device, 1), options.device)
        single = single or taken
        row = f"| {name} | {taken:.0f} | {taken / single:.2f} |"
        yield row + (aihwkit_cells(name, options.size, taken) if options.aihwkit else "")


def aihwkit_cells(name: str, size: int, taken: float) -> str:
    """The cells of a row for AIHWKit's tile."""
    from aihwkit_tiles import update_of_aihwkit_tile  # noqa: PLC0415 - may be absent

    x, d = (torch.from_numpy(a) for a in samples(size, 1))
    step = update_of_aihwkit_tile(name, x, d, 0.1)
    if step is None:
        return " - | - |"
    theirs = time_of(step, "cpu")
    return f" {theirs:.0f} | {theirs / taken:.1f} |"


def merged(options: argparse.Namespace) -> Iterator[str]:
    """Lines of the table of merged noise."""
    shape = f"{options.size} x {options.size}, {BATCH} samples"
    yield f"| {shape}, SoftBounds | us | merged, us | merged beside it | aim, us |"
    yield "|---|---|---|---|---|"
    for drive, largest in DRIVES.items():
        step = partial(swings, largest=largest)
        times = []
        for merge in MERGES:
            config = merged_config(merge)
            if options.device == "cuda":
                require_equal(f"{drive}, noise_merge = {merge!r}", config, step)
            times.append(time_of(step(tile_of(config, options), options.device, 1), options.device))
        has_aim = options.device == "cuda" and options.size == AIMED_SIZE
        aim = MERGED_AIMS[drive] if has_aim else "-"
        ratio = times[1] / times[0]
        yield f"| {drive} | {times[0]:.0f} | {times[1]:.0f} | {ratio:.2f} | {aim} |"


TABLES = {"compounds": compounds, "merged": merged}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--size", type=int, default=AIMED_SIZE, help="inputs and outputs")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--threads", type=int, help="threads of the CPU")
    parser.add_argument("--only", choices=TABLES, help="one of the tables")
    parser.add_argument("--aihwkit", action="store_true", help="AIHWKit's tiles beside ours")
    parser.add_argument("--out", type=Path, help="file for the tables")
    options = parser.parse_args()
    if options.aihwkit and options.device != "cpu":
        parser.error("--aihwkit compares tiles on a CPU; give --device cpu")
    lines = [torch.cuda.get_device_name() if options.device == "cuda" else _cpu(options.threads)]
    print(lines[0], flush=True)
    for name, table in TABLES.items():
        if options.only in {None, name}:
            for line in chain([""], table(options)):
                print(line, flush=True)
                lines.append(line)
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")


def _cpu(threads: int | None) -> str:
    names = [
        line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    count = pl.Tile(1, 1, threads=threads).threads
    return f"{names[0].partition(': ')[2] if names else 'CPU'}, {count} threads"


if __name__ == "__main__":
    main()
