"""The table of rpucuda_cuda_benchmarks: times beside bounds, aims and the times of others.

    python benchmarks/cuda_table.py benchmark.json > table.md

Bounds are the least bytes and operations that pulsora/bench/least_work.py counts, over what an H200
was measured to do.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from pulsora.bench import least_work
from pulsora.bench.cases import Case, work_of
from pulsora.bench.machine import Ceilings, Work

# Copying, and lane instructions of any pipe.
H200 = Ceilings(bytes=4.3e12, operations=29e12)

# Microseconds (MB for memory) on an H200: AIHWKit 1.1's kernels, and for adapters the LRTT device
# published beside it.
PEERS = {
    "update SoftBounds 4096 sparse": 1461,
    "update SoftBounds 4096 dense": 26650,
    "update ConstantStep 4096 sparse": 713,
    "update ConstantStep 4096 dense": 8160,
    "update ConstantStep 4096 dense, noise_merge=batch": 8160,
    "update SoftBounds 512 sparse": 53,
    "update SoftBounds 512 dense": 438,
    "forward 512": 40,
    "forward 4096": 101,
    "backward 512": 22,
    "backward 4096": 89,
    "step ConstantStep 512 sparse": 106,
    "step ConstantStep 4096 sparse": 1004,
    "step LRTT K=8 512 transfer every 10": 258,
    "step LRTT K=8 1024 transfer every 10": 298,
    "step LRTT K=8 4096 transfer every 10": 979,
    "memory LRTT K=16 4096": 1411,  # 1346 MiB
    "construction LRTT K=16 4096": 10000,  # ms; on the host
}


def case_of(name: str, batch: int) -> Case | None:
    """The case of `pulsora bench` that a name stands for; None if it has no bound."""
    if "lossless" in name or "beyond" in name:
        return None
    update = re.match(r"update (\w+) (\d+) (sparse|dense)$", name)
    if update:
        return Case(f"update {update[3]}", update[1], int(update[2]), batch)
    match = re.match(r"(forward|backward|step) (?:LRTT K=(\d+) |ConstantStep )?(\d+)", name)
    if not match:
        return None
    rank = int(match[2] or 0)
    every = 10 if "transfer every" in name else 0
    model = "SoftBounds" if rank else "ConstantStep"
    return Case(match[1], model, int(match[3]), batch, rank, every)


def bound_of(name: str, batch: int) -> tuple[float, str] | None:
    """Least microseconds and what sets them."""
    merged = re.match(r"update (\w+) (\d+) (\w+), noise_merge=batch", name)
    if merged and merged[1] == "ConstantStep":
        # The state of each cell once; a normal and a rule per cell and update.
        cells = float(merged[2]) ** 2
        seconds, limit = H200.bound(Work(16.0 * cells, 60.0 * cells))
    elif merged:
        size, dense = float(merged[2]), merged[3] == "dense"
        work = least_work.merged_cells(merged[1], size, size, float(batch), dense=dense)
        seconds, limit = H200.bound(work)
    else:
        case = case_of(name, batch)
        if case is None:
            return None
        seconds, limit = H200.bound(work_of(case, on_gpu=True))
    return 1e6 * seconds, limit


def row(result: dict[str, float | str], batch: int) -> str:
    """A line of the table."""
    name, value, unit = str(result["name"]), float(result["value"]), str(result["unit"])
    bound = bound_of(name, batch)
    peer = PEERS.get(name)
    aim = float(result["reference"])
    cells = [
        name,
        f"{value:.1f} {unit}",
        f"{bound[0]:.1f} ({bound[1]})" if bound else "",
        f"{bound[0] / value:.0%}" if bound else "",
        f"{aim:.0f}" if aim else "",
        f"{peer}" if peer else "",
        f"{peer / value:.1f}x" if peer else "",
        f"{float(result['host']):.1f}" if result["host"] else "",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Prints the table of the file that is named."""
    document = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    print("| case | measured | bound | reached | aim | elsewhere | ahead of it | host, us |")
    print("|---|---|---|---|---|---|---|---|")
    for result in document["results"]:
        print(row(result, document["batch"]))


if __name__ == "__main__":
    main()
