"""What predicted steps, and averaging alone, save in training a network on Fashion-MNIST, beside their controls.

    python benchmarks/forecaster.py [--task NAME ...] [--seeds 1 2 3] [--rows NAME ...] [--data FOLDER] [--publish]

All are trained by SGD with a cosine schedule. Every row makes 30 % fewer backward passes but those called plain that say otherwise.
The score is the loss on the test images, of the weights that the run ends with.

| task | network | data, batch | steps | rate |
| --- | --- | --- | --- | --- |
| mlp | 784-256-10, ReLU | Fashion-MNIST, 64 | 4000 | 0.2 |
| cnn | convolutions of 8 5x5 and 16 3x3, both with stride 2, and a linear layer | Fashion-MNIST, 64 | 3000 | 0.2 |
| ecram | 64-64-10, ReLU, both matrices single arrays of EcRam | handwritten digits, 32 | 1000 | 0.1 |
| lrtt | the same with an adapter of rank 8, transferred every 100 mini-batches | handwritten digits, 32 | 1000 | 0.02 |

Every finished run is kept in --out, so that the program can be stopped and started again.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

import pulsora as pl
from pulsora.forecast import Ensemble, GRUForecaster, HybridTrainer
from pulsora.training import data as datasets

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "forecaster.json"
PAGE = ROOT / "docs" / "explain" / "forecasts.md"
BEGIN, END = "<!-- tables of benchmarks/forecaster.py -->", "<!-- end of tables -->"

# Of each row: the options of HybridTrainer, and those of run().
ROWS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain, all steps": ({"saved": 0.0, "forecaster": "none", "average": False}, {}),
    "plain, schedule stretched": ({"forecaster": "none", "average": False}, {}),
    "averaging alone": ({"forecaster": "none"}, {}),
    "linear alone": ({"average": False}, {}),
    "linear and averaging": ({}, {}),
    "gru alone": ({"forecaster": "gru", "average": False}, {}),
    "gru and averaging": ({"forecaster": "gru"}, {}),
    "plain, all steps, 0.7 of the rate": (
        {"saved": 0.0, "forecaster": "none", "average": False},
        {"rate": 0.7},
    ),
}
# Rows that only tasks with pulses need.
ANALOG_ROWS = {
    "linear and averaging, outer products": ({"rank": 64}, {}),
}
ROWS |= ANALOG_ROWS


def mlp(seed: int, sizes: tuple[int, int, int] = (784, 256, 10)) -> nn.Sequential:
    """Two linear layers."""
    torch.manual_seed(seed)
    inputs, hidden, outputs = sizes
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def cnn(seed: int) -> nn.Sequential:
    """Two convolutions and a linear layer."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 8, 5, 2), nn.ReLU(),
        nn.Conv2d(8, 16, 3, 2), nn.ReLU(),
        nn.Flatten(), nn.Linear(400, 10),
    )  # fmt: skip


def analog(config: Callable[[], pl.TileConfig]) -> Callable[[int], nn.Sequential]:
    """Two linear layers on tiles."""

    def make(seed: int) -> nn.Sequential:
        network = mlp(seed, (64, 64, 10))
        return pl.convert_to_analog(network, config(), seed=seed, threads=1, weight_scaling=0.5)

    return make


@dataclass(frozen=True)
class Task:
    """What is trained, on what, for how long, at which rate."""

    make: Callable[[int], nn.Sequential]
    steps: int
    lr: float
    batch: int = 64
    data: str = "fashion"


TASKS = {
    "mlp": Task(mlp, 4000, 0.2),
    "cnn": Task(cnn, 3000, 0.2),
    "ecram": Task(analog(pl.presets.EcRamSingle), 1000, 0.1, 32, "digits"),
    "lrtt": Task(
        analog(lambda: pl.presets.EcRamLRTT(rank=8, transfer_every=100)), 1000, 0.02, 32, "digits"
    ),
}


