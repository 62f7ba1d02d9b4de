"""Times the gated low-rank update beside PyTorch and the bandwidth of memory.

Each case is one row, and is checked before it is timed.

    python benchmarks/lowrank.py                     all cases on the first GPU, or else on the CPU
    python benchmarks/lowrank.py --device cpu --cases small

Microseconds. "bound" is the time of the bytes that an update must move, at the bandwidth of copying
x or 512 MiB (64 on a CPU) in the same run, whichever is faster; "share" is the bound over the
update's time. On a GPU, times are medians of CUDA graphs over so many sets of operands that they
come from memory. The second table is a whole layer with its update, y = x weight^T + update: "one
operation" is `gated_low_rank_linear`, "two" the layer and `gated_low_rank` onto its result, and
each is followed by what it takes beyond torch's product for the layer alone. "bound" is the longer
of two times: its bytes at the bandwidth of copying 512 MiB (64), and its operations at the rate of
torch's square product of 8192 (1024 on a CPU), both measured in this run. The third is the
gradients of adapters, dA and dB from the same dC, in single precision without tf32, with the time
that their bytes take at the bandwidth of copying dC; the last lines are the host's time of one
small call.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import linear

import pulsora as pl
from pulsora import lowrank
from pulsora.lowrank.measure import seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Rows, inputs and outputs, N.
CASES = {
    "small": (128, 256, 8),
    "medium": (4096, 768, 8),
    "large": (16384, 768, 8),
    "wide": (4096, 1536, 16),
    "model": (4096, 4096, 16),
}
TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
# Rows, inputs, outputs, N of layers.
LAYERS = {
    "medium": (4096, 768, 768, 8),
    "large": (16384, 768, 768, 8),
    "wide": (4096, 1536, 1536, 16),
    "model": (4096, 4096, 3840, 8),
}
# m, n, K of C = A B.
TABLES = ("updates", "layers", "adapters", "host")
ADAPTERS = [
    (m, n, rank)
    for m, n in ((64, 1024), (64, 4096), (16384, 1024), (16384, 4096))
    for rank in (4, 16, 64)
]


def update_rows(names: list[str], device: str) -> bool:
    """Prints the table of updates; whether all results were right."""
    passed = True
    print(
        "| case | type | bound | copy of x | update | share | eager | 2 products | onto a base | "
        "base alone | torch.compile | all gradients | their bound | share | eager gradients | "
        "largest error |"
    )
    print("|" + "---|" * 16)
    for name in names:
        rows, size, rank = CASES[name]
        for label, dtype in TYPES.items():
            found = lowrank.benchmark(rows, size, rank, dtype=dtype, device=device)
            # x, dy and codes are read, dx and the gradient of codes written; v and u are small.
            moved = dtype.itemsize * (rows * (3 * size + 2 * rank) + 4 * rank * size)
            least = moved * found.share / found.bandwidth
            micro = [
                found.share * found.seconds,
                found.copy_seconds,
                found.seconds,
                found.eager_seconds,
                found.products_seconds,
                found.added_seconds,
                found.base_seconds,
                compiled_update(rows, size, rank, dtype, device),
                found.backward_seconds,
                least,
                found.eager_backward_seconds,
            ]
            text = ["-" if math.isnan(seconds) else f"{1e6 * seconds:.2f}" for seconds in micro]
            text.insert(3, f"{100 * found.share:.0f} %")
            text.insert(11, f"{100 * least / found.backward_seconds:.0f} %")
            error = f"{max(found.validation.errors.values()):.1e}"
            error += "" if found.passed else " WRONG"
            shape = f"{name}: {rows} x {size}, N = {rank}"
            print(f"| {shape} | {label} | " + " | ".join([*text, error]) + " |", flush=True)
            passed = passed and found.passed
    return passed


def compiled_update(rows: int, size: int, rank: int, dtype: torch.dtype, device: str) -> float:
    """Seconds of an update by torch.compile; NaN on a CPU, where it needs a compiler."""
    if device == "cpu":
        return math.nan
    count = max(2, min(20, 320_000_000 // (2 * dtype.itemsize * rows * size)))
    sets = [
        [
            (0.1 * torch.randn(*shape, device=device)).to(dtype)
            for shape in ((rows, size), (size, rank), (rows, rank), (size, rank))
        ]
        for _ in range(count)
    ]
    update = torch.compile(lambda x, v, c, u: ((x @ v) * c) @ u.t() * 2.0, dynamic=False)
    with torch.no_grad():
        return seconds_of(
            [lambda each=each: update(*each) for each in sets],  # type: ignore[misc]
            device,
        )


def greatest_rates(dtype: torch.dtype, device: str) -> tuple[float, float]:
    """Bytes per second of copying, and operations per second of torch's large square product."""
    mebibytes, side = (64, 1024) if device == "cpu" else (512, 8192)
    source = torch.empty(mebibytes << 20, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    a = torch.randn(side, side, device=device).to(dtype)
    copying = seconds_of([lambda: target.copy_(source)], device)
    return 2 * source.numel() / copying, 2 * side**3 / seconds_of([lambda: a @ a], device)


def layer_rows(names: list[str], device: str) -> bool:
    """Prints the table of layers with an update; whether all results were right."""
    passed = True
    ways = ["one operation", "two", "eager", "PEFT, no gates"] + ["torch.compile"] * (
        device != "cpu"
    )
    rates = {dtype: greatest_rates(dtype, device) for dtype in TYPES.values()}
    print(
        "\n| layer | type | bound | base alone | "
        + " | ".join(ways)
        + " | share of one operation | "
        "largest error |"
    )
    print("|---|---|---|---|" + "---|" * len(ways) + "---|---|")
    for name in names:
        m, k1, k2, rank = LAYERS[name]
        for label, dtype in TYPES.items():
            bytes_ = dtype.itemsize * m * (k1 + k2)
            count = 1 if device == "cpu" else max(2, min(20, 320_000_000 // bytes_))
            sets = [Layer(m, k1, k2, rank, dtype, device) for _ in range(count)]
            error, tolerance = sets[0].error(), {"float32": 1e-5, "float16": 1e-3}.get(label, 1e-2)
            passed = passed and error < tolerance
            calls = {
                "base alone": Layer.alone,
                "one operation": Layer.one,
                "two": Layer.two,
                "eager": Layer.eager,
            }
            if sets[0].peft is not None:
                calls["PEFT, no gates"] = Layer.by_peft
            if device != "cpu":
                compiled = torch.compile(Layer.formula, dynamic=False)
                calls["torch.compile"] = lambda each: compiled(  # type: ignore[misc] # noqa: B023
                    *each.operands
                )
            with torch.no_grad():
                times = {
                    way: seconds_of(
                        [lambda each=each, call=call: call(each) for each in sets], device
                    )  # type: ignore[misc]
                    for way, call in calls.items()
                }
            base = times["base alone"]
            bandwidth, operations = rates[dtype]
            moved = bytes_ + dtype.itemsize * (k1 * k2 + rank * (m + k1 + k2))
            least = max(moved / bandwidth, 2 * (m * k1 * k2 + m * rank * (k1 + k2)) / operations)
            share = f"{100 * least / times['one operation']:.0f} %"
            text = [
                f"{1e6 * times[way]:.2f} (+{100 * (times[way] / base - 1):.1f} %)"
                if way in times
                else "-"
                for way in ways
            ]
            shape = f"{name}: {m} x {k1} -> {k2}, N = {rank}"
            end = f"{error:.1e}" + ("" if error < tolerance else " WRONG")
            print(
                f"| {shape} | {label} | {1e6 * least:.2f} | {1e6 * base:.2f} | "
                + " | ".join([*text, share, end])
                + " |",
                flush=True,
            )
    return passed


class Layer:
    """A linear layer with a gated update, and the ways to compute it."""

    def __init__(
        self, m: int, k1: int, k2: int, rank: int, dtype: torch.dtype, device: str
    ) -> None:
        def normal(size: float, *shape: int) -> torch.Tensor:
            return (size * torch.randn(shape, device=device)).to(dtype)

        self.x, self.weight = normal(0.1, m, k1), normal(0.02, k2, k1)
        # v as an adapter has it: the transpose of a matrix [N, K1].
        self.v, self.u, self.codes = (
            normal(0.02, rank, k1).t(),
            normal(0.02, k2, rank),
            normal(0.5, m, rank),
        )
        self.operands = (self.x, self.weight, self.v, self.codes, self.u)
        self.peft = None
        if find_spec("peft"):
            from peft import LoraConfig, get_peft_model  # noqa: PLC0415 - if it is there

            plain = torch.nn.Sequential(torch.nn.Linear(k1, k2, bias=False)).to(device, dtype)
            config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=["0"])
            self.peft = get_peft_model(plain, config, autocast_adapter_dtype=False)

    @staticmethod
    def formula(
        x: torch.Tensor, weight: torch.Tensor, v: torch.Tensor, codes: torch.Tensor, u: torch.Tensor
    ) -> torch.Tensor:
        """The definition of the operation, in operations of torch."""
        return linear(x, weight) + ((x @ v) * codes) @ u.t() * 2.0

    def alone(self) -> torch.Tensor:
        """The layer without the update."""
        return linear(self.x, self.weight)

    def one(self) -> torch.Tensor:
        """One operation."""
        return lowrank.gated_low_rank_linear(
            self.x, self.weight, self.v, self.codes, self.u, u_layout="kn", scale=2.0
        )

    def two(self) -> torch.Tensor:
        """The layer, and the update added to its result."""
        return lowrank.gated_low_rank(
            self.x, self.v, self.codes, self.u, u_layout="kn", scale=2.0, base=self.alone()
        )

    def eager(self) -> torch.Tensor:
        """Operations of torch."""
        return self.formula(*self.operands)

    def by_peft(self) -> torch.Tensor:
        """PEFT's layer, which has no gates."""
        made: torch.Tensor = self.peft(self.x)  # type: ignore[misc]
        return made

    def error(self) -> float:
        """The error of one operation, relative to double precision in the norm."""
        exact = self.formula(*(each.double() for each in self.operands))
        return float((self.one().double() - exact).norm() / exact.norm())


def adapter_rows(device: str) -> bool:
    """Prints the table of gradients of adapters; whether all results were right."""
    passed = True
    print(
        "\n| m, n, K | bound | both | share | dA alone | dB alone | torch dA | torch dB | error |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for m, n, rank in ADAPTERS:
        dc, a, b = (torch.randn(*shape, device=device) for shape in ((m, n), (m, rank), (rank, n)))
        out = (torch.empty_like(a), torch.empty_like(b))
        lowrank.adapter_gradients(dc, a, b, out=out)
        exact = (dc.double() @ b.double().t(), a.double().t() @ dc.double())
        error = max(float((x - y).norm() / y.norm()) for x, y in zip(out, exact, strict=True))
        passed = passed and error < 1e-5
        calls: list[Callable[[], object]] = [
            lambda dc=dc, a=a, b=b, out=out: lowrank.adapter_gradients(  # type: ignore[misc]
                dc, a, b, out=out
            ),
            lambda dc=dc, a=a, b=b, out=out: lowrank.adapter_gradients(  # type: ignore[misc]
                dc, a, b, out=(out[0], None)
            ),
            lambda dc=dc, a=a, b=b, out=out: lowrank.adapter_gradients(  # type: ignore[misc]
                dc, a, b, out=(None, out[1])
            ),
            lambda dc=dc, b=b, out=out: torch.mm(dc, b.t(), out=out[0]),  # type: ignore[misc]
            lambda dc=dc, a=a, out=out: torch.mm(a.t(), dc, out=out[1]),  # type: ignore[misc]
        ]
        both, *apart = (seconds_of([call], device) for call in calls)
        target = torch.empty_like(dc)
        copied = seconds_of(
            [lambda dc=dc, target=target: target.copy_(dc)],  # type: ignore[misc]
            device,
        )
        least = copied * (m * n + 2 * rank * (m + n)) / (2 * m * n)
        text = " | ".join(f"{1e6 * seconds:.2f}" for seconds in apart)
        print(
            f"| {m}, {n}, {rank} | {1e6 * least:.2f} | {1e6 * both:.2f} | "
            f"{100 * least / both:.0f} % | {text} | {error:.1e} |",
            flush=True,
        )
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

    def eager_both() -> None:
        x, v, codes, u = leaves
        (((x @ v) * codes) @ u.t()).backward(dy)

    dy = x.clone()
    print()
    for label, call in (
        ("forward", forward),
        ("forward and backward", both),
        ("eager forward", eager),
        ("eager forward and backward", eager_both),
        *_other_calls(device, eager),
    ):
        for _ in range(200):
            call()
        start = time.perf_counter()
        for _ in range(1000):
            call()
        if device != "cpu":
            torch.cuda.synchronize(device)
        print(f"host time of one call, {label}: {1e3 * (time.perf_counter() - start):.2f} us")


def _other_calls(
    device: str, eager: Callable[[], object]
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Alternatives of users, if they are installed."""
    layer = Layer(1, 64, 64, 8, torch.float32, device)
    if layer.peft is not None:
        yield "forward of PEFT's layer, with its product", layer.by_peft
    if device != "cpu":
        yield "torch.compile of the forward", torch.compile(eager, dynamic=False)


def main() -> int:
    """Prints the tables; 1 if a result was wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda" if pl.cuda_device_count() else "cpu")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    if options.device != "cpu":
        print(torch.cuda.get_device_name(options.device), flush=True)
    passed = True
    if "updates" in options.tables:
        passed = update_rows(options.cases, options.device)
    if "layers" in options.tables:
        layers = [name for name in LAYERS if name in options.cases]
        passed = layer_rows(layers, options.device) and passed
    if "adapters" in options.tables:
        passed = adapter_rows(options.device) and passed
    if "host" in options.tables:
        host_time(options.device)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
