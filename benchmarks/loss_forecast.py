"""How well the training loss of networks on Fashion-MNIST is forecast, beside its controls.

    python benchmarks/loss_forecast.py [--seeds 1 2 3] [--data FOLDER] [--curves FILE]

The networks `mlp` and `cnn` of benchmarks/forecaster.py learn by SGD at a rate of 0.2 that stays,
or falls along a cosine, a line, or in steps of a tenth at one and two thirds. Losses are means of
blocks of 25 mini-batches. Forecasts are made after 20 to 53 % of a run. Errors are means of
|forecast - log of the mean loss of the five blocks around|; intervals of 90 % are counted against
single blocks. None of these curves was learned from.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from forecaster import TASKS, cross_entropy
from pulsora.forecast import forecast_loss
from pulsora.training import data as datasets

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

BLOCK = 25
AHEAD = (10, 25, 50, 75)
LEVEL = 0.9
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda _: 1.0,
    "cosine": lambda done: 0.5 * (1.0 + math.cos(math.pi * done)),
    "linear": lambda done: 1.0 - done,
    "steps": lambda done: 0.1 ** int(3.0 * done),
}
METHODS = ("persistence", "law", "law + GRU", "law + GRU, rates known")


def curve(name: str, schedule: str, seed: int, data: datasets.Dataset) -> dict[str, Any]:
    """Block losses of a training, and the learning rates of the blocks."""
    task = TASKS[name]
    model = task.make(seed)
    optimizer = torch.optim.SGD(model.parameters(), task.lr)
    losses: list[float] = []
    rates: list[float] = []
    total, step, epoch = 0.0, 0, 0
    while step < task.steps:
        for x, y in datasets.batches(data, task.batch, seed, epoch):
            if step % BLOCK == 0:  # within a block the rate stays
                rates.append(task.lr * SCHEDULES[schedule](step / task.steps))
                optimizer.param_groups[0]["lr"] = rates[-1]
            loss = cross_entropy(model, (torch.from_numpy(x), torch.from_numpy(y)))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total, step = total + loss.item(), step + 1
            if step % BLOCK == 0:
                losses.append(total / BLOCK)
                total = 0.0
            if step == task.steps:
                break
        epoch += 1
    return {"losses": losses, "rates": rates}


def forecasts(made: dict[str, Any], now: int) -> dict[str, NDArray[np.float64]]:
    """By method: lower end, expectation and upper end [3, ahead] after `now` blocks.

    The forecast goes to the end or 75 blocks ahead.
    """
    seen, rates = made["losses"][:now], np.array(made["rates"])
    ahead = min(max(AHEAD), len(made["losses"]) - now)
    flat = np.full((3, ahead), np.exp(np.mean(np.log(seen[-8:]))))
    flat[0], flat[2] = 0.0, np.inf  # it states no interval
    found = {"persistence": flat}
    options: dict[str, dict[str, Any]] = {
        "law": {},
        "law + GRU": {"residual": "gru"},
        "law + GRU, rates known": {"residual": "gru", "rates": rates[: now + ahead]},
    }
    for method, chosen in options.items():
        result = forecast_loss(seen, ahead, level=LEVEL, **chosen)
        found[method] = np.stack([result.lower, result.expected, result.upper])
    return found


def judged(curves: list[dict[str, Any]]) -> dict[str, tuple[list[float], float]]:
    """By method: mean errors of the log loss by blocks ahead, and the share within intervals."""
    errors: dict[str, dict[int, list[tuple[float, bool]]]] = {
        method: {ahead: [] for ahead in AHEAD} for method in METHODS
    }
    for made in curves:
        logs = np.log(made["losses"])
        count = len(logs)
        for now in range(count // 5, round(0.53 * count), 4):
            for method, (lower, expected, upper) in forecasts(made, now).items():
                for ahead in AHEAD:
                    at = now + ahead - 1
                    if at + 2 >= count:
                        continue
                    error = abs(math.log(expected[ahead - 1]) - logs[at - 2 : at + 3].mean())
                    inside = lower[ahead - 1] <= made["losses"][at] <= upper[ahead - 1]
                    errors[method][ahead].append((error, bool(inside)))
    return {
        method: (
            [float(np.mean([error for error, _ in found])) for found in by.values()],
            float(np.mean([inside for found in by.values() for _, inside in found])),
        )
        for method, by in errors.items()
    }


def main() -> None:
    """Trains what is not there yet, and prints a table for each network and schedule."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--curves", type=Path, help="where curves are kept, for another start")
    arguments = parser.parse_args()
    kept = arguments.curves
    curves = json.loads(kept.read_text()) if kept and kept.is_file() else {}
    data = datasets.load(arguments.data)
    head = " | ".join(f"{ahead} blocks" for ahead in AHEAD)
    print(f"| network, rate | forecast | {head} | within |\n|{' --- |' * (3 + len(AHEAD))}")
    for name in ("mlp", "cnn"):
        for schedule in SCHEDULES:
            of_seeds = []
            for seed in arguments.seeds:
                key = f"{name}, {schedule}, {seed}"
                if key not in curves:
                    curves[key] = curve(name, schedule, seed, data)
                    if kept:
                        kept.write_text(json.dumps(curves))
                of_seeds.append(curves[key])
            for method, (errors, inside) in judged(of_seeds).items():
                shown = " | ".join(f"{error:.3f}" for error in errors)
                within = "-" if method == "persistence" else f"{inside:.0%}"
                print(f"| {name}, {schedule} | {method} | {shown} | {within} |", flush=True)


if __name__ == "__main__":
    main()
