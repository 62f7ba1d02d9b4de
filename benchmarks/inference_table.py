"""Scores of networks on programmed arrays up to a year later, by method.

    python benchmarks/inference_table.py [--networks A,B] [--memories A,B] [--methods A;B]
        [--device cuda:0] [--seconds S] [--out FOLDER] [--small] [--table [FILE ...]] [--compact]
        [--data /usr/share/datasets/fashion-mnist]

Networks: a perceptron of nine layers, LeNet-5, a ResNet of eight convolutions and a transformer
encoder on Fashion-MNIST (accuracy in per cent), and a transformer that predicts the next byte of
this repository's documents (bits per byte). All of their linear and convolution layers are analog,
one tile a layer, with converters of 8 bits and output noise 0.04. Documents grow, so the first run
keeps them in FOLDER/gpt_text.bin, and later runs of this folder have the same text.

Each network is trained digitally by AdamW for each of three training seeds. Methods that train
further get the same number of epochs each, at their best learning rate. Four rates of one grid are
tried, and the next one as long as the best is at an end of those tried. They are compared with seed
1 on PCMLike, by the score of held-out training data a month after three programmings that the test
does not have. All methods are then evaluated under the same noise: 25 programmings at five
times, or for adapters that are trained on each chip, four of these programmings. The last column is
the paired difference to "plain, global" at the last time, over the programmings that both have.

Finished runs are lines of FOLDER/runs.jsonl, so that the program can be stopped (or stops itself
after S seconds) and started again. `--table` prints what there is, and in the files that it names,
and draws accuracy over time. `--compact` prints scores at the first and the last time, all networks
beside one another. `--small` runs everything in small, to see that it works.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import pulsora as pl
from inference_methods import MEMORIES, METHODS, Study, fits, further_rate
from inference_networks import BATCH, TASKS, Data, documents, loss
from inference_table_report import compact, figure, table

TIMES = ("1 s", "1 h", "1 day", "1 month", "1 year")
SIZES: dict[str, Any] = {
    "times": TIMES, "ages": (1.0, 3600.0, 86400.0, 2.6e6, 3.15e7), "programmings": 25,
    "chips": range(4), "steps": 150, "epochs": 2, "seeds": (1, 2, 3), "most": 0,
}  # fmt: skip
SMALL: dict[str, Any] = SIZES | {
    "times": ("1 s", "1 year"), "ages": (1.0, 3.15e7), "programmings": 2, "chips": range(2),
    "steps": 3, "epochs": 1, "seeds": (1,), "most": 512,
}  # fmt: skip
RATES_OF, RATES_AT = "PCMLike", "1 month"
HELD_OUT_PROGRAMMINGS = (1000, 1001, 1002)


def digital(network: str, seed: int, data: Data, folder: Path, *, small: bool) -> torch.nn.Module:
    """The network in floating point, trained once and kept in the folder."""
    task, path = TASKS[network], folder / f"{network}_{seed}.pt"
    torch.manual_seed(seed)
    net = task.make().to(data.device)
    if path.exists():
        net.load_state_dict(torch.load(path, weights_only=True, map_location=data.device))
        return net.eval()
    optimizer = torch.optim.AdamW(net.parameters(), lr=task.lr)
    epochs = 1 if small else task.epochs
    steps = epochs * len(data.epoch(seed, 0))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for epoch in range(epochs):
        for x, y in data.epoch(seed, epoch):
            optimizer.zero_grad()
            loss(net(x), y).backward()
            optimizer.step()
            schedule.step()
    torch.save(net.state_dict(), path)
    return net.eval()


@torch.no_grad()
def digital_score(network: str, net: torch.nn.Module, data: Data) -> float:
    """The score of the network in floating point on the test data."""
    scores = [TASKS[network].metric(net(x), y) for x, y in data.test]
    return float(torch.cat(scores).double().mean())


class Runs:
    """The finished runs of a folder, one line of JSON each."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "runs.jsonl"
        self.rows: dict[str, dict[str, Any]] = {}
        if self._path.exists():
            self.read(self._path)

    def read(self, path: Path) -> None:
        """Takes the runs of a file: lines of JSON, or one list of a file that ends in .json."""
        text = path.read_text()
        is_list = path.suffix == ".json"
        rows = json.loads(text) if is_list else [json.loads(line) for line in text.splitlines()]
        self.rows |= {row["key"]: row for row in rows}

    def add(self, key: str, row: dict[str, Any]) -> dict[str, Any]:
        """Keeps a run."""
        self.rows[key] = {"key": key, **row}
        with self._path.open("a") as file:
            file.write(json.dumps(self.rows[key]) + "\n")
        return self.rows[key]


