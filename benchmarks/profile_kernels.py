"""Profiles kernels with Nsight Compute (ncu): what limits them, by the counters of the GPU.

    python benchmarks/profile_kernels.py {lowrank,reads,inference} ... [--out FILE]

Each call runs once before it is profiled. Low-rank operands come from memory, because the cache is
overwritten before the call; reads and programmed arrays find theirs in the cache. Columns:
microseconds; bytes that pass the memory of the card; shares of the greatest rate of memory and of
the second cache; share of the time in which tensor cores work; share of the cycles in which a
scheduler issues an instruction; share of the warps that could be resident; registers of a thread;
and the two reasons for which a warp waits most often, in cycles for each instruction. ncu slows
small kernels down by 1 to 3 us.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Call = tuple[str, Callable[[], object]]

COLUMNS = {
    "us": ("gpu__time_duration.sum", 1e-3, ".1f"),
    "MB": ("dram__bytes.sum", 1e-6, ".1f"),
    "memory": ("dram__throughput.avg.pct_of_peak_sustained_elapsed", 1, ".0f"),
    "cache": ("lts__throughput.avg.pct_of_peak_sustained_elapsed", 1, ".0f"),
    "tensor cores": ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed", 1, ".0f"),
    "issued": ("smsp__issue_active.avg.pct_of_peak_sustained_active", 1, ".0f"),
    "warps": ("sm__warps_active.avg.pct_of_peak_sustained_active", 1, ".0f"),
    "registers": ("launch__registers_per_thread", 1, ".0f"),
}
WAITS = "smsp__average_warps_issue_stalled_"
REASONS = (
    "long_scoreboard",
    "short_scoreboard",
    "barrier",
    "math_pipe_throttle",
    "mio_throttle",
    "lg_throttle",
    "wait",
    "no_instruction",
    "gmma",
    "branch_resolve",
    "dispatch_stall",
)
MARK = "thread Domain:Push/Pop_Range"  # how the column with the name of a call begins


def lowrank_calls() -> Iterator[Call]:
    """Layers with their update, updates, gradients, and gradients of adapters."""
    from lowrank import CASES, LAYERS, Layer  # noqa: PLC0415 - beside this file
    from pulsora import lowrank  # noqa: PLC0415

    def normal(size: float, *shape: int) -> torch.Tensor:
        return (size * torch.randn(shape, device="cuda")).half()

    for name, shape in LAYERS.items():
        layer = Layer(*shape, torch.float16, "cuda")
        yield f"layer, {name}", layer.one
        yield f"layer without update, {name}", layer.alone
    for name, (m, k, n) in CASES.items():
        x, v, c, u = normal(0.1, m, k), normal(0.02, k, n), normal(0.5, m, n), normal(0.02, n, k)

        def update(*operands: torch.Tensor) -> torch.Tensor:
            return lowrank.gated_low_rank(*operands, u_layout="nk", scale=2.0)

        yield f"update, {name}", lambda x=x, v=v, c=c, u=u: update(x, v, c, u)  # type: ignore[misc]
        leaves = [each.clone().requires_grad_() for each in (x, v, c, u)]
        with torch.enable_grad():
            y = update(*leaves)
        dy = normal(0.1, m, k)
        yield (
            f"gradients, {name}",
            lambda y=y, leaves=leaves, dy=dy: torch.autograd.grad(  # type: ignore[misc]
                y, leaves, dy, retain_graph=True
            ),
        )
    for m, n, rank in ((16384, 1024, 16), (16384, 4096, 16), (16384, 1024, 64), (64, 1024, 64)):
        dc, a, b = (torch.randn(*shape, device="cuda") for shape in ((m, n), (m, rank), (rank, n)))
        yield (
            f"dA and dB, {m} x {n}, {rank}",
            lambda dc=dc, a=a, b=b: lowrank.adapter_gradients(dc, a, b),  # type: ignore[misc]
        )


def reads_calls() -> Iterator[Call]:
    """Large reads with weights of 24 bits."""
    from reads import CASES, tile_of  # noqa: PLC0415 - beside this file

    for rows, inputs, outputs, backward in CASES[:6]:
        tile = tile_of(outputs, inputs, 24, "cuda:0")
        x = 2 * torch.rand(rows, outputs if backward else inputs, device="cuda") - 1
        read = tile.backward if backward else tile.forward
        way = ", backward" if backward else ""
        name = f"{rows} x {inputs} -> {outputs}{way}"
        yield name, lambda read=read, x=x: read(x)  # type: ignore[misc]


def inference_calls() -> Iterator[Call]:
    """A programmed array of 4096 x 4096: its realisations, reads and a hardware-aware step."""
    import pulsora as pl  # noqa: PLC0415 - here, as in the other groups
    from inference_speed import LARGE, ROWS, Place  # noqa: PLC0415 - beside this file

    place = Place(4096, "cuda:0")
    model = place.layer().eval()
    yield "program", lambda: pl.program(model, 3)
    yield "drift", lambda: pl.drift(model, 3600.0)
    for rows in (ROWS, LARGE):
        x = torch.randn(rows, place.size, device="cuda")
        yield f"read, {rows} samples", lambda x=x: model(x)  # type: ignore[misc]
    trained = place.layer(modifier="add_normal").train()

    def step() -> None:
        with torch.enable_grad():
            trained(x).square().mean().backward()

    yield f"hardware-aware step, {LARGE} samples", step


GROUPS = {"lowrank": lowrank_calls, "reads": reads_calls, "inference": inference_calls}


def run_calls(group: str) -> None:
    """Runs each call of a group twice, the second time for the profiler."""
    api = torch.cuda.cudart()
    # Kernels of a backward pass are then launched, and named, by this thread.
    with torch.no_grad(), torch.autograd.set_multithreading_enabled(False):
        for name, call in GROUPS[group]():
            call()
            if group == "lowrank":
                torch.zeros(1 << 26, device="cuda")
            torch.cuda.synchronize()
            api.cudaProfilerStart()
            torch.cuda.nvtx.range_push(name)
            call()
            torch.cuda.nvtx.range_pop()
            torch.cuda.synchronize()
            api.cudaProfilerStop()


def profiled(group: str) -> str:
    """The output of ncu for the calls of a group."""
    waits = [f"{WAITS}{reason}_per_issue_active.ratio" for reason in REASONS]
    metrics = ",".join([name for name, _, _ in COLUMNS.values()] + waits)
    options = "--clock-control none --cache-control none --profile-from-start off --nvtx --csv"
    command = ["ncu", *options.split(), "--page", "raw", "--metrics", metrics]
    command += [sys.executable, __file__, group, "--calls"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603
    if done.returncode != 0:
        text = (done.stdout + done.stderr)[-2000:]
        raise SystemExit(f"ncu ended with {done.returncode}:\n{text}")
    return done.stdout


def table(text: str) -> str:
    """The table of a profile: a row for each kernel."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = list(csv.reader(lines))
    records = [dict(zip(rows[0], row, strict=True)) for row in rows[2:]]  # row 1 has the units
    marks = next((name for name in rows[0] if name.startswith(MARK)), None)
    out = [
        "| call | kernel | " + " | ".join(COLUMNS) + " | waits for |",
        "|" + "---|" * (len(COLUMNS) + 3),
    ]
    for record in records:
        mark = record[marks].split(":") if marks else []
        call = mark[1] if len(mark) > 1 else ""
        numbers = [
            format(scale * float(record[metric].replace(",", "")), form)
            for metric, scale, form in COLUMNS.values()
        ]
        waits = sorted(
            (
                (float(value or 0), name[len(WAITS) :].removesuffix("_per_issue_active.ratio"))
                for name, value in record.items()
                if name.startswith(WAITS) and "selected" not in name
            ),
            reverse=True,
        )
        reasons = ", ".join(f"{name.replace('_', ' ')} {cycles:.1f}" for cycles, name in waits[:2])
        out.append(
            f"| {call} | {_short(record['Kernel Name'])} | "
            + " | ".join([*numbers, reasons])
            + " |"
        )
    return "\n".join(out)


def _short(name: str) -> str:
    """The name of a kernel without namespaces, template arguments and parameters."""
    plain = name.rsplit("/", maxsplit=1)[-1].removeprefix("void ").replace("<unnamed>::", "")
    return plain.split("(")[0].split("<")[0].split("::")[-1]


def main() -> None:
    """Prints a table for each group."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("groups", nargs="+", choices=GROUPS)
    parser.add_argument("--out", type=Path, help="a file for the tables, besides the screen")
    parser.add_argument("--calls", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.calls:
        run_calls(options.groups[0])
        return
    text = "\n\n".join(f"## {group}\n\n{table(profiled(group))}" for group in options.groups)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
