"""Compares settings of the low-rank adapter by grids of training runs on one GPU.

    python benchmarks/lrtt_study.py GRID ... [--device cuda:0] [--processes N] [--out FOLDER]
                                    [--seconds S] [--best]

Every run trains 784-256-128-10 with sigmoids (or another network of lrtt_study_networks.py) on
Fashion-MNIST by SGD: mean cross entropy, batch 64, 5 epochs, learning rate 0.1 unless a grid varies
it, halved after 60 % of the epochs. All layers but the last are analog, one tile each, with the
periphery of the presets; the last layer and all biases are digital. The score is the test accuracy
after the last epoch, adapter included; with an adapter, the accuracy right after one more transfer
stands beside it. The grids are in lrtt_study_grids.py. With --best, each
algorithm's best learning rate of what has been run then gets two further seeds.

Finished runs are lines of FOLDER/runs.jsonl, so that the program can be stopped (or stops itself
after S seconds) and started again; `--table` prints what is there, `--summary` a table of it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import queue
import time
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from lrtt_study_grids import GRIDS, best, config_of, key_of
from lrtt_study_networks import make
from pulsora.nn import AnalogModule
from pulsora.optim import AnalogSGD
from pulsora.training import data as datasets
from pulsora.training.run import accuracy, pulse_report
from pulsora.training_step import TrainingStep

if TYPE_CHECKING:
    from lrtt_study_grids import Setting

BATCH = 64


def network(setting: Setting, device: str) -> nn.Module:
    """The network of a run; its initial weights depend on the seed alone."""
    torch.manual_seed(setting["seed"])
    name = setting.get("network", "mlp")
    return make(name, lambda inputs: config_of(setting, inputs), setting["seed"], device)


def train(setting: Setting, folder: Path, device: str, state: Path | None = None) -> dict[str, Any]:
    """One run: accuracies after each epoch in per cent, and what the tiles counted.

    The trained model is saved to `state` before the transfer at the end.
    """
    data = datasets.load(str(folder))
    train_x, test_x, train_y, test_y = (
        torch.from_numpy(part).to(device)
        for part in (data.train_x, data.test_x, data.train_y, data.test_y)
    )
    train_x, train_y = (part[: setting.get("images")] for part in (train_x, train_y))
    model = network(setting, device)
    epochs, batch = setting["epochs"], setting.get("batch", BATCH)
    optimizer = AnalogSGD(model.parameters(), lr=setting["lr"])
    step = TrainingStep(model, optimizer, nn.functional.cross_entropy)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [round(0.6 * epochs)], gamma=0.5)
    scores = []
    start = time.perf_counter()
    for epoch in range(epochs):
        order = torch.from_numpy(datasets.shuffled(len(train_x), setting["seed"], epoch)).to(device)
        for chosen in order.split(batch)[: len(train_x) // batch]:
            step(train_x[chosen], train_y[chosen])
        schedule.step()
        if "images" in setting and epoch + 1 < epochs:
            continue
        scores.append(round(100.0 * accuracy(model, test_x, test_y), 3))
    result = {
        "setting": setting,
        "accuracy": scores,
        "report": pulse_report(model),
        "seconds": round(time.perf_counter() - start, 2),
    }
    if state:
        torch.save(model.state_dict(), state)
    if setting.get("default") == "adapter":
        for layer in model.modules():
            for tile in layer.tiles if isinstance(layer, AnalogModule) else ():
                tile.adapter.transfer()
        result["after_transfer"] = round(100.0 * accuracy(model, test_x, test_y), 3)
    return result


def work(tasks: Any, results: Any, folder: Path, device: str, until: float) -> None:  # noqa: ANN401
    """A process: takes settings until there are none, or the time is over."""
    torch.set_num_threads(1)
    while time.time() < until:
        try:
            setting = tasks.get_nowait()
        except queue.Empty:
            return
        try:
            results.put(train(setting, folder, device))
        except (ValueError, RuntimeError) as error:
            results.put({"setting": setting, "error": str(error)})


def finished(path: Path) -> dict[str, dict[str, Any]]:
    """Finished runs, by setting."""
    lines = path.read_text().splitlines() if path.is_file() else []
    return {key_of(result["setting"]): result for result in map(json.loads, lines)}


def show(results: dict[str, dict[str, Any]]) -> None:
    """One line per run."""
    for key, result in sorted(results.items()):
        score = result["accuracy"][-1] if "accuracy" in result else result["error"]
        report = result.get("report", {})
        extra = " ".join(f"{n}={report[n]:.3g}" for n in ("pulses_per_cell", "gain") if n in report)
        print(f"{score}  {key}  {extra}")


def summary(results: dict[str, dict[str, Any]]) -> None:
    """A table of each algorithm's accuracy at its best learning rate (the best with seed 1)."""
    kinds: dict[str, dict[float, dict[int, dict[str, Any]]]] = {}
    for result in results.values():
        chosen = result["setting"]
        if "accuracy" in result:
            kind = key_of({k: v for k, v in chosen.items() if k not in {"lr", "seed"}})
            kinds.setdefault(kind, {}).setdefault(chosen["lr"], {})[chosen["seed"]] = result
    print("| what | lr | seeds | test accuracy % | right after a transfer | pulses per cell |")
    print("|---|---|---|---|---|---|")
    for kind, rates in sorted(kinds.items()):
        tried = {lr: seeds[1]["accuracy"][-1] for lr, seeds in rates.items() if 1 in seeds}
        if not tried:
            continue
        rate = max(tried, key=lambda lr: tried[lr])
        runs = list(rates[rate].values())
        scores = [run["accuracy"][-1] for run in runs]
        pulses = [run["report"].get("pulses_per_cell", 0.0) for run in runs]
        after = [run["after_transfer"] for run in runs if "after_transfer" in run]
        print(
            f"| {kind} | {rate} of {', '.join(map(str, sorted(tried)))} | {len(runs)} | "
            f"{spread(scores)} | {spread(after) if after else '-'} | {fmean(pulses):.0f} |"
        )


