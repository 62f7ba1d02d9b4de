"""Accuracy of the algorithms for analog arrays, each at its own best learning rate.

    python benchmarks/compounds_study.py [--network small] [--device cuda:0] [--processes N]
        [--seconds S] [--out FOLDER] [--algorithms A;B] [--cells A,B]
        [--rate LR] [--plan | --table | --figure FILE]

Every run trains a network on Fashion-MNIST with mini-batches of 64 on the mean cross entropy, 5
epochs, the learning rate halved after 60 % of them. All layers but the last are analog, one tile
each, with the periphery of the presets; the last layer and all biases are digital. Pixels are from
0 to 1. The score is the test accuracy after the last epoch.

Each algorithm on each cell gets the same number of tuning runs with seed 1: four learning rates in
factors of two, then two more, beyond the edge while the best rate is there, else beside the best.
The best rate then gets two further seeds. Other settings are those of the preset,
but for one knob: TTv1 reads a column after each sample, and TTv2, c-TTv2 and AGAD read rows.

With `--rate LR` the runs are those of all seeds at this learning rate. So the price of merged noise
(`noise_merge="batch"`) is found, which is no part of the study by default:

    python benchmarks/compounds_study.py --cells EcRam --rate 0.1414
        --algorithms "plain pulses;plain pulses, merged noise"

Finished runs are lines of FOLDER/runs.jsonl, so that the program can be stopped (or stops itself
after S seconds) and started again. `--plan` times a few steps of each algorithm and says how long
all runs will take; `--table` prints what there is, and `--figure` draws it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import queue
import time
import warnings
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from compounds_study_figure import draw
from compounds_study_grid import (
    ALGORITHMS,
    CELLS,
    SEEDS,
    STUDIED,
    TUNING_RUNS,
    first_rates,
    key_of,
    next_rate,
    pairs,
)
from lrtt_study_networks import make
from pulsora.nn import AnalogModule
from pulsora.training import data as datasets
from pulsora.training.run import accuracy
from pulsora.training_step import TrainingStep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from compounds_study_grid import Setting

BATCH = 64
_PLANNED_STEPS = 60  # of which the first third is not timed


def network(setting: Setting, device: str) -> nn.Module:
    """The network of a run; its initial weights depend on the seed alone."""
    torch.manual_seed(setting["seed"])
    config = ALGORITHMS[setting["algorithm"]].config
    made = None if config is None else config(setting["cells"])
    return make(setting["network"], lambda _: made, setting["seed"], device)


class Training:
    """A network, its data, and its steps."""

    def __init__(self, setting: Setting, folder: Path, device: str) -> None:
        data = datasets.load(str(folder))
        count = setting["images"] or len(data.train_x)
        self.x, self.y = (
            torch.from_numpy(part[:count]).to(device) for part in (data.train_x, data.train_y)
        )
        self.test = [torch.from_numpy(part).to(device) for part in (data.test_x, data.test_y)]
        self.setting, self.device = setting, device
        self.model = network(setting, device)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # AdamW's own settings, which pulses do not follow
            self.optimizer = ALGORITHMS[setting["algorithm"]].optimizer(
                self.model.parameters(), setting["lr"], device
            )
            self.step = TrainingStep(self.model, self.optimizer, nn.functional.cross_entropy)

    def epoch(self, number: int, most: int | None = None) -> None:
        """Trains for an epoch, or for at most so many steps."""
        order = datasets.shuffled(len(self.x), self.setting["seed"], number)
        whole = len(self.x) // BATCH
        for chosen in torch.from_numpy(order).to(self.device).split(BATCH)[:whole][:most]:
            self.step(self.x[chosen], self.y[chosen])

    def pulses(self) -> dict[str, float]:
        """Pulses per cell of each array of the analog layers."""
        pulses: dict[str, float] = {}
        cells = 0
        for layer in self.model.modules():
            if not isinstance(layer, AnalogModule):
                continue
            for tile in layer.tiles:
                cells += tile.d_size * tile.x_size
                counted = tile.statistics()
                parts = {n: v for n, v in counted.items() if n.startswith("pulses_")}
                for name, value in (parts or {"pulses": counted["pulses"]}).items():
                    pulses[name] = pulses.get(name, 0.0) + value
        return {name: round(value / cells, 2) for name, value in pulses.items()}


def train(setting: Setting, folder: Path, device: str) -> dict[str, Any]:
    """One run: accuracies after each epoch in per cent, and pulses per cell."""
    run = Training(setting, folder, device)
    epochs = setting["epochs"]
    schedule = torch.optim.lr_scheduler.MultiStepLR(
        run.optimizer, [max(1, round(0.6 * epochs))], gamma=0.5
    )
    scores = []
    start = time.perf_counter()
    for epoch in range(epochs):
        run.epoch(epoch)
        schedule.step()
        scores.append(round(100.0 * accuracy(run.model, *run.test), 3))
    return {
        "setting": setting,
        "accuracy": scores,
        "pulses_per_cell": run.pulses(),
        "plain_because": run.step.plain_because,
        "seconds": round(time.perf_counter() - start, 2),
    }


def work(tasks: Any, results: Any, folder: Path, device: str, until: float) -> None:  # noqa: ANN401
    """A process: takes settings until it gets None, or the time is over."""
    torch.set_num_threads(1)
    while time.time() < until:
        try:
            setting = tasks.get(timeout=1.0)
        except queue.Empty:
            continue
        if setting is None:
            return
        try:
            results.put(train(setting, folder, device))
        except (ValueError, RuntimeError) as error:
            results.put({"setting": setting, "error": str(error)})


def finished(path: Path) -> dict[str, dict[str, Any]]:
    """Finished runs, by setting."""
    lines = path.read_text().splitlines() if path.is_file() else []
    return {key_of(result["setting"]): result for result in map(json.loads, lines)}


class Study:
    """The runs of each pair of an algorithm and a cell, and which of them come next."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.path = args.out / "runs.jsonl"
        self.done = finished(self.path)
        self.base = {"network": args.network, "epochs": args.epochs, "images": args.images}
        self.pairs = pairs(args.algorithms, args.cells)
        self.rate: float | None = args.rate

    def setting(self, pair: tuple[str, str], lr: float, seed: int = SEEDS[0]) -> Setting:
        """The settings of a run."""
        return {**self.base, "algorithm": pair[0], "cells": pair[1], "lr": lr, "seed": seed}

    def score(self, pair: tuple[str, str], lr: float, seed: int = SEEDS[0]) -> float | None:
        """The accuracy of a run; 0 if it failed, None if it has not been made."""
        result = self.done.get(key_of(self.setting(pair, lr, seed)))
        return None if result is None else float(result.get("accuracy", [0.0])[-1])

    def tuned(self, pair: tuple[str, str]) -> dict[float, float]:
        """The accuracy of each learning rate that has been tried with the first seed."""
        found = {}
        for result in self.done.values():
            chosen = result["setting"]
            if chosen == self.setting(pair, chosen["lr"]):
                found[float(chosen["lr"])] = float(result.get("accuracy", [0.0])[-1])
        return found

    def wanted(self, pair: tuple[str, str]) -> list[Setting]:
        """The runs that can be made now, of which some may have been made."""
        if self.rate is not None:
            return [
                self.setting(pair, self.rate, seed)
                for seed in SEEDS
                if self.score(pair, self.rate, seed) is None
            ]
        rates = self.tuned(pair)
        if missing := [rate for rate in first_rates(pair[0]) if rate not in rates]:
            return [self.setting(pair, rate) for rate in missing]
        if len(rates) < TUNING_RUNS:
            return [self.setting(pair, next_rate(rates))]
        best = max(rates, key=lambda rate: rates[rate])
        return [
            self.setting(pair, best, seed)
            for seed in SEEDS[1:]
            if self.score(pair, best, seed) is None
        ]

    def add(self, result: dict[str, Any]) -> None:
        """Takes a finished run, and writes it to the file."""
        self.done[key_of(result["setting"])] = result
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")

    def runs(self) -> int:
        """Number of runs of the whole study."""
        return len(self.pairs) * (len(SEEDS) + (0 if self.rate is not None else TUNING_RUNS - 1))

    def best(self, pair: tuple[str, str]) -> tuple[float, list[dict[str, Any]]]:
        """The best learning rate with the first seed, and its runs; no runs if there are none."""
        rates = self.tuned(pair)
        if not rates:
            return 0.0, []
        rate = self.rate or max(rates, key=lambda each: rates[each])
        made = [self.done.get(key_of(self.setting(pair, rate, seed))) for seed in SEEDS]
        return rate, [run for run in made if run is not None and "accuracy" in run]

    def scores(self) -> dict[tuple[str, str], list[float]]:
        """The test accuracy of each seed at the best learning rate, for pairs that have runs."""
        found = {pair: self.best(pair)[1] for pair in self.pairs}
        return {pair: [run["accuracy"][-1] for run in runs] for pair, runs in found.items() if runs}

    def table(self) -> None:
        """Prints accuracies at the best learning rates."""
        print("| algorithm | cells | lr (tried) | seeds | test accuracy % | pulses per cell | "
              "digital bytes per cell |\n|---|---|---|---|---|---|---|")  # fmt: skip
        for pair, scores in self.scores().items():
            best, runs = self.best(pair)
            rates = self.tuned(pair)
            arrays = runs[0]["pulses_per_cell"]
            sent = {name: fmean(run["pulses_per_cell"][name] for run in runs) for name in arrays}
            pulses = ", ".join(f"{n.removeprefix('pulses_')} {v:.0f}" for n, v in sent.items())
            at_edge = self.rate is None and best in {min(rates), max(rates)}
            edge = " (edge)" if at_edge else ""
            spread = f" ({min(scores):.1f} ... {max(scores):.1f})" if len(scores) > 1 else ""
            print(
                f"| {pair[0]} | {pair[1] or '-'} | {best:g}{edge} ({len(rates)}) | {len(runs)} | "
                f"{fmean(scores):.1f}{spread} | {pulses or '-'} "
                f"| {ALGORITHMS[pair[0]].digital_bytes:g} |"
            )


