"""Measures what predicted steps and averages save in eight trainings, beside their controls.

    python benchmarks/forecaster.py [--task NAME ...] [--seeds 31 32 33 34 35] [--rows NAME ...]
                                    [--data FOLDER] [--out FILE] [--publish]

All have a cosine schedule. Every row makes 30 % fewer backward passes but the first. The score is
the loss on the test set, of the weights that the run ends with.

| task | network | data, batch | steps | optimiser, rate |
| --- | --- | --- | --- | --- |
| mlp | 784-64-10, ReLU | Fashion-MNIST, 64 | 2000 | SGD, 0.2 |
| cnn | convolutions 8 5x5 and 16 3x3, a linear layer | Fashion-MNIST, 64 | 1500 | SGD, 0.2 |
| momentum | 64-64-10, ReLU | digits, 32 | 1000 | SGD, momentum 0.9, 0.04 |
| adam | a transformer layer of width 32 over rows of pixels | digits, 32 | 1500 | AdamW, 0.003 |
| regression | 40-48-5, ReLU | 5 outputs of a random network, 32 | 2000 | SGD, 0.6 |
| regression-momentum | as before | as before | 2000 | SGD, momentum 0.9, 0.12 |
| ecram | 64-64-10, ReLU, both matrices single arrays of EcRam | digits, 32 | 1000 | SGD, 0.1 |
| lrtt | ecram, adapters of rank 8, transfers every 100 batches | digits, 32 | 1000 | SGD, 0.02 |

Every finished run is kept in --out, so that the program can be stopped and started again. The table
takes about 7 minutes of CPU time. Rules and rates were chosen with seeds 1 to 25.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from forecaster_tasks import TASKS, teacher
from pulsora.forecast import Ensemble, GRUForecaster, HybridTrainer
from pulsora.training import data as datasets

if TYPE_CHECKING:
    from collections.abc import Callable

    from forecaster_tasks import Task

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "forecaster.json"
PAGE = ROOT / "docs" / "explain" / "forecasts.md"
BEGIN, END = "<!-- tables of benchmarks/forecaster.py -->", "<!-- end of tables -->"

PLAIN, STRETCHED, AVERAGING = "plain, all steps", "plain, schedule stretched", "averaging alone"
# Of each row, the options of HybridTrainer. All rows have names of their own.
ROWS: dict[str, dict[str, Any]] = {
    PLAIN: {"saved": 0.0, "forecaster": "none", "average": False},
    STRETCHED: {"forecaster": "none", "average": False},
    AVERAGING: {"forecaster": "none"},
    "default": {},
    "corrections, scale": {"corrections": "scale"},
    "corrections, memory": {"corrections": "memory"},
    "gru": {"forecaster": "gru"},
    "every jump": {"guard": False},
}
# Rows that are made where they are asked for.
MORE_ROWS: dict[str, dict[str, Any]] = {
    "no average": {"average": False},
    "gru, every jump": {"forecaster": "gru", "guard": False},
    "outer products": {"rank": 64},
}


@torch.no_grad()
def score(model: nn.Module, data: datasets.Dataset, task: Task) -> dict[str, float]:
    """Loss on the test set, and accuracy if there are classes."""
    x, y = torch.from_numpy(data.test_x), torch.from_numpy(data.test_y)
    out = torch.cat([model(part) for part in torch.split(x, 1000)])
    found = {"loss": float(task.loss(nn.Identity(), (out, y)))}
    if y.dim() == 1:
        found["accuracy"] = float((out.argmax(1) == y).float().mean())
    return found


def run(task: Task, seed: int, data: datasets.Dataset, options: dict[str, Any]) -> dict[str, Any]:
    """One training."""
    model = task.make(seed)
    optimizer = task.optimizer(model.parameters(), task.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, task.steps)
    trainer = HybridTrainer(
        model, optimizer, task.loss, steps=task.steps, scheduler=scheduler, **options
    )
    start = time.process_time()
    report = trainer.train(
        lambda epoch: (
            (torch.from_numpy(x), torch.from_numpy(y))
            for x, y in datasets.batches(data, task.batch, seed, epoch)
        ),
        progress=False,
    )
    seconds = time.process_time() - start
    print(report)
    return score(model, data, task) | {
        "passes": report.passes,
        "guard_passes": report.guard_passes,
        "jumps": [[jump.after, jump.share] for jump in report.jumps],
        "ended": report.jumping_ended,
        "pulses": report.pulses,
        "pulses_of_jumps": report.pulses_of_jumps,
        "pulses_of_average": report.pulses_of_average,
        "cpu_seconds": round(seconds, 1),
    }


def beside(runs: dict[str, Any], controls: dict[str, Any]) -> str:
    """Loss of runs over the loss of controls of the same seeds: mean and standard error."""
    seeds = [seed for seed in runs if seed in controls]
    if len(seeds) < 2 or runs is controls:
        return "-"
    over = np.array([runs[seed]["loss"] / controls[seed]["loss"] - 1.0 for seed in seeds])
    return f"{over.mean():+.1%} +- {over.std(ddof=1) / len(seeds) ** 0.5:.1%}"


def table(results: dict[str, Any]) -> str:
    """All results as a table of Markdown: means over seeds, with standard deviations or errors."""
    lines = [
        "| task, run | test loss | beside plain | beside averaging | jumps | pulses, millions |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for task in TASKS:
        rows = results.get(task, {})
        for row in ROWS | MORE_ROWS:
            runs = rows.get(row, {})
            if not runs:
                continue
            losses = np.array([one["loss"] for one in runs.values()])
            made = np.mean([sum(share > 0 for _, share in one["jumps"]) for one in runs.values()])
            counted = np.mean([one["pulses"] for one in runs.values()]) / 1e6
            spread = f" +- {losses.std(ddof=1):.4f}" if len(runs) > 1 else ""
            with_plain, with_averaging = (
                beside(runs, rows.get(control, {})) for control in (PLAIN, AVERAGING)
            )
            lines.append(
                f"| {task}, {row} | {losses.mean():.4f}{spread} | {with_plain} | "
                f"{with_averaging} | {made:.1f} | {f'{counted:.1f}' if counted else '-'} |"
            )
    return "\n".join(lines) + "\n"


def failures(results: dict[str, Any], row: str = "default") -> list[str]:
    """Tasks where a row is worse than averaging alone by more than its standard error."""
    failed = []
    for task, rows in results.items():
        runs, controls = rows.get(row, {}), rows.get(AVERAGING, {})
        seeds = [seed for seed in runs if seed in controls]
        if len(seeds) > 1:
            over = np.array([runs[seed]["loss"] - controls[seed]["loss"] for seed in seeds])
            if over.mean() > over.std(ddof=1) / len(seeds) ** 0.5:
                failed.append(task)
    return failed


def main() -> None:
    """Runs what is not there yet, and shows the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--rows", nargs="+", choices=ROWS | MORE_ROWS, default=list(ROWS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[31, 32, 33, 34, 35])
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument(
        "--ensemble", type=Path, help="a file of Ensemble.save, for rows called gru"
    )
    parser.add_argument("--publish", action="store_true", help="write the table into the page")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="the model has tiles with adapters")
    sources: dict[str, Callable[[], datasets.Dataset]] = {
        "fashion": lambda: datasets.load(arguments.data), "digits": datasets.digits,
        "teacher": teacher,
    }  # fmt: skip
    results = json.loads(arguments.out.read_text()) if arguments.out.is_file() else {}
    for name in arguments.task:
        task = TASKS[name]
        data = sources[task.data]()
        for seed in arguments.seeds:
            for row in arguments.rows:
                runs = results.setdefault(name, {}).setdefault(row, {})
                if str(seed) in runs:
                    continue
                print(f"== {name}, {row}, seed {seed}", flush=True)
                options = (ROWS | MORE_ROWS)[row]
                if arguments.ensemble and options.get("forecaster") == "gru":
                    chosen = Ensemble.load(arguments.ensemble)
                    options = options | {"forecaster": GRUForecaster(chosen)}
                runs[str(seed)] = run(task, seed, data, options)
                arguments.out.write_text(json.dumps(results, indent=1) + "\n")
    shown = table(results)
    print(shown)
    print("worse than averaging alone by more than a standard error:", failures(results) or "none")
    if arguments.publish:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{shown}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
