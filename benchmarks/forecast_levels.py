"""Finds the sizes at which the forecaster's kernels are level on CPU and GPU; needs a GPU.

    python benchmarks/forecast_levels.py [--device cuda:0] [--threads 2] [--out FILE]

For each kernel, sizes grow until the GPU is faster than the CPU. Arrays are where the kernel runs,
and a time is the median over groups of calls, the host's part included. A second table has the
times of a large rollout with its members in parts: on streams of one GPU, and on all GPUs.
"""

from __future__ import annotations

import argparse
import itertools
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from forecast_kernels import ensemble, seconds
from pulsora.forecast import encode, rollout, rollout_on, truncated_svd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Call = Callable[[], object]
    Case = tuple[str, int, Callable[[int, torch.device | None], Call]]


def placed(device: torch.device | None, *shape: int) -> torch.Tensor:
    """Random numbers on a device."""
    torch.manual_seed(0)
    return torch.randn(*shape).to(device or "cpu")


def encoding(rows: int, threads: int, device: torch.device | None) -> Call:
    """Encodes rows of 64 features."""
    x, w, b = (placed(device, *shape) for shape in ((rows, 64), (64, 128), (128,)))
    return lambda: encode(x, w, b, threads=threads)


def rolling(hidden: int, steps: int, rows: int, threads: int, device: torch.device | None) -> Call:
    """Rolls an ensemble of 5 members out."""
    made = ensemble(5, hidden)
    on = made.to(device) if device else made
    features = placed(device, rows, 64)
    return lambda: rollout(on, features, steps, threads=threads)


def decomposing(
    method: str, rows: int | None, cols: int, threads: int, device: torch.device | None
) -> Call:
    """Decomposes a matrix of these rows, or a square."""
    a = placed(device, rows or cols, cols)
    return lambda: truncated_svd(a, 8, method=method, threads=threads)


def cases() -> Iterator[Case]:
    """Kernels: name, size, and a function of threads and device (None: CPU) that makes the call."""
    for rows in (1, 4, 16, 32, 64, 128, 256, 512, 1024, 4096):
        yield "encode, rows x 64 to 128", rows, partial(encoding, rows)
    for hidden, steps in itertools.product((64, 256), (1, 10, 75)):
        for rows in (1, 2, 4, 8, 16, 32, 64):
            name = f"rollout, 5 members, {hidden} units, {steps} steps, rows"
            yield name, rows, partial(rolling, hidden, steps, rows)
    for side in (16, 32, 64, 128, 256, 512, 1024):
        yield (
            "truncated_svd, side of a square",
            side,
            partial(decomposing, "randomised", None, side),
        )
    for cols in (64, 256, 1024, 4096, 16384, 65536):
        yield "truncated_svd by gram, 32 x columns", cols, partial(decomposing, "gram", 32, cols)


def levels(device: torch.device, threads: int) -> list[str]:
    """The first size of each kernel at which the GPU is faster, as a table of Markdown."""
    lines = [
        f"| kernel, size | GPU faster from | GPU, us | CPU ({threads} threads), us |",
        "| --- | --- | --- | --- |",
    ]
    found: dict[str, str] = {}
    settled = set()
    for name, size, make in cases():
        if name in settled:
            continue
        on_gpu, on_cpu = seconds(make(threads, device), device), seconds(make(threads, None))
        level = f"- (not at {size})"
        if on_gpu < on_cpu:
            settled.add(name)
            level = str(size)
        found[name] = f"| {name} | {level} | {1e6 * on_gpu:.1f} | {1e6 * on_cpu:.1f} |"
    return lines + list(found.values())


def parts(device: torch.device) -> list[str]:
    """Times of rollouts with their members in parts."""
    lines = ["| members, rows, 256 units, 75 steps | parts | us |", "| --- | --- | --- |"]
    gpus = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    places = {"one launch": None, "2 streams": [str(device)] * 2, "5 streams": [str(device)] * 5}
    if len(gpus) > 1:
        places[f"{len(gpus)} GPUs"] = gpus
    for members, rows in ((5, 32), (5, 256), (20, 32), (20, 256)):
        made = ensemble(members, 256)
        features = torch.randn(rows, 64, device=device)
        for name, devices in places.items():
            call: Call = (
                partial(rollout, made.to(device), features, 75)
                if devices is None
                else partial(rollout_on, made.spread(devices), features, 75)
            )
            lines.append(f"| {members}, {rows} | {name} | {1e6 * seconds(call, device):.0f} |")
    return lines


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--threads", type=int, default=2, help="of the CPU (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="where the tables are written too")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("there is no GPU")
    device = torch.device(arguments.device)
    made = [torch.cuda.get_device_name(device), "", *levels(device, arguments.threads), ""]
    text = "\n".join([*made, *parts(device)]) + "\n"
    print(text)
    if arguments.out:
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