def cross_entropy(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """The mean loss of a batch."""
    x, y = batch
    return nn.functional.cross_entropy(model(x), y)


@torch.no_grad()
def score(model: nn.Module, data: datasets.Dataset) -> dict[str, float]:
    """Loss and accuracy on the test set."""
    x, y = torch.from_numpy(data.test_x), torch.from_numpy(data.test_y)
    out = torch.cat([model(part) for part in torch.split(x, 1000)])
    right = float((out.argmax(1) == y).float().mean())
    return {"loss": float(nn.functional.cross_entropy(out, y)), "accuracy": right}


def run(
    task: Task, seed: int, data: datasets.Dataset, options: dict[str, Any], rate: float = 1.0
) -> dict[str, Any]:
    """One training, at so much of the rate of the task."""
    model = task.make(seed)
    optimizer = pl.optim.AnalogSGD(model.parameters(), lr=rate * task.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, task.steps)
    trainer = HybridTrainer(
        model, optimizer, cross_entropy, steps=task.steps, scheduler=scheduler, **options
    )
    start = time.perf_counter()
    report = trainer.train(
        lambda epoch: (
            (torch.from_numpy(x), torch.from_numpy(y))
            for x, y in datasets.batches(data, task.batch, seed, epoch)
        )
    )
    seconds = time.perf_counter() - start
    print(report)
    return score(model, data) | {
        "passes": report.passes,
        "guard_passes": report.guard_passes,
        "shares": [jump.share for jump in report.jumps],
        "followed": [jump.followed for jump in report.jumps],
        "pulses": report.pulses,
        "pulses_of_jumps": report.pulses_of_jumps,
        "pulses_of_average": report.pulses_of_average,
        "seconds": round(seconds, 1),
        "losses": [round(loss, 4) for loss in trainer.losses],
    }


def table(results: dict[str, Any]) -> str:
    """All results as a table of Markdown: means over seeds, with standard deviations."""
    lines = []
    for task, rows in results.items():
        lines += [
            f"\n**{task}**\n",
            "| run | seeds | passes | test loss | beside plain | accuracy % | pulses, millions |",
        ]
        lines.append("| --- | --- | --- | --- | --- | --- | --- |")
        plain = None
        for row in ROWS:
            runs = list(rows.get(row, {}).values())
            if not runs:
                continue
            losses = np.array([one["loss"] for one in runs])
            plain = losses.mean() if plain is None else plain
            accuracy = 100.0 * np.mean([one["accuracy"] for one in runs])
            counted = np.mean([one["pulses"] for one in runs]) / 1e6
            pulses = f"{counted:.1f}" if counted else "-"
            spread = f" +- {losses.std(ddof=1):.4f}" if len(runs) > 1 else ""
            lines.append(
                f"| {row} | {len(runs)} | {runs[0]['passes']} | {losses.mean():.4f}{spread} | "
                f"{losses.mean() / plain - 1.0:+.1%} | {accuracy:.2f} | {pulses} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Runs what is not there yet, and shows the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument(
        "--ensemble", type=Path, help="a file of Ensemble.save, for the rows called gru"
    )
    parser.add_argument("--publish", action="store_true", help="write the tables into the page")
    arguments = parser.parse_args()
    data = {"fashion": datasets.load(arguments.data), "digits": datasets.digits()}
    results = json.loads(arguments.out.read_text()) if arguments.out.is_file() else {}
    for task in arguments.task:
        for seed in arguments.seeds:
            for row in arguments.rows:
                runs = results.setdefault(task, {}).setdefault(row, {})
                is_analog = TASKS[task].data == "digits"
                if str(seed) in runs or (row in ANALOG_ROWS and not is_analog):
                    continue
                print(f"== {task}, {row}, seed {seed}", flush=True)
                options, settings = ROWS[row]
                if arguments.ensemble and options.get("forecaster") == "gru":
                    chosen = Ensemble.load(arguments.ensemble)
                    options = options | {"forecaster": GRUForecaster(chosen)}
                of_task = TASKS[task]
                runs[str(seed)] = run(of_task, seed, data[of_task.data], options, **settings)
                arguments.out.write_text(json.dumps(results, indent=1) + "\n")
    shown = table(results)
    print(shown)
    if arguments.publish:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{shown}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
