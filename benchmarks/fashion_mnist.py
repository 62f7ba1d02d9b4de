"""What pulses and the low-rank adapter cost in accuracy: one layer of a Fashion-MNIST network.

    python benchmarks/fashion_mnist.py [--rows NAME ...] [--data FOLDER]

The network is 784-256-10 with sigmoids, trained by SGD on the mean cross entropy: batch 128 (the
last, incomplete one dropped), 5 epochs, learning rate 0.1, halved from epoch 4. Pixels enter as
(v - 0.2860) / 0.3530, initial weights are uniform within +-1/sqrt(inputs). Layer 1 is one tile
with perfect periphery; biases and layer 2 are digital. Its devices are ConstantStep with bounds
of +-1 and no spreads (unless a row says otherwise), pulse trains have at most 31 slots under both
managements. Transfers come every 100 mini-batches unless a row says otherwise. Rows called digital use floating-point updates of the same arrays. The score is the
test accuracy after the last epoch, adapter included.

Every finished row is kept in a cache, so that the program can be stopped and started again.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import nn

import pulsora as pl
from pulsora import data as datasets
from pulsora.experiment import accuracy, pulse_report
from pulsora.nn import AnalogLinear
from pulsora.optim import AnalogSGD
from pulsora.plot import plot_training

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent
EPOCHS, BATCH, HIDDEN = 5, 128, 256
MARGIN = 0.8  # points that a row may stay below its reference
PERFECT = {
    "forward": pl.IOParameters(is_perfect=True),
    "backward": pl.IOParameters(is_perfect=True),
}
CYCLE = {"transfer_every": 100, "units_in_mbatch": True}
DIGITAL = pl.UpdateParameters(pulse_type="none")


def device(dw_min: float, spread: float = 0.0) -> pl.devices.Device:
    """ConstantStep between +-1 with the same relative spread of everything that spreads."""
    return pl.devices.ConstantStep(
        dw_min=dw_min,
        dw_min_dtod=spread,
        dw_min_std=spread,
        w_max=1.0,
        w_min=-1.0,
        w_max_dtod=spread,
        w_min_dtod=spread,
        up_down_dtod=0.0,
    )


def pulsed(dw_min: float) -> pl.SingleConfig:
    """Full-rank pulsed SGD."""
    return pl.SingleConfig(device=device(dw_min), **PERFECT)


def lrtt(dw_min: float, rank: int = 16, spread: float = 0.0, **settings: Any) -> pl.LRTTConfig:
    """A pulsed adapter on a pulsed array."""
    cells = {"visible": device(dw_min, spread), "fast": device(dw_min, spread)}
    return pl.LRTTConfig(rank=rank, **(cells | CYCLE | PERFECT | settings))


def digital_lrtt(rank: int = 16, **settings: Any) -> pl.LRTTConfig:
    """The same algorithm in floating point."""
    return lrtt(2e-4, rank, update=DIGITAL, transfer_mode="exact", **settings)


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        name: What it is.
        reference: Accuracy (%) of an independent prototype with the same protocol, or None.
        config: Makes the configuration of layer 1.
        frozen: Whether layer 1 does not learn.
        seeds: The row is run with each of these.
    """

    name: str
    reference: float | None
    config: Callable[[], pl.TileConfig]
    frozen: bool = False
    seeds: tuple[int, ...] = (0,)


