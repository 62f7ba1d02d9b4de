#!/usr/bin/env python3
"""Times a training step of one analog layer by one process and by two, and what two have to gather.

    python benchmarks/distributed_step.py

Every process computes in one thread; the processes talk over gloo on this machine. Steps are
measured in time of the processor that a process takes, and messages in time that passes; of several
repetitions, the least counts. So what else runs on the machine matters little.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch._dynamo  # before processes are forked, which would each take their time for it
from torch import distributed as dist
from torch import nn

import pulsora as pl

if TYPE_CHECKING:
    from collections.abc import Callable


class Case(NamedTuple):
    """A layer, and the rows of a global batch."""

    rows: int
    inputs: int
    outputs: int


CASES = (
    Case(64, 256, 256),
    Case(64, 512, 256),
    Case(64, 512, 512),
    Case(512, 512, 512),
    Case(64, 2048, 2048),
    Case(512, 2048, 2048),
)


def least(clock: Callable[[], float], work: Callable[[], object], repetitions: int) -> float:
    """Milliseconds that the fastest of several calls took by a clock."""
    times = []
    for _ in range(repetitions):
        begin = clock()
        work()
        times.append(clock() - begin)
    return 1000.0 * min(times)


def measure(case: Case, updates: str, rank: int, size: int, repetitions: int) -> list[float]:
    """Milliseconds of a step, of its update, and of gathering x and d alone."""
    torch.manual_seed(1)
    config = pl.SingleConfig(device=pl.devices.SoftBounds())
    model = nn.Sequential(
        nn.Identity(),
        pl.nn.AnalogLinear(
            case.inputs,
            case.outputs,
            config=config,
            max_input_size=256,
            max_output_size=512,
            threads=1,
        ),
    )
    pl.distributed.prepare(model, updates=updates)
    optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.01)
    x = torch.randn(case.rows, case.inputs)
    d = torch.randn(case.rows, case.outputs) / case.rows / 100.0
    mine = slice(rank * case.rows // size, (rank + 1) * case.rows // size)
    x_mine, d_mine = x[mine].requires_grad_(), size * d[mine]
    updates = []

    def step() -> None:
        optimizer.zero_grad()
        model(x_mine).backward(d_mine)
        updates.append(least(time.process_time, optimizer.step, 1))

    whole = least(time.process_time, step, repetitions)
    if size == 1:
        return [whole, min(updates), 0.0]
    message = torch.cat([x_mine.detach().reshape(-1), d_mine.reshape(-1)])
    everyone = list(message.new_empty(size, len(message)))
    gather = least(time.perf_counter, lambda: dist.all_gather(everyone, message), 3 * repetitions)
    return [whole, min(updates), gather]


def worker(rank: int, size: int, store: str, repetitions: int) -> None:
    """Measures all cases with the other processes; rank 0 prints them."""
    torch.set_num_threads(1)
    if size > 1:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    for case in CASES:
        for updates in ("all", "shared") if size > 1 else ("all",):
            step, update, gather = measure(case, updates, rank, size, repetitions)
            if rank == 0:
                mega = 4e-6 * case.rows * (case.inputs + case.outputs)
                print(
                    f"| {size} | {updates} | {case.rows} | {case.inputs} x {case.outputs} | "
                    f"{mega:.2f} | {step:.1f} | {update:.1f} | {gather:.2f} |",
                    flush=True,
                )
    if size > 1:
        dist.destroy_process_group()


def main() -> None:
    """Starts the processes of each size, one after another."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--repetitions", type=int, default=10, help="steps of each case (default 10)"
    )
    options = parser.parse_args()
    print(
        "| processes | updates | rows | layer | MB | step, ms of a core | of it the update "
        "| gathering alone, ms |"
    )
    print("|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for size in (1, 2):
            children = []
            for rank in range(size):
                child = os.fork()
                if child == 0:
                    code = 1
                    try:
                        worker(rank, size, f"{folder}/store", options.repetitions)
                        code = 0
                    finally:
                        os._exit(code)
                children.append(child)
            for child in children:
                if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
                    raise SystemExit(1)


if __name__ == "__main__":
    main()