def spread(scores: list[float]) -> str:
    """Mean, least and most of accuracies."""
    return f"{fmean(scores):.1f} ({min(scores):.1f} ... {max(scores):.1f})"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "grids", nargs="*", choices=[*GRIDS, []], metavar="GRID", help=f"of {', '.join(GRIDS)}"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 1) - 2))
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--out", type=Path, default=Path("runs/lrtt_study"))
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--best", action="store_true", help="more seeds of the best learning rates")
    parser.add_argument("--table", action="store_true", help="print what has been run, and stop")
    parser.add_argument(
        "--summary", action="store_true", help="print each algorithm at its best rate, and stop"
    )
    args = parser.parse_args()
    path = args.out / "runs.jsonl"
    done = finished(path)
    if args.table or args.summary:
        (summary if args.summary else show)(done)
        return
    wanted = {key_of(s): s for grid in args.grids for s in GRIDS[grid]()}
    args.out.mkdir(parents=True, exist_ok=True)
    until = time.time() + min(args.seconds, 1e9)
    run(wanted, args, until)
    if args.best:
        results = list(finished(path).values())
        run({key_of(s): s for s in best(results)}, args, until)


def run(wanted: dict[str, Setting], args: argparse.Namespace, until: float) -> None:
    """Runs the settings that have not been run yet."""
    path = args.out / "runs.jsonl"
    done = finished(path)
    missing = [setting for key, setting in wanted.items() if key not in done]
    context = multiprocessing.get_context("spawn")
    tasks, results = context.Queue(), context.Queue()
    for setting in missing:
        tasks.put(setting)
    workers = [
        context.Process(target=work, args=(tasks, results, args.data, args.device, until))
        for _ in range(min(args.processes, len(missing)))
    ]
    for worker in workers:
        worker.start()
    with path.open("a") as file:
        count = 0
        while count < len(missing) and (not results.empty() or any(w.is_alive() for w in workers)):
            try:
                result = results.get(timeout=1.0)
            except queue.Empty:
                continue
            count += 1
            file.write(json.dumps(result) + "\n")
            file.flush()
            print(f"{count}/{len(missing)}", end="  ")
            show({key_of(result["setting"]): result})
    for worker in workers:
        worker.terminate()


if __name__ == "__main__":
    main()
