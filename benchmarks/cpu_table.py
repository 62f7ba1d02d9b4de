"""The table of rpucuda_benchmarks: times beside the bound of each case on this machine.

    rpucuda_benchmarks --json raw.json
    python benchmarks/cpu_table.py raw.json benchmark.json > table.md

Bounds are the least bytes and operations that pulsora/bench/least_work.py counts, over what this
machine is measured to do now, so run it where and when the benchmark ran. What is measured is the
rate of the machine's best instruction set; those of others follow from the lanes of their vectors.
The JSON is the benchmark's with "peaks" and the "bound" of each result; benchmarks/plot.py draws
it.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulsora.bench import least_work
from pulsora.bench.cases import Case, work_of
from pulsora.bench.machine import Ceilings, Place, measure_ceilings

if TYPE_CHECKING:
    from pulsora.bench.machine import Work

# Floats of a vector, by instruction set.
LANES = {"V2": 4, "V3": 8, "V4": 16, "V4Popcnt": 16}

# Microseconds that AIHWKit took for such an update on two cores with AVX-512, measured once and not
# beside these.
PEERS = {("update dense", "ConstantStep"): 768e3, ("update dense", "SoftBounds"): 807e3}


def least_work_of(result: dict[str, Any]) -> Work:
    """The least work of a case of the benchmark."""
    operation, model = result["operation"], result["device"]
    n, m, dense = float(result["size"]), float(result["batch"]), "dense" in operation
    if operation.endswith(", merged"):  # noise_merge="batch"
        return least_work.merged_cells(model, n, n, m, dense=dense)
    if operation.startswith("update"):  # given the random words
        return least_work.cells(model, n, n, m, dense=dense)
    if operation.startswith("words"):
        return least_work.words(n, n, m, dense=dense)
    if operation in {"forward", "backward"}:
        return least_work.product(n, n, m)
    if operation.startswith("full step"):
        return least_work.product(n, n, m) * 2.0 + least_work.pulses(model, n, n, m, dense=dense)
    adapter = re.fullmatch(r"LRTT step sparse, K = (\d+)", operation)
    if adapter is None:
        raise ValueError(f"operation '{operation}' is not one that rpucuda_benchmarks has")
    return work_of(
        Case("step", model.split(" + ")[0], int(n), int(m), int(adapter[1]), transfer_every=10)
    )


def lanes_of_machine() -> int:
    """Floats of the longest vectors that this processor has."""
    info = Path("/proc/cpuinfo")
    flags = info.read_text().split() if info.is_file() else []
    return next((lanes for flag, lanes in (("avx512f", 16), ("avx2", 8)) if flag in flags), 4)


def with_bounds(
    document: dict[str, Any], ceilings: dict[int, Ceilings], lanes: int
) -> dict[str, Any]:
    """The benchmark's document with peaks and bounds.

    Args:
        document: The report of rpucuda_benchmarks.
        ceilings: By number of threads, what the machine can do with vectors of so many lanes.
        lanes: Their number.
    """
    isas = sorted({result["isa"] for result in document["results"]}, key=list(LANES).index)
    peaks = {
        (isa, threads): Ceilings(found.bytes, found.operations * min(LANES[isa] / lanes, 1.0))
        for isa in isas
        for threads, found in ceilings.items()
    }
    rows = [
        {
            "isa": isa,
            "threads": threads,
            "lane_operations_per_s": peak.operations,
            "copy_bytes_per_s": peak.bytes,
        }
        for (isa, threads), peak in peaks.items()
    ]
    results = [
        result
        | {"bound": 1e6 * peaks[result["isa"], result["threads"]].bound(least_work_of(result))[0]}
        for result in document["results"]
    ]
    return document | {"peaks": rows, "results": results}


def row(result: dict[str, Any]) -> str:
    """A line of the table."""
    median = result["median"]
    is_usual = (result["size"], result["batch"], result["threads"]) == (512, 64, 2)
    peer = PEERS.get((result["operation"], result["device"])) if is_usual else None
    cells = [result[name] for name in ("operation", "device", "size", "batch", "isa", "threads")]
    cells += [f"{median:.0f}", f"{result['lower_quartile']:.0f} to {result['upper_quartile']:.0f}"]
    cells += [f"{result['bound']:.0f}", f"{result['bound'] / median:.0%}"]
    cells += [f"{peer / median:.0f}x" if peer else ""]
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    """Reads the first file that is named, writes the second, and prints the table."""
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    document = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    threads = sorted({result["threads"] for result in document["results"]})
    ceilings = {count: measure_ceilings(Place("cpu", count)) for count in threads}
    complete = with_bounds(document, ceilings, lanes_of_machine())
    Path(sys.argv[2]).write_text(json.dumps(complete, indent=1) + "\n", encoding="utf-8")
    print(
        "| operation | device | size | batch | instruction set | threads | median us | quartiles "
        "| bound us | reached | ahead of AIHWKit |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for result in complete["results"]:
        print(row(result))


if __name__ == "__main__":
    main()