ROWS = [  # in the order in which they are run
    Row("full-rank digital", 83.94, lambda: pl.IdealConfig(**PERFECT), seeds=(0, 1, 2)),
    Row("layer 1 frozen", 75.88, lambda: pl.IdealConfig(**PERFECT), frozen=True),
    Row("LRTT pulsed K=16, dw 2e-4", 83.77, lambda: lrtt(2e-4), seeds=(0, 1, 2)),
    Row("full-rank pulsed, dw 2e-4", 84.02, lambda: pulsed(2e-4), seeds=(0, 1, 2)),
    Row("LRTT digital K=16", 83.67, digital_lrtt),
    Row("LRTT pulsed K=4, dw 2e-4", 82.72, lambda: lrtt(2e-4, 4)),
    Row("LRTT pulsed K=64, dw 2e-4", 83.72, lambda: lrtt(2e-4, 64)),
    Row(
        "LRTT pulsed K=16, dw 2e-4, single train",
        83.19,
        lambda: lrtt(2e-4, transfer_mode="single"),
    ),
    Row("full-rank pulsed, dw 2e-3", 83.69, lambda: pulsed(2e-3)),
    Row("LRTT digital K=16, alpha 1", 78.00, lambda: digital_lrtt(lora_alpha=1.0)),
    Row("LRTT digital K=16, lr without alpha", 80.69, lambda: digital_lrtt(ab_lr_scale="none")),
    Row("LRTT pulsed K=16, dw 2e-4, every 10", 83.59, lambda: lrtt(2e-4, transfer_every=10)),
    Row("LRTT pulsed K=16, dw 2e-4, every 1000", 85.33, lambda: lrtt(2e-4, transfer_every=1000)),
    Row("LRTT pulsed K=16, dw 2e-5", 83.49, lambda: lrtt(2e-5)),
    Row(
        "LRTT pulsed K=16, dw 2e-5, single train",
        81.09,
        lambda: lrtt(2e-5, transfer_mode="single"),
    ),
    Row("LRTT pulsed K=16, dw 2e-4, all spreads 30 %", None, lambda: lrtt(2e-4, spread=0.3)),
    Row("LRTT digital K=4", 82.64, lambda: digital_lrtt(4)),
    Row("LRTT digital K=64", 83.87, lambda: digital_lrtt(64)),
    Row("LRTT digital K=16, every 1000", 85.53, lambda: digital_lrtt(transfer_every=1000)),
    Row("LRTT digital K=16, no transfer", 85.60, lambda: digital_lrtt(transfer_every=0)),
    Row("LRTT pulsed K=16, dw 2e-3", 83.33, lambda: lrtt(2e-3)),
    Row(
        "6T1C adapter K=16, ideal W",
        83.35,
        lambda: lrtt(2e-4, fast=pl.presets.SixT1C(), transfer_mode="exact"),
    ),
]


def run(
    row: Row, seed: int, data: datasets.Dataset, threads: int, progress: Progress
) -> dict[str, Any]:
    """Trains one network; returns what the table and the figure need."""
    torch.manual_seed(seed)
    first, second = nn.Linear(data.features, HIDDEN), nn.Linear(HIDDEN, data.classes)
    layer = AnalogLinear(
        data.features,
        HIDDEN,
        config=row.config(),
        seed=seed,
        max_input_size=0,
        max_output_size=0,
        threads=threads,
    )
    layer.set_weights(first.weight, first.bias)
    layer.requires_grad_(not row.frozen)
    model = nn.Sequential(layer, nn.Sigmoid(), second)
    optimizer = AnalogSGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[3], gamma=0.5)
    test_x, test_y = torch.from_numpy(data.test_x), torch.from_numpy(data.test_y)
    steps = len(data.train_x) // BATCH
    task = progress.add_task(f"{row.name}, seed {seed}", total=EPOCHS * steps, status="")
    epochs = []
    for epoch in range(EPOCHS):
        start, total = time.perf_counter(), 0.0
        for x, y in datasets.batches(data, BATCH, seed, epoch):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y))
            loss.backward()
            optimizer.step()
            total += loss.item()
            progress.advance(task)
        schedule.step()
        seconds = time.perf_counter() - start
        score = 100.0 * accuracy(model, test_x, test_y)
        epochs.append({"loss": total / steps, "accuracy": score, "seconds": seconds})
        progress.update(task, status=f"{score:.2f} %, {seconds:.0f} s per epoch")
    progress.remove_task(task)
    return {"settings": settings_of(row), "epochs": epochs, "report": pulse_report(model)}


def settings_of(row: Row) -> list[Any]:
    """What a cached result must agree with."""
    protocol = [EPOCHS, BATCH, HIDDEN, row.frozen]
    settings: list[Any] = json.loads(json.dumps([protocol, row.config().to_dict()]))
    return settings


def cached_result(row: Row, path: Path) -> dict[str, Any] | None:
    """The result in a file of the cache, unless there is none or its settings were others."""
    if not path.is_file():
        return None
    result: dict[str, Any] = json.loads(path.read_text())
    return result if result["settings"] == settings_of(row) else None


def gate(row: Row, score: float) -> str:
    """Whether a score reaches the reference less the margin."""
    if row.reference is None:
        return "-"
    limit = row.reference - MARGIN
    return f"{'passed' if score >= limit else 'FAILED'} (>= {limit:.2f})"


