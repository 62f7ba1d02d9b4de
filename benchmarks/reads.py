"""Times reads of one array on a GPU: products in floating point, in TF32 and in integers.

    python benchmarks/reads.py [--out FILE]

Each read is checked before it is timed: products of integers against the CPU, to the bit (of the
first rows), the others against the product in double precision. A column is a product of the read
(`weight_bits` 32, 32 with `gpu_products="tf32"`, 24, 16) or torch's product alone in single
precision, TF32, bfloat16 and int8. Times are microseconds of a call in a row of calls, the least of
several rows; beside them the time of the read's kernels, as torch's profiler sums them up.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

import pulsora as pl
from pulsora._internal.text_tables import aligned

if TYPE_CHECKING:
    from collections.abc import Callable

# rows, inputs, outputs, whether the array is read backward
CASES = (
    (64, 4096, 4096, False),
    (64, 4096, 4096, True),
    (512, 4096, 4096, False),
    (2048, 768, 3072, False),
    (2048, 768, 3072, True),
    (8192, 768, 3072, False),
    (2048, 4096, 4096, False),
    (2048, 4096, 4096, True),
    (2048, 512, 512, False),
    (64, 512, 512, False),
    (128, 784, 256, False),
    (1, 784, 256, False),
)
READS = {
    "float": (32, "single"),
    "TF32": (32, "tf32"),
    "24 bits": (24, "single"),
    "16 bits": (16, "single"),
}
COLUMNS = (*READS, "torch float32", "torch TF32", "torch bfloat16", "torch int8")
CALLS, SERIES = 30, 5
CHECKED = 8  # rows that a CPU reads as well


def spent(call: Callable[[], object]) -> tuple[float, float]:
    """Microseconds of a call in a row of calls, and of its kernels."""
    for _ in range(3):
        call()
    least = float("inf")
    for _ in range(SERIES):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(CALLS):
            call()
        torch.cuda.synchronize()
        least = min(least, (time.perf_counter() - begin) / CALLS)
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(CALLS):
            call()
        torch.cuda.synchronize()
    kernels = sum(each.self_device_time_total for each in seen.key_averages())
    return 1e6 * least, kernels / CALLS


def tile_of(outputs: int, inputs: int, bits: int, device: str) -> pl.Tile:
    """An array whose reads multiply weights of so many bits."""
    io = pl.IOParameters(weight_bits=bits)
    config = pl.SingleConfig(forward=io, backward=io, device=pl.devices.SoftBounds())
    tile = pl.Tile(outputs, inputs, config, seed=3, device=device)
    largest = 1.0 / inputs**0.5  # so that no read leaves the range of its ADC
    weights = np.random.default_rng(1).uniform(-largest, largest, (outputs, inputs))
    tile.weights = weights.astype(np.float32)
    return tile


def read_times(
    rows: int, inputs: int, outputs: int, *, backward: bool
) -> dict[str, tuple[float, float]]:
    """The times of every column for one case, checked first."""
    times = {}
    x = np.random.default_rng(2).uniform(-1, 1, (rows, outputs if backward else inputs))
    values = torch.from_numpy(x.astype(np.float32))
    on_gpu = values.cuda()
    for name, (bits, products) in READS.items():
        tile = tile_of(outputs, inputs, bits, "cuda:0")
        tile.gpu_products = products
        read = tile.backward if backward else tile.forward
        first = read(on_gpu)
        if bits < 32:
            twin = tile_of(outputs, inputs, bits, "cpu")
            expected = (twin.backward if backward else twin.forward)(values[:CHECKED])
            seen = torch.from_dlpack(first)[:CHECKED].cpu().numpy()
            if not np.array_equal(seen, np.array(expected)):
                message = f"{name}: CPU and GPU differ"
                raise RuntimeError(message)
        times[name] = spent(lambda read=read: read(on_gpu))
    weights = torch.rand(outputs, inputs, device="cuda") - 0.5
    matrix = weights if backward else weights.t()
    for name, allow in (("torch float32", False), ("torch TF32", True)):
        torch.backends.cuda.matmul.allow_tf32 = allow
        times[name] = spent(lambda: on_gpu @ matrix)
    torch.backends.cuda.matmul.allow_tf32 = False
    half, halves = on_gpu.bfloat16(), matrix.bfloat16()
    times["torch bfloat16"] = spent(lambda: half @ halves)
    if rows > 16:  # what torch's product of bytes takes
        levels, bytes_ = (each.mul(100).to(torch.int8) for each in (on_gpu, matrix))
        times["torch int8"] = spent(lambda: torch._int_mm(levels, bytes_))  # noqa: SLF001
    return times


def main() -> None:
    """Prints the table."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--out", type=Path, help="a file for the table, in Markdown")
    out = options.parse_args().out
    table = [("rows x inputs -> outputs", *COLUMNS)]
    for rows, inputs, outputs, backward in CASES:
        times = read_times(rows, inputs, outputs, backward=backward)
        name = f"{rows} x {inputs} -> {outputs}" + (", backward" if backward else "")
        cells = [times.get(each) for each in COLUMNS]
        table.append((name, *("-" if c is None else f"{c[0]:.1f} ({c[1]:.1f})" for c in cells)))
        print(table[-1], flush=True)
    text = (
        f"{torch.cuda.get_device_name()}, microseconds: a call (its kernels).\n\n{aligned(table)}"
    )
    print(text)
    if out:
        out.write_text(text + "\n")


if __name__ == "__main__":
    main()
