"""Time and peak of memory of the conversion of a language model on the CPU, in builds side by side.

    python benchmarks/large_models.py --convert BUILD [BUILD ...] [--layers 12] [--rounds 3]

BUILD is a folder with the package `pulsora`. Processes of each build convert the matrices of a GPT,
768 wide (7.1 million weights a layer), with SoftBounds and LRTT, in tiles of 512 x 512 and one tile
a matrix; the builds take turns. The weights of cells and tiles of all builds are compared first.
Printed are the least time of a conversion, the processor time of that round, both in s, and the
growth of the resident set at its peak, in MiB, of conversions that return a copy and of those in
place.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

CONFIGS = {
    "SoftBounds": "pl.SingleConfig(device=pl.devices.SoftBounds())",
    "LRTT": "pl.LRTTConfig(rank=8)",
}

PROGRAM = """
import hashlib, inspect, json, re, sys, time, warnings
import torch
from torch import nn
import pulsora as pl
layers, size, inplace, hashed = map(int, sys.argv[1:5])
config = CONFIG
warnings.simplefilter("ignore")
def of_process(name):
    with open("/proc/self/status") as status:
        return int(re.search(name + r":\\s+(\\d+)", status.read())[1]) / 1024
def model(count, width):
    shapes = [(width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)]
    return nn.Sequential(*(nn.Linear(*each) for _ in range(count) for each in shapes))
if inplace and "inplace" not in inspect.signature(pl.convert_to_analog).parameters:
    print("null")
    sys.exit()
torch.manual_seed(1)
options = {"inplace": True} if inplace else {}
options |= {"max_input_size": size, "max_output_size": size, "seed": 1}
pl.convert_to_analog(model(1, 8), pl.SingleConfig())  # what is imported once
given = model(layers, 768)
for parameter in given.parameters():
    nn.init.normal_(parameter, std=0.02)
resident = of_process("VmRSS")
wall, processor = time.perf_counter(), time.process_time()
made = pl.convert_to_analog(given, config, **options)
seconds = time.perf_counter() - wall, time.process_time() - processor
peak = of_process("VmHWM") - resident
digest = hashlib.sha256()
for name, values in made.state_dict().items() if hashed else ():
    digest.update(name.encode() + values.numpy().tobytes())
print(json.dumps([*seconds, peak, digest.hexdigest()]))
"""


def run(
    build: Path, config: str, layers: int, size: int, *, inplace: bool, hashed: bool
) -> list[float | str] | None:
    """Converts a model in a process of a build."""
    done = subprocess.run(  # noqa: S603
        [
            sys.executable,
            "-c",
            PROGRAM.replace("CONFIG", CONFIGS[config]),
            *(str(int(each)) for each in (layers, size, inplace, hashed)),
        ],
        env={**os.environ, "PYTHONPATH": str(build)},
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[float | str] | None = json.loads(done.stdout)
    return found


def main() -> None:
    """Runs the benchmark and prints its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--convert", nargs="+", type=Path, required=True, metavar="BUILD")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    ways = [(build, inplace) for inplace in (False, True) for build in given.convert]
    for config in CONFIGS:
        for size in (512, 0):
            checked = [run(b, config, 1, size, inplace=i, hashed=True) for b, i in ways]
            if len({each[3] for each in checked if each is not None}) != 1:
                raise SystemExit(f"{config}, tiles of {size}: the builds make other tiles")
            rounds = [
                [run(b, config, given.layers, size, inplace=i, hashed=False) for b, i in ways]
                for _ in range(given.rounds)
            ]
            for number, (build, inplace) in enumerate(ways):
                times = [each[number] for each in rounds if each[number] is not None]
                if not times:
                    continue
                wall, processor, peak, _ = min(times)  # type: ignore[type-var]
                how = "in place" if inplace else "copy"
                tiles = f"tiles of {size}" if size else "one tile"
                print(
                    f"{config:10} {tiles:12} {how:8} {build}: {wall:6.2f} s, processor "
                    f"{processor:6.2f} s, peak {peak:5.0f} MiB",
                    flush=True,
                )


if __name__ == "__main__":
    main()