class Table:
    """Makes the runs that are missing."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.chosen = chosen
        self.sizes = SMALL if chosen.small else SIZES
        self.folder: Path = chosen.out
        self.runs = Runs(self.folder)
        self.until = time.monotonic() + chosen.seconds
        self._data: dict[str, Data] = {}

    def keep_text(self, network: str) -> None:
        """Keeps the text of a network that learns one, unless the folder has it already."""
        path = self._text(network)
        if not TASKS[network].is_text or path.exists():
            return
        is_begun = any(key.startswith(f"{network}|") for key in self.runs.rows)
        if is_begun or any(self.folder.glob(f"{network}_*.pt")):
            raise FileNotFoundError(
                f"--out is {self.folder}, which has runs or networks of {network}, but not their "
                f"text; copy their {path.name} into it, or choose a new folder"
            )
        path.write_bytes(documents())

    def data(self, network: str) -> Data:
        """Batches of a network's task."""
        if network not in self._data:
            task, most = TASKS[network], self.sizes["most"]
            source = self._text(network) if task.is_text else self.chosen.data
            self._data[network] = Data(task, source, self.chosen.device, most)
        return self._data[network]

    def _text(self, network: str) -> Path:
        return self.folder / f"{network}_text.bin"

    def study(self, network: str, memory: str, seed: int) -> Study:
        """The trained network and its memory."""
        data = self.data(network)
        net = digital(network, seed, data, self.folder, small=self.chosen.small)
        key = f"{network}|digital|{seed}"
        if key not in self.runs.rows:
            self.runs.add(key, {"score": digital_score(network, net, data)})
        return Study(TASKS[network], data, net, memory, seed, self.sizes)

    def rate(self, network: str, method: str) -> float:
        """The best learning rate of a method for a network."""
        make, rates = METHODS[method]
        if len(rates) < 2 or self.chosen.small:
            return rates[0] if rates else 0.0
        sign = -1.0 if TASKS[network].is_text else 1.0
        found: dict[float, float] = {}
        left: list[float] = list(rates)
        while left:
            lr = left.pop(0)
            key = f"{network}|{method}|{lr}"
            if key not in self.runs.rows:
                self._require_time()
                study = self.study(network, RATES_OF, 1)
                study.test = study.data.held_out
                study.sizes = self.sizes | {"chips": HELD_OUT_PROGRAMMINGS[:1], "times": [RATES_AT]}
                trained = make(study, lr)
                self.runs.add(key, {"lr": lr, "score": self._score(study, trained)})
            found[lr] = sign * self.runs.rows[key]["score"]
            if not left and (beside := further_rate(found)) is not None:
                left.append(beside)
        return max(found, key=lambda lr: found[lr] if np.isfinite(found[lr]) else -np.inf)

    def _score(self, study: Study, trained: Any) -> float:  # noqa: ANN401
        if trained.readapted is not None:
            return float(np.mean(trained.readapted))
        report = pl.inference.evaluate(
            trained.model, study.test, metric=study.task.metric, times=[RATES_AT],
            programmings=HELD_OUT_PROGRAMMINGS, prepare=trained.prepare,
        )  # fmt: skip
        return float(report.mean[0])

    def run(self, network: str, memory: str, method: str, seed: int) -> None:
        """One line of the table for one seed."""
        key = f"{network}|{memory}|{method}|{seed}"
        lr = self.rate(network, method)
        if key in self.runs.rows and self.runs.rows[key]["lr"] == lr:
            return
        self._require_time()
        start = time.perf_counter()
        study = self.study(network, memory, seed)
        trained = METHODS[method][0](study, lr)
        values = trained.readapted
        if values is None:
            report = pl.inference.evaluate(
                trained.model, study.test, metric=study.task.metric, times=self.sizes["times"],
                programmings=self.sizes["programmings"], prepare=trained.prepare,
            )  # fmt: skip
            values = report.values.tolist()
        row = {
            "network": network, "memory": memory, "method": method, "seed": seed, "lr": lr,
            "parameters": trained.parameters, "steps": trained.steps, "pulses": trained.pulses,
            "values": values, "seconds": round(time.perf_counter() - start, 1),
        }  # fmt: skip
        self.runs.add(key, row)
        means = " ".join(f"{np.mean(each):.2f}" for each in values)
        print(f"{key} lr {lr}: {means} ({row['seconds']} s)", flush=True)

    def _require_time(self) -> None:
        if time.monotonic() > self.until:
            raise TimeoutError


def main() -> None:
    """Makes runs, and prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--networks", default=",".join(TASKS))
    parser.add_argument("--memories", default=",".join(MEMORIES))
    parser.add_argument("--methods", default=";".join(METHODS), help="separated by ;")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument(
        "--out", type=Path, default=Path("inference_table"),
        help="folder of finished runs, networks and gpt_text.bin, the text of the GPT",
    )  # fmt: skip
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--table", nargs="*", type=Path, metavar="FILE", help="make no runs")
    parser.add_argument("--compact", action="store_true", help="print a table for each memory")
    chosen = parser.parse_args()
    made = Table(chosen)
    for path in chosen.table or ():
        made.runs.read(path)
    for network in chosen.networks.split(",") if chosen.table is None else ():
        made.keep_text(network)
    try:
        for seed in made.sizes["seeds"] if chosen.table is None else ():
            for memory in chosen.memories.split(","):
                for network in chosen.networks.split(","):
                    for method in chosen.methods.split(";"):
                        if fits(network, memory, method):
                            made.run(network, memory, method, seed)
    except TimeoutError:
        print("the time is over; start again to go on")
    rows, times = made.runs.rows, made.sizes["times"]
    networks, memories = chosen.networks.split(","), chosen.memories.split(",")
    if chosen.compact:
        print("\n".join(compact(rows, networks, memories, chosen.methods.split(";"))))
    else:
        print("\n".join(table(rows, times, BATCH)))
    figure(rows, times, made.folder / "inference.png")
    others = [memory for memory in MEMORIES if memory != RATES_OF]
    figure(rows, times, made.folder / "memories.png", others)


if __name__ == "__main__":
    main()
