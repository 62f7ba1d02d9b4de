"""Times counting for ledgers: `pl.ledger` in a training loop, and steps beside another build.

    OMP_NUM_THREADS=1 python benchmarks/ledger.py [--against FOLDER] [--rounds 60] [--out FILE]

Everything runs on one thread and is timed by the clock of the process, which other processes
disturb little. What is compared runs in turn, in an order that alternates; a figure is the median
of the ratios of neighbours, with the 95 % interval of that median.

1. A training loop (784-256-10, batch 32, epochs of 50 steps) with `pl.ledger(model)` after each
   epoch beside one without, and the time of a call.
2. With --against, the `python` folder of a build without counts: forward, backward, update and a
   whole step of a tile (256 x 256, batch 32), and a step of the network, in processes of both
   builds. A second process of this build is compared too: its ratio shows what the method resolves.
   Each start of the processes gives its share of the rounds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

import pulsora as pl
from pulsora.optim import AnalogSGD

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH, SIZE, EPOCH, STARTS = 32, 256, 50, 3
SOFT = pl.devices.SoftBounds()
CONFIGS: dict[str, Callable[[], pl.TileConfig]] = {
    "SoftBounds": lambda: pl.SingleConfig(device=SOFT),
    "LRTT": pl.LRTTConfig,
    "Tiki-Taka v2": lambda: pl.TTv2(SOFT),
}
PARTS = ("forward", "backward", "update", "step", "network")


def network_step(config: str) -> tuple[nn.Module, Callable[[], object]]:
    """The network and a step of it."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(784, SIZE), nn.Sigmoid(), nn.Linear(SIZE, 10))
    model = pl.convert_to_analog(network, CONFIGS[config](), seed=1)
    optimizer = AnalogSGD(model.parameters(), lr=0.01)
    x, target = torch.randn(BATCH, 784), torch.randint(10, (BATCH,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), target).backward()
        optimizer.step()

    return model, step


def part_of(config: str, part: str) -> Callable[[], object]:
    """A part of a step of a tile, or a step of the network."""
    if part == "network":
        return network_step(config)[1]
    rng = np.random.default_rng(0)
    x, d = (rng.uniform(-1, 1, (BATCH, SIZE)).astype(np.float32) for _ in range(2))
    tile = pl.Tile(SIZE, SIZE, CONFIGS[config](), seed=1, threads=1)
    parts: dict[str, Callable[[], object]] = {
        "forward": lambda: tile.forward(x),
        "backward": lambda: tile.backward(d),
        "update": lambda: tile.update(x, d, 0.01),
    }
    return parts.get(part, lambda: [run() for run in parts.values()])


def seconds(run: Callable[[], object], times: int) -> float:
    """The time of the process for one of some runs."""
    start = time.process_time()
    for _ in range(times):
        run()
    return (time.process_time() - start) / times


def times_for(run: Callable[[], object], aim: float = 0.03) -> int:
    """How many runs take about `aim` seconds, after some to warm up."""
    seconds(run, 3)
    return max(1, round(aim / seconds(run, 3)))


def ratio(ones: list[float], others: list[float]) -> str:
    """The median of ratios of neighbours, with the 95 % interval of the median, as percent."""
    found = sorted(one / other for one, other in zip(ones, others, strict=True))
    count = len(found)
    low = max(0, math.floor(count / 2 - 0.98 * math.sqrt(count)))
    middle, least, most = (
        100.0 * (value - 1.0)
        for value in (statistics.median(found), found[low], found[count - 1 - low])
    )
    return f"{middle:+.2f} ({least:+.2f} to {most:+.2f})"


def serve() -> None:
    """Answers lines of a parent: a case and how often, by the time of one run."""
    runs: dict[str, Callable[[], object]] = {}
    for line in sys.stdin:
        config, part, times = json.loads(line)
        if not times:  # how often: by a tile of its own, so that all processes do the same
            print(json.dumps(times_for(part_of(config, part))), flush=True)
            continue
        key = f"{config} {part}"
        if key not in runs:
            runs[key] = part_of(config, part)
        print(json.dumps(seconds(runs[key], times)), flush=True)


class Build:
    """A process that runs cases with one build."""

    def __init__(self, folder: str | None) -> None:
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        if folder:
            environment["PYTHONPATH"] = folder
        self._process = subprocess.Popen(  # noqa: S603 - this file
            [sys.executable, __file__, "--serve"], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def ask(self, config: str, part: str, times: int = 0) -> Any:  # noqa: ANN401
        """Seconds of one of `times` runs; without `times` the number that should be timed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([config, part, times]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()


def beside(folder: str, rounds: int) -> list[str]:
    """The table of steps of both builds."""
    found: dict[tuple[str, str], list[list[float]]] = {
        (config, part): [[], [], []] for config in CONFIGS for part in PARTS
    }
    for _ in range(STARTS):
        builds = [Build(None), Build(folder), Build(None)]
        for (config, part), columns in found.items():
            times = builds[0].ask(config, part)
            for number in range(rounds // STARTS + 1):
                for which in (0, 1, 2) if number % 2 else (2, 1, 0):
                    value = builds[which].ask(config, part, times)
                    if number:  # the first round warms up
                        columns[which].append(value)
        for build in builds:
            build.close()
    heads = ("other build, us", "this build, us", "this / other, %", "this / this again, %")
    lines = [f"| configuration | part | {' | '.join(heads)} |", "|---" * 6 + "|"]
    for (config, part), (ours, other, again) in found.items():
        numbers = " | ".join(f"{1e6 * statistics.median(one):.1f}" for one in (other, ours))
        lines.append(
            f"| {config} | {part} | {numbers} | {ratio(ours, other)} | {ratio(ours, again)} |"
        )
        print(lines[-1], flush=True)
    return lines


def with_ledgers(rounds: int) -> list[str]:
    """The table of training loops with a ledger after each epoch and without."""
    lines = [
        "| configuration | epoch, ms | with a ledger beside without, % | a call of pl.ledger, us |",
        "|---" * 4 + "|",
    ]
    for config in CONFIGS:
        model, step = network_step(config)

        def epoch(*, ledger: bool, model: Any = model, step: Any = step) -> float:  # noqa: ANN401
            start = time.process_time()
            for _ in range(EPOCH):
                step()
            if ledger:
                pl.ledger(model)
            return time.process_time() - start

        epoch(ledger=True)
        times: dict[bool, list[float]] = {True: [], False: []}
        for number in range(rounds):
            for ledger in (True, False) if number % 2 else (False, True):
                times[ledger].append(epoch(ledger=ledger))
        call = statistics.median(
            seconds(lambda model=model: pl.ledger(model), 20) for _ in range(15)
        )
        lines.append(
            f"| {config} | {1e3 * statistics.median(times[False]):.1f} "
            f"| {ratio(times[True], times[False])} | {1e6 * call:.0f} |"
        )
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--against", help="the python folder of a build without counts")
    parser.add_argument("--rounds", type=int, default=60, help="of each case, 6 or more")
    parser.add_argument("--out", type=Path, help="a file for the tables, besides the screen")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.serve:
        serve()
        return
    lines = with_ledgers(args.rounds)
    if args.against:
        lines += ["", *beside(args.against, args.rounds)]
    if args.out:
        args.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
