"""Memory and time of training steps on the CPU, in builds of pulsora side by side.

    python benchmarks/scratch_memory.py BUILD [BUILD ...] [--layers 12] [--size 512] [--rows 2048]

BUILD is a folder with the package `pulsora`. For each configuration, and for digital torch, a
process of each build trains a chain of layers by plain steps; the builds take turns. Printed are
the growth of the resident set from the finished model to the end of the steps, in MiB, and the
least time of a step in each round, in ms, with the median over the rounds of the ratio to the first
build.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

CONFIGS = {
    "digital": "None",
    "SoftBounds": "pl.SingleConfig(device=pl.devices.SoftBounds())",
    "LRTT": "pl.LRTTConfig(rank=8)",
    "Tiki-Taka": "pl.TTv2()",
    "mixed precision": "pl.MixedPrecisionConfig()",
    "vector": "pl.VectorConfig(devices=[pl.devices.SoftBounds(), pl.devices.SoftBounds()])",
}

PROGRAM = """
import json, sys, time
import torch
import pulsora as pl
layers, size, rows, steps = map(int, sys.argv[1:5])
config = CONFIG
torch.manual_seed(1)
torch.set_num_threads(2)
def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024
model = []
for i in range(layers):
    model.append(torch.nn.Linear(size, size) if config is None else
                 pl.nn.AnalogLinear(size, size, config=config, seed=i, threads=2))
    model.append(torch.nn.Tanh())
model = torch.nn.Sequential(*model)
optimizer = (torch.optim.SGD(model.parameters(), lr=0.01) if config is None else
             pl.optim.AnalogSGD(model.parameters(), lr=0.01))
x = torch.rand(rows, size)
begin = resident()
times = []
for _ in range(steps):
    start = time.perf_counter()
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    times.append(1000 * (time.perf_counter() - start))
print(json.dumps({"mib": resident() - begin, "ms": min(times)}))
"""


def measured(build: Path, config: str, options: argparse.Namespace) -> dict[str, float]:
    """Returns the growth in MiB and the least time in ms of a process of that build."""
    sizes = [str(number) for number in (options.layers, options.size, options.rows, options.steps)]
    run = subprocess.run(  # noqa: S603 - the program above
        [sys.executable, "-c", PROGRAM.replace("CONFIG", CONFIGS[config]), *sizes],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(build), "OMP_WAIT_POLICY": "passive"},
    )
    numbers: dict[str, float] = json.loads(run.stdout)
    return numbers


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="Memory and time of training steps on the CPU.")
    parser.add_argument("builds", nargs="+", type=Path)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--configs", nargs="+", choices=CONFIGS, default=list(CONFIGS))
    options = parser.parse_args()
    for config in options.configs:
        runs: list[list[dict[str, float]]] = [[] for _ in options.builds]
        for _ in range(options.rounds):
            for build, found in zip(options.builds, runs, strict=True):
                found.append(measured(build, config, options))
        for build, found in zip(options.builds, runs, strict=True):
            ratio = statistics.median(
                own["ms"] / first["ms"] for own, first in zip(found, runs[0], strict=True)
            )
            mib = statistics.median(run["mib"] for run in found)
            times = " ".join(f"{run['ms']:.0f}" for run in found)
            print(f"{config:16} {build}: {mib:.0f} MiB, {times} ms, {ratio:.3f} of the first")


if __name__ == "__main__":
    main()