def table(results: dict[str, dict[int, dict[str, Any]]]) -> str:
    """The rows that have been run, as Markdown."""
    lines = [
        "| layer 1 | accuracy % | seeds | reference % | gate | transfer gain | pulses per cell | s per epoch |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        runs = results.get(row.name, {})
        if not runs:
            continue
        scores = [one["epochs"][-1]["accuracy"] for one in runs.values()]
        reports = [one["report"] for one in runs.values()]
        seconds = mean(epoch["seconds"] for one in runs.values() for epoch in one["epochs"])
        gain = f"{mean(r['gain'] for r in reports):.3f}" if "gain" in reports[0] else "-"
        pulses = mean(r["pulses_per_cell"] for r in reports)
        spread = f"{mean(scores):.2f}" + (
            f" ({min(scores):.2f} ... {max(scores):.2f})" if len(scores) > 1 else ""
        )
        lines.append(
            f"| {row.name} | {spread} | {', '.join(map(str, runs))} "
            f"| {'-' if row.reference is None else f'{row.reference:.2f}'} "
            f"| {gate(row, mean(scores))} | {gain} | {f'{pulses:.0f}' if pulses else '-'} | {seconds:.1f} |"
        )
    return "\n".join(lines)


def write_report(results: dict[str, dict[int, dict[str, Any]]], path: Path, figure: Path) -> None:
    """Writes the Markdown page and its figure."""
    protocol = (__doc__ or "").split("\n\n")[2].replace("\n", " ")
    histories = {
        row.name: [
            {**epoch, "epoch": number + 1.0, "accuracy": epoch["accuracy"] / 100.0}
            for number, epoch in enumerate(next(iter(results[row.name].values()))["epochs"])
        ]
        for row in ROWS[:4]
        if results.get(row.name)
    }
    figure.parent.mkdir(parents=True, exist_ok=True)
    plot_training(histories).savefig(figure, dpi=120)
    path.write_text(
        "# Accuracy on Fashion-MNIST\n\n"
        "Written by `python benchmarks/fashion_mnist.py`. Reference: an independent prototype of "
        f"the algorithm under the same protocol. A row passes at its reference less {MARGIN} "
        "points.\n\n"
        f"{protocol}\n\n{table(results)}\n\n"
        "Pulses are coincidences per cell of layer 1, all arrays together; the gain is what "
        "transfers delivered over what they were to deliver.\n\n"
        f"![Loss and accuracy]({os.path.relpath(figure, path.parent)})\n"
    )


def main() -> None:
    """Runs the rows that are not in the cache, and writes the report after each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument(
        "--rows", nargs="+", default=[""], help="parts of row names; all by default"
    )
    parser.add_argument(
        "--part",
        default="1/1",
        help="I/N: only every N-th run, from the I-th on, so that N processes can share the work",
    )
    parser.add_argument("--cache", type=Path, default=ROOT / "build/fashion_mnist")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/results.md")
    parser.add_argument("--figure", type=Path, default=ROOT / "docs/images/fashion_mnist.png")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    console = Console()
    chosen = [row for row in ROWS if any(part in row.name for part in options.rows)]
    if not chosen:
        parser.error(f"no row contains {options.rows}; there are {[row.name for row in ROWS]}")
    part, parts = (int(number) for number in options.part.split("/"))
    torch.set_num_threads(options.threads)
    options.cache.mkdir(parents=True, exist_ok=True)
    try:
        data = datasets.idx_folder(options.data, mean=0.2860, std=0.3530)
    except datasets.DataError as error:
        parser.error(f"{error} (Debian: apt install dataset-fashion-mnist)")

    results: dict[str, dict[int, dict[str, Any]]] = {}
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[status]}"),
        console=console,
    ) as progress:
        jobs = [(row, seed) for row in ROWS for seed in row.seeds]
        # First seeds first: a table with all rows is worth more than three seeds of one.
        for index, (row, seed) in enumerate(sorted(jobs, key=lambda job: job[1])):
            cached = options.cache / f"{row.name.replace(' ', '_').replace('%', 'pct')}_{seed}.json"
            result = cached_result(row, cached)
            if result is None and row in chosen and index % parts == part - 1:
                result = run(row, seed, data, options.threads, progress)
                cached.write_text(json.dumps(result, indent=1) + "\n")
                score = result["epochs"][-1]["accuracy"]
                console.print(
                    f"{row.name}, seed {seed}: {score:.2f} %, {gate(row, score)}", highlight=False
                )
            if result is not None:
                results.setdefault(row.name, {})[seed] = result
                write_report(results, options.out, options.figure)
    print(table(results))


if __name__ == "__main__":
    main()
