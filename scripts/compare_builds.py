#!/usr/bin/env python3
"""Compares the speed of two builds, whose benchmarks take turns in one run.

    compare_builds.py OLD NEW [--rounds N] [--limit R] [-- ARGUMENTS]

OLD and NEW are two builds' rpucuda_benchmarks, or rpucuda_cuda_benchmarks; ARGUMENTS go to both. A
case's ratio is that of its fastest runs over all rounds (on a GPU, of the smallest medians), which
work of others on the machine disturbs least. Exits with 1 if the geometric mean of all ratios is
above the limit (1.03).
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path


def times_of(program: Path, arguments: list[str]) -> dict[str, float]:
    """Times of one round in microseconds, by the name of the case."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        # The CUDA benchmark takes the path of its report as its only option.
        option = [] if program.name == "rpucuda_cuda_benchmarks" else ["--json"]
        subprocess.run(
            [program, *option, report, *arguments], check=True, stdout=subprocess.DEVNULL
        )
        results = json.loads(report.read_text())["results"]
    names = ("name", "operation", "device", "size", "batch", "isa", "threads")
    return {
        " ".join(str(row[key]) for key in names if key in row): row.get("fastest", row.get("value"))
        for row in results
        if row.get("unit", "us") == "us"
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=1.03)
    parser.add_argument("arguments", nargs="*")
    args = parser.parse_args()
    best: dict[Path, dict[str, float]] = {args.old: {}, args.new: {}}
    for _ in range(args.rounds):
        for program, fastest in best.items():
            for name, time in times_of(program.resolve(), args.arguments).items():
                fastest[name] = min(time, fastest.get(name, math.inf))
    ratios = []
    for name, old in best[args.old].items():
        if name not in best[args.new]:
            continue
        ratios.append(best[args.new][name] / old)
        mark = "  SLOWER" if ratios[-1] > args.limit else ""
        print(f"{name:60} {old:12.2f} {best[args.new][name]:12.2f} {ratios[-1]:7.3f}{mark}")
    if not ratios:
        print("the two builds have no case in common")
        return 1
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(f"{len(ratios)} cases, geometric mean of new/old {mean:.3f}, largest {max(ratios):.3f}")
    return 1 if mean > args.limit else 0


if __name__ == "__main__":
    sys.exit(main())
