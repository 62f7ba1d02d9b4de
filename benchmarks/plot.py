"""Draws what benchmarks/cpu_table.py writes: measured medians beside what the machine could do.

Usage: python benchmarks/plot.py results.json figure.png
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure


def selected(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The cases of 512 x 512 and batch 64 on the best instruction set and the most threads."""
    order = {"V2": 0, "V3": 1, "V4": 2, "V4Popcnt": 3}
    best = max(results, key=lambda r: (order[r["isa"]], r["threads"]))
    wanted = {"size": 512, "batch": 64, "isa": best["isa"], "threads": best["threads"]}
    return [r for r in results if all(r[key] == value for key, value in wanted.items())]


def draw(data: dict[str, Any], path: Path) -> None:
    """Writes the figure to `path`."""
    rows = selected(data["results"])
    if not rows:
        raise SystemExit("no case of size 512 and batch 64 in this file")
    figure = Figure(figsize=(9, 1 + 0.35 * len(rows)), layout="constrained")
    axes = figure.subplots()
    places = range(len(rows))
    medians = [r["median"] for r in rows]
    spread = [
        [r["median"] - r["lower_quartile"] for r in rows],
        [r["upper_quartile"] - r["median"] for r in rows],
    ]
    axes.barh(places, medians, xerr=spread, color="tab:blue", label="median, quartiles")
    axes.barh(places, [r["bound"] for r in rows], height=0.4, color="tab:orange", label="bound")
    labels = [f"{r['operation']}, {r['device']}".removesuffix(", -") for r in rows]
    axes.set_yticks(list(places), labels)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("microseconds")
    figure.suptitle(
        f"{data['cpu']}, {rows[0]['isa']}, {rows[0]['threads']} threads, 512 x 512, batch 64"
    )
    axes.legend()
    figure.savefig(path, dpi=150)


def main() -> None:
    """Reads the two paths from the command line."""
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))


if __name__ == "__main__":
    main()
