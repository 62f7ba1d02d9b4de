"""The page, the figure and the numbers of the Fashion-MNIST benchmark."""

from __future__ import annotations

import json
import os
import textwrap
from statistics import mean
from typing import TYPE_CHECKING, Any

from fashion_mnist_rows import MARGIN, ROWS
from pulsora.plot import plot_comparison

if TYPE_CHECKING:
    from pathlib import Path

    from fashion_mnist_rows import Row

Run = dict[str, Any]  # settings, machine, epochs, report
Results = dict[str, dict[str, dict[int, Run]]]  # by place, name of the row and seed
PLACES = {"cpu": "CPU", "cuda": "GPU"}
DRAWN = 4  # rows of the figure: the first ones


def verdict(row: Row, scores: dict[str, float]) -> str:
    """Whether the scores of all places reach the row's gate."""
    if row.gate is None:
        return "-"
    failed = [PLACES[place] for place, score in scores.items() if score < row.gate]
    return f"FAILED on {' and '.join(failed)}" if failed else "passed"


def final_accuracy(run: Run) -> float:
    """The accuracy (%) after the last epoch."""
    return float(run["epochs"][-1]["accuracy"])


def _score_text(runs: dict[int, Run]) -> str:
    scores = [final_accuracy(run) for run in runs.values()]
    spread = f" ({min(scores):.2f} ... {max(scores):.2f})" if len(scores) > 1 else ""
    return f"{mean(scores):.2f}{spread}"


def _seconds_text(runs: dict[int, Run]) -> str:
    return f"{mean(epoch['seconds'] for run in runs.values() for epoch in run['epochs']):.2f}"


def table(results: Results) -> str:
    """The rows that have been run, as Markdown."""
    places = [place for place in PLACES if results.get(place)]
    heads = ["layer 1", "seeds", "reference %", "passes from %"]
    heads += [f"{PLACES[place]} accuracy %" for place in places]
    heads += ["gate", "transfer gain", "pulses per cell"]
    heads += [f"{PLACES[place]} s per epoch" for place in places]
    lines = [_line(heads), _line(["---"] * len(heads))]
    for row in ROWS:
        runs = {place: results[place].get(row.name, {}) for place in places}
        some = next((found for found in runs.values() if found), None)
        if some is None:
            continue
        scores = {
            p: mean(map(final_accuracy, found.values())) for p, found in runs.items() if found
        }
        reports = [run["report"] for run in some.values()]
        gains = [report["gain"] for report in reports if "gain" in report]
        pulses = mean(report["pulses_per_cell"] for report in reports)
        cells = [row.name, ", ".join(map(str, some))]
        cells += ["-" if limit is None else f"{limit:.2f}" for limit in (row.reference, row.gate)]
        cells += [_score_text(found) if found else "-" for found in runs.values()]
        cells += [verdict(row, scores), f"{mean(gains):.3f}" if gains else "-"]
        cells += [f"{pulses:.0f}" if pulses else "-"]
        cells += [_seconds_text(found) if found else "-" for found in runs.values()]
        lines.append(_line(cells))
    return "\n".join(lines)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def histories(results: Results) -> dict[str, dict[str, list[dict[str, float]]]]:
    """The curves of the first rows, by place, as `plot_comparison` takes them."""
    return {
        PLACES[place]: {
            row.name: [
                {**epoch, "epoch": number + 1.0, "accuracy": epoch["accuracy"] / 100.0}
                for number, epoch in enumerate(next(iter(rows[row.name].values()))["epochs"])
            ]
            for row in ROWS[:DRAWN]
            if rows.get(row.name)
        }
        for place in PLACES
        if (rows := results.get(place))
    }


def machines(results: Results) -> dict[str, str]:
    """Name the processor or GPU of each place."""
    return {
        place: " and ".join(
            sorted({run["machine"] for seeds in rows.values() for run in seeds.values()})
        )
        for place, rows in results.items()
        if rows
    }


def write_numbers(results: Results, path: Path) -> None:
    """Writes every epoch of every run as JSON."""
    runs = [
        {
            "row": row.name,
            "place": place,
            "seed": seed,
            "reference": row.reference,
            "gate": row.gate,
        }
        | {name: value for name, value in run.items() if name not in {"settings", "machine"}}
        for place, rows in results.items()
        for row in ROWS
        for seed, run in rows.get(row.name, {}).items()
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    text = ",\n  ".join(json.dumps(run) for run in runs)
    path.write_text(f'{{"machines": {json.dumps(machines(results))},\n "runs": [\n  {text}\n]}}\n')


def write_report(results: Results, protocol: str, page: Path, figure: Path, numbers: Path) -> None:
    """Writes the Markdown page, its figure, and the numbers."""
    write_numbers(results, numbers)
    figure.parent.mkdir(parents=True, exist_ok=True)
    plot_comparison(histories(results)).savefig(figure, dpi=120)
    where = "; ".join(f"{PLACES[place]}: {name}" for place, name in machines(results).items())
    page.parent.mkdir(parents=True, exist_ok=True)
    paragraphs = [
        "# Accuracy on Fashion-MNIST",
        (
            "`python benchmarks/fashion_mnist.py --publish` writes this page; with `--device "
            "cuda` it runs on the GPU. The "
            "reference is an independent prototype of the algorithm under this protocol. A row "
            f"passes if it reaches its reference less {MARGIN} points."
        ),
        protocol,
        f"{where}.",
        table(results),
        (
            "Pulses are coincidences per cell of layer 1, over all its arrays. The gain is the "
            "delivered change of transfers over the intended one. Both are measured on the CPU "
            "where a row ran there. Layers this small leave a GPU waiting for the host: most of an "
            "epoch on a GPU is torch's own work on the host, as the row of the frozen layer shows."
        ),
        (
            "The curves of CPU and GPU differ. Sampled cells and pulses are equal to the bit for "
            "equal x and d. But cuBLAS makes the products of these reads, and torch the products "
            "of the digital layers, and both sum in other orders on a GPU. So x and d differ in "
            "their last bits, a few pulses fall differently, and the runs diverge as runs with two "
            "seeds do. (Reads in integers, the default since these runs, have the bits of the CPU: "
            "[GPU](../howto/gpu.md#results-equal-to-the-cpu).)"
        ),
        f"![Loss and accuracy]({os.path.relpath(figure, page.parent)})",
        (
            f"[{numbers.name}]({os.path.relpath(numbers, page.parent)}) has every epoch of every "
            "run. Grey lines are the curves of the CPU."
        ),
        (
            "[These tables](lrtt_study.md#what-the-defaults-reach) compare floating point, plain "
            "pulses and the adapter on eight presets, in a perceptron, a convolutional network "
            "and a transformer, each at its own best learning rate."
        ),
        (
            "[Forecasts](forecasts.md#results) says how much predicted steps and averages save in "
            "training on these images."
        ),
    ]
    page.write_text("\n\n".join(map(_wrapped, paragraphs)) + "\n")


def _wrapped(paragraph: str) -> str:
    """Fill a paragraph, unless it is a heading, a table or a figure."""
    if paragraph.startswith(("#", "|", "![")):
        return paragraph
    return textwrap.fill(paragraph, 120, break_long_words=False, break_on_hyphens=False)
