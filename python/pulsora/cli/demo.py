"""`pulsora demo`: a small network on handwritten digits, trained in three ways.

Floating point shows what the task allows, full-rank pulsed SGD what one analog array does, and
LRTT what a pulsed low-rank adapter does on the same device.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.table import Table

from pulsora import presets
from pulsora.cli.progress import console, progress_bar, train_with_bar
from pulsora.plot import plot_training
from pulsora.training.data import digits
from pulsora.training.experiment import Experiment
from pulsora.training.run import Run

if TYPE_CHECKING:
    from pathlib import Path

    from pulsora.training.run import Metrics

__all__ = ["run_demo"]

_DEVICE = "EcRam"
_RUNS = {
    "floating point": Experiment(algorithm="digital", lr=0.4),
    "full-rank pulses": Experiment(algorithm="pulsed", lr=0.4),
    "LRTT, rank 8": Experiment(algorithm="lrtt", rank=8, lr=0.4),
}


def run_demo(out: Path, epochs: int, threads: int | None) -> None:
    """Trains the three networks, shows a table, writes demo.png and demo.json to `out`."""
    data = digits()
    console.print(
        f"{len(data.train_x)} handwritten digits of 8x8 pixels; 64-64-10 network, the first layer "
        f"analog ({_DEVICE} devices)",
        highlight=False,
    )
    histories: dict[str, list[Metrics]] = {}
    with progress_bar() as progress:
        for name, ways in _RUNS.items():
            settings = replace(ways, epochs=epochs, device_preset=_DEVICE)
            run = Run(settings, threads=threads, data=data)
            train_with_bar(run, progress, name)
            histories[name] = run.history
    console.print(_result_table(histories))
    out.mkdir(parents=True, exist_ok=True)
    figure = plot_training(histories, presets.device(_DEVICE), _DEVICE)
    figure.savefig(out / "demo.png", dpi=150)
    (out / "demo.json").write_text(json.dumps(histories, indent=1) + "\n")
    console.print(f"written: {out}/demo.png, {out}/demo.json", highlight=False)


def _result_table(histories: dict[str, list[Metrics]]) -> Table:
    table = Table("first layer", "test accuracy", "pulses per cell", "transfer gain", "undelivered")
    for name, history in histories.items():
        last = history[-1]
        table.add_row(
            name,
            f"{last['accuracy']:.1%}",
            f"{last['pulses_per_cell']:.0f}" if "pulses_per_cell" in last else "-",
            f"{last['gain']:.3f}" if "gain" in last else "-",
            f"{last['undelivered']:.1%}" if "undelivered" in last else "-",
        )
    return table