def plan(study: Study, args: argparse.Namespace) -> None:
    """Times steps of each algorithm on its first cells, and predicts the time of all runs."""
    torch.set_num_threads(1)
    images = args.images or 60000
    steps = images // BATCH * args.epochs
    total = 0.0
    for name in args.algorithms:
        cells = [pair for pair in study.pairs if pair[0] == name]
        run = Training(study.setting(cells[0], ALGORITHMS[name].start), args.data, args.device)
        run.epoch(0, _PLANNED_STEPS // 3)
        _wait(args.device)
        start = time.perf_counter()
        run.epoch(1, _PLANNED_STEPS)
        _wait(args.device)
        each = (time.perf_counter() - start) / min(_PLANNED_STEPS, len(run.x) // BATCH)
        runs = len(cells) * study.runs() // len(study.pairs)
        total += each * steps * runs
        print(f"{name:24} {1e6 * each:8.0f} us a step, {runs} runs of {each * steps:.1f} s",
              run.step.plain_because or "")  # fmt: skip
    print(
        f"{study.runs()} runs take {total / 60:.1f} minutes one after another; {args.processes} "
        f"processes that did not slow each other down would take {total / 60 / args.processes:.1f}"
    )


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize(device)


def run(study: Study, args: argparse.Namespace) -> None:
    """Makes all runs that are missing, until the time is over."""
    args.out.mkdir(parents=True, exist_ok=True)
    until = time.time() + min(args.seconds, 1e9)
    context = multiprocessing.get_context("spawn")
    tasks, results = context.Queue(), context.Queue()
    workers = [
        context.Process(target=work, args=(tasks, results, args.data, args.device, until))
        for _ in range(min(args.processes, study.runs()))
    ]
    for worker in workers:
        worker.start()
    begun: set[str] = set()
    begin = _beginner(study, tasks, begun)
    begin(study.pairs)
    while len(begun) > 0 and any(worker.is_alive() for worker in workers):
        try:
            result = results.get(timeout=1.0)
        except queue.Empty:
            continue
        study.add(result)
        begun.discard(key_of(result["setting"]))
        chosen = result["setting"]
        score = result["accuracy"][-1] if "accuracy" in result else result["error"]
        print(f"{len(study.done)}/{study.runs()}  {score}  {chosen['algorithm']}, "
              f"{chosen['cells'] or '-'}, lr {chosen['lr']:g}, seed {chosen['seed']}, "
              f"{result.get('seconds', 0)} s", flush=True)  # fmt: skip
        begin([(chosen["algorithm"], chosen["cells"])])
    for _ in workers:
        tasks.put(None)
    for worker in workers:
        worker.join(timeout=5.0)
        if worker.is_alive():
            worker.terminate()
    study.table()


def _beginner(
    study: Study,
    tasks: Any,  # noqa: ANN401 - a queue of multiprocessing
    begun: set[str],
) -> Callable[[Iterable[tuple[str, str]]], None]:
    """Returns a function that hands out the next runs of pairs without a run under way."""

    def begin(some: Iterable[tuple[str, str]]) -> None:
        for pair in some:
            wanted = {key_of(each): each for each in study.wanted(pair)}
            running = [key for key in begun if _pair_of(key) == pair]
            if running and not set(wanted) - set(running):
                continue
            if running and len(study.tuned(pair)) < TUNING_RUNS:
                continue  # the next rate follows from all results
            for key, each in wanted.items():
                if key not in begun:
                    begun.add(key)
                    tasks.put(each)

    return begin


def _pair_of(key: str) -> tuple[str, str]:
    chosen = json.loads(key)
    return chosen["algorithm"], chosen["cells"]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--network", default="small", help="small, one, mlp, lenet, transformer")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--images", type=int, default=0, help="of the training set; 0: all")
    parser.add_argument("--algorithms", default=";".join(STUDIED), help="names, by ';'")
    parser.add_argument("--cells", default=",".join(CELLS))
    parser.add_argument("--rate", type=float, help="one learning rate instead of the best one")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 1) - 2))
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--out", type=Path, default=Path("runs/compounds_study"))
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--plan", action="store_true", help="predict the time, and stop")
    parser.add_argument("--table", action="store_true", help="print what has been run, and stop")
    parser.add_argument("--figure", type=Path, help="draw what has been run, and stop")
    args = parser.parse_args()
    args.algorithms = args.algorithms.split(";")
    args.cells = args.cells.split(",")
    if unknown := [name for name in args.algorithms if name not in ALGORITHMS]:
        parser.error(f"algorithms {unknown} are unknown; there are {', '.join(ALGORITHMS)}")
    study = Study(args)
    if args.plan:
        plan(study, args)
    elif args.figure:
        draw(study.scores(), args.figure)
    elif args.table:
        study.table()
    else:
        run(study, args)


if __name__ == "__main__":
    main()
