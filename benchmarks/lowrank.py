"""The gated low-rank update beside PyTorch and the bandwidth of memory: one row for each case, checked before it is timed.

    python benchmarks/lowrank.py                     all cases on the first GPU, or on the CPU if there is none
    python benchmarks/lowrank.py --device cpu --cases small

Microseconds. "bound" is the time of the bytes that an update must move, at the bandwidth of copying 512 MiB (64 on a CPU) in
the same run; "share" is the bound over the update's time. On a GPU, times are medians of CUDA graphs over so many sets
of operands that they come from memory. The second table is the gradients of adapters, dA and dB from the same dC, in
single precision without tf32; the third the host's time of one small call.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

import torch

import pulsora as pl
from pulsora import lowrank
from pulsora.lowrank.measure import seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable

# Rows, inputs and outputs, N.
CASES = {
    "small": (128, 256, 8),
    "medium": (4096, 768, 8),
    "large": (16384, 768, 8),
    "wide": (4096, 1536, 16),
    "model": (4096, 4096, 16),
}
TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
# m, n, K of C = A B.
ADAPTERS = [
    (m, n, rank)
    for m, n in ((64, 1024), (64, 4096), (16384, 1024), (16384, 4096))
    for rank in (4, 16, 64)
]


def update_rows(names: list[str], device: str) -> bool:
    """Prints the table of updates; whether all results were right."""
    passed = True
    print(
        "| case | type | bound | copy of x | update | share | eager | 2 products | onto a base | base alone | all gradients | eager gradients | largest error |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    for name in names:
        rows, size, rank = CASES[name]
        for label, dtype in TYPES.items():
            found = lowrank.benchmark(rows, size, rank, dtype=dtype, device=device)
            micro = [
                found.bytes / found.copy_bandwidth,
                found.copy_seconds,
                found.seconds,
                found.eager_seconds,
                found.products_seconds,
                found.added_seconds,
                found.base_seconds,
                found.backward_seconds,
                found.eager_backward_seconds,
            ]
            text = [f"{1e6 * seconds:.2f}" for seconds in micro]
            text.insert(3, f"{100 * found.share:.0f} %")
            error = f"{max(found.validation.errors.values()):.1e}"
            error += "" if found.passed else " WRONG"
            shape = f"{name}: {rows} x {size}, N = {rank}"
            print(f"| {shape} | {label} | " + " | ".join([*text, error]) + " |", flush=True)
            passed = passed and found.passed
    return passed


def adapter_rows(device: str) -> bool:
    """Prints the table of gradients of adapters; whether all results were right."""
    passed = True
    print("\n| m, n, K | both | torch dA | torch dB | largest error |")
    print("|---|---|---|---|---|")
    for m, n, rank in ADAPTERS:
        dc, a, b = (torch.randn(*shape, device=device) for shape in ((m, n), (m, rank), (rank, n)))
        out = (torch.empty_like(a), torch.empty_like(b))
        lowrank.adapter_gradients(dc, a, b, out=out)
        exact = (dc.double() @ b.double().t(), a.double().t() @ dc.double())
        error = max(float((x - y).norm() / y.norm()) for x, y in zip(out, exact, strict=True))
        passed = passed and error < 1e-5
        calls: list[Callable[[], object]] = [
            lambda dc=dc, a=a, b=b, out=out: lowrank.adapter_gradients(dc, a, b, out=out),  # type: ignore[misc]
            lambda dc=dc, b=b, out=out: torch.mm(dc, b.t(), out=out[0]),  # type: ignore[misc]
            lambda dc=dc, a=a, out=out: torch.mm(a.t(), dc, out=out[1]),  # type: ignore[misc]
        ]
        text = " | ".join(f"{1e6 * seconds_of([call], device):.2f}" for call in calls)
        print(f"| {m}, {n}, {rank} | {text} | {error:.1e} |", flush=True)
    return passed


def host_time(device: str) -> None:
    """Prints what a call takes the host, with nothing of note to compute."""
    shapes = ((1, 64), (64, 8), (1, 8), (64, 8))
    x, v, codes, u = (torch.randn(*shape, device=device) for shape in shapes)
    leaves = [each.clone().requires_grad_() for each in (x, v, codes, u)]

    def forward() -> torch.Tensor:
        return lowrank.gated_low_rank(x, v, codes, u, u_layout="kn")

    def both() -> None:
        lowrank.gated_low_rank(*leaves, u_layout="kn").backward(x)

    def eager() -> torch.Tensor:
        return ((x @ v) * codes) @ u.t()

    print()
    for label, call in (
        ("forward", forward),
        ("forward and backward", both),
        ("eager forward", eager),
    ):
        for _ in range(200):
            call()
        start = time.perf_counter()
        for _ in range(1000):
            call()
        if device != "cpu":
            torch.cuda.synchronize(device)
        print(f"host time of one call, {label}: {1e3 * (time.perf_counter() - start):.2f} us")


def main() -> int:
    """Prints the tables; 1 if a result was wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda" if pl.cuda_device_count() else "cpu")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    if options.device != "cpu":
        print(torch.cuda.get_device_name(options.device), flush=True)
    passed = update_rows(options.cases, options.device)
    passed = adapter_rows(options.device) and passed
    host_time(options.device)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
