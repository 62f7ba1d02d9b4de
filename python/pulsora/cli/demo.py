"""`pulsora demo`: a small network on handwritten digits, trained in three ways.

Floating point shows what the task allows, full-rank pulsed SGD what one analog array does, and
LRTT what a pulsed low-rank adapter does on the same device.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pulsora import presets
from pulsora._internal.files import replace_file
from pulsora.cli.progress import console, metrics_table, progress_bar, train_with_bar
from pulsora.plot import plot_accuracy, plot_training
from pulsora.records.files import FILE, to_lines
from pulsora.training.data import digits
from pulsora.training.experiment import Experiment
from pulsora.training.run import Run

if TYPE_CHECKING:
    from pathlib import Path

    from pulsora.training.run import Metrics

__all__ = ["run_demo"]

_DEVICE = "ReRamSB"
_RANK = 16
_RUNS: dict[str, dict[str, Any]] = {
    "floating point": {"algorithm": "digital"},
    "full-rank pulses": {"algorithm": "pulsed", "device_preset": _DEVICE},
    f"LRTT, rank {_RANK}": {
        "algorithm": "lrtt",
        "device_preset": _DEVICE,
        "rank": _RANK,
        "transfer_every": 100,  # the data set is small
    },
}


def run_demo(out: Path, epochs: int, threads: int | None) -> None:
    """Trains the three networks, shows a table, writes figures, demo.json and records to `out`."""
    data = digits()
    console.print(
        f"{len(data.train_x)} handwritten digits of 8x8 pixels; 64-64-10 network, the first layer "
        f"analog ({_DEVICE} devices)",
        highlight=False,
    )
    histories: dict[str, list[Metrics]] = {}
    records: dict[str, bytes] = {}
    with progress_bar() as progress:
        for name, settings in _RUNS.items():
            run = Run(Experiment(epochs=epochs, **settings), threads=threads, data=data)
            try:
                train_with_bar(run, progress, name)
            except KeyboardInterrupt:
                raise KeyboardInterrupt(
                    f"stopped in epoch {len(run.history) + 1} of '{name}'; nothing was saved, "
                    "because the demo writes its files at the end"
                ) from None
            histories[name] = run.history
            records[run.experiment.name] = to_lines(run.record_lines())
    last = {name: history[-1] for name, history in histories.items()}
    console.print(metrics_table("first layer", last, "loss", "seconds"))
    figure = plot_training(histories, presets.device(_DEVICE), _DEVICE)
    figure.savefig(out / "demo.png", dpi=150)
    plot_accuracy(histories).savefig(out / "accuracy.png", dpi=150)
    replace_file(out / "demo.json", f"{json.dumps(histories, indent=1)}\n".encode())
    for folder, lines in records.items():
        (out / folder).mkdir(exist_ok=True)
        replace_file(out / folder / FILE, lines)
    console.print(
        f"written: {out}/demo.png, accuracy.png, demo.json, and for 'pulsora report {out}' the "
        f"folders {', '.join(records)}",
        highlight=False,
    )
