#!/usr/bin/env python3
"""Measures transfers that fall due by themselves beside a fixed schedule.

    python benchmarks/transfer_every.py [--presets ...] [--seeds 1] [--runs 8 64 256]
        [--rules auto 1000] [--steps N] [--learnt] [--device cuda:0]
        [--data /usr/share/datasets/fashion-mnist] [--out FILE.jsonl]
    python benchmarks/transfer_every.py --table FILE.jsonl
    python benchmarks/transfer_every.py --lengths FILE.jsonl
    python benchmarks/transfer_every.py --merges FILE.jsonl

784-128-10 with a sigmoid learns Fashion-MNIST by LRTT with its defaults, on all eight presets, with
three batch sizes and lengths of a run. Transfers are made by hand, by the rule of
`transfer_every="auto"` or after every 1000 mini-batches, so that the accuracies right before and
right after stand beside them. These are of exact products with the effective weights, so that noise
of reads does not hide what a transfer costs. (The tests show that the rule below is the library's.)

A run is read after an eighth, a quarter, a half and at its end: the accuracy of the model, and in
brackets that of W alone after `pulsora.merge` of a copy (in the table, after a quarter and at the
end). The columns of the table before these are of "auto": the
number of transfers of each tile, and the points lost in one, at most, at most after the first 100
mini-batches, and on average. The last column has the same two readings of the fixed schedule.

`--lengths` prints another table: the most points lost in a transfer of the fixed schedule, which is
the default, over all transfers of runs of so many mini-batches. A run of --steps contains the
shorter ones.

`--merges` prints the largest losses of merges: of W alone after `pulsora.merge(model)`, and after
`pulsora.merge(model, batches)` with the first 1000 images of training.

A difference of two accuracies of 10000 images has an error of sqrt(n) / 100 points, where n images
changed between right and wrong: 0.1 to 0.2 points. `--learnt` writes n down, and reads the 60000
images of training too, whose differences are 2.4 times as exact: a further column of `--lengths`
has the largest of these losses.
"""

from __future__ import annotations

import argparse
import copy
import json
import multiprocessing
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import nn

import pulsora as pl
from pulsora.nn import AnalogLinear
from pulsora.optim import AnalogSGD
from pulsora.training import data as datasets

PRESETS = [
    "ReRamES",
    "ReRamSB",
    "EcRam",
    "EcRamMO",
    "Capacitor",
    "GokmenVlasov",
    "Idealized",
    "SixT1C",
]
RUNS = {8: (0.05, 2000), 16: (0.05, 2000), 64: (0.1, 1200), 256: (0.4, 400)}
"""Of each batch size, the learning rate and the number of mini-batches."""
FIXED, LOOK, FULL = 1000, 8, 0.6
EARLY = 100
"""Mini-batches in which accuracies still rise by points from one to the next."""
LENGTHS = (1500, 3000, 6000, 12000)
"""Mini-batches of runs in the table of --lengths."""


def shares(tile: pl.Tile, reach: float) -> np.ndarray:
    """The means over the cells of A and of B of |weight| / reach."""
    arrays = (tile.adapter.a, tile.adapter.b)
    return np.array([np.minimum(np.abs(each) / reach, 1.0).mean() for each in arrays])


class Schedule:
    """Says when the transfer of a tile is due."""

    def __init__(self, tile: pl.Tile, rule: str, reach: float) -> None:
        self.tile, self.rule, self.reach = tile, rule, reach
        self.begin()

    def begin(self) -> None:
        """Begins a cycle."""
        self.since, self.start = 0, shares(self.tile, self.reach)

    def due(self) -> bool:
        """Counts a mini-batch; returns whether a transfer is due at its end."""
        self.since += 1
        if self.rule != "auto":
            return self.since == FIXED
        if self.since % LOOK:
            return False
        gained = np.maximum(shares(self.tile, self.reach) - self.start, 0.0) / (1.0 - self.start)
        return bool(np.sqrt(gained.max()) >= FULL)


def run(task: tuple[str, int, str, int, int | None, bool, str, str]) -> dict[str, Any]:
    """One training, as numbers."""
    preset, batch, rule, seed, length, learnt, device, folder = task
    torch.set_num_threads(1)
    data = datasets.load(folder)
    train_x, train_y, test_x, test_y = (
        torch.from_numpy(part).to(device)
        for part in (data.train_x, data.train_y, data.test_x, data.test_y)
    )
    config = pl.LRTTConfig(visible=getattr(pl.presets, preset)(), transfer_every=0)
    torch.manual_seed(seed)
    layers = [AnalogLinear(784, 128, config=config, seed=10 * seed + 1, threads=1), nn.Sigmoid()]
    layers.append(AnalogLinear(128, 10, config=config, seed=10 * seed + 2, threads=1))
    model = nn.Sequential(*layers).to(device)
    reach = min(config.fast.w_max, -config.fast.w_min)
    tiles = [tile for layer in (model[0], model[2]) for tile in layer.tiles]
    schedules = [Schedule(tile, rule, reach) for tile in tiles]
    rate, steps = RUNS[batch]
    steps = length or steps
    optimizer = AnalogSGD(model.parameters(), lr=rate)

    def rights(net: nn.Sequential, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            weight, bias = net[0].get_weights()
            hidden = torch.sigmoid(nn.functional.linear(x, weight, bias))
            weight, bias = net[2].get_weights()
            return nn.functional.linear(hidden, weight, bias).argmax(1) == y

    def percent(right: torch.Tensor) -> float:
        return round(100.0 * right.double().mean().item(), 3)

    def accuracy(net: nn.Sequential) -> float:
        return percent(rights(net, test_x, test_y))

    images = [(test_x, test_y), (train_x, train_y)][: 1 + learnt]
    pairs, ends = [], []
    each = len(train_x) // batch
    for step in range(steps):
        if step % each == 0:
            order = datasets.shuffled(len(train_x), seed, step // each)
        chosen = torch.from_numpy(order[step % each * batch :][:batch]).to(device)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(train_x[chosen]), train_y[chosen]).backward()
        optimizer.step()
        due = [schedule for schedule in schedules if schedule.due()]
        if due:
            before = [rights(model, *each) for each in images]
            for schedule in due:
                schedule.tile.adapter.transfer()
                schedule.begin()
            after = [rights(model, *each) for each in images]
            both = [percent(each[0]) for each in (before, after)]
            if learnt:
                both.append(int((before[0] != after[0]).sum()))
                both += [percent(each[1]) for each in (before, after)]
            pairs.append((step + 1, len(due), *both))
        if step + 1 in {steps // 8, steps // 4, steps // 2, steps}:
            alone, made_up = copy.deepcopy(model), copy.deepcopy(model).eval()
            pl.merge(alone)
            pl.merge(made_up, train_x[:1000].split(250))
            ends.append((step + 1, *map(accuracy, (model, alone, made_up))))
    return {
        "preset": preset,
        "batch": batch,
        "learning_rate": rate,
        "mini_batches": steps,
        "transfer_every": rule,
        "seed": seed,
        "transfers": pairs,
        "ends": ends,
        "transfers_of_tiles": [tile.statistics()["transfers"] for tile in tiles],
    }


def table(rows: list[dict[str, Any]]) -> list[str]:
    """A row for each kind of cells and batch size, with means over seeds."""
    lines = [
        "| cells | batch | transfers | largest loss, later, mean | a quarter | end | every 1000 |",
        "|---|---|---|---|---|---|---|",
    ]
    kinds = dict.fromkeys((r["preset"], r["batch"]) for r in rows if r["transfer_every"] == "auto")
    for kind in sorted(kinds, key=lambda kind: (PRESETS.index(kind[0]), kind[1])):
        some = [r for r in rows if (r["preset"], r["batch"]) == kind]
        auto = [r for r in some if r["transfer_every"] == "auto"]
        fixed = [r for r in some if r["transfer_every"] != "auto"]
        pairs = [pair for r in auto for pair in r["transfers"]]
        losses = [before - after for _, _, before, after, *_ in pairs]
        later = [before - after for step, _, before, after, *_ in pairs if step > EARLY]
        counts = zip(*(r["transfers_of_tiles"] for r in auto), strict=True)
        cells = [
            kind[0],
            str(kind[1]),
            ", ".join(f"{fmean(each):.0f}" for each in counts),
            f"{max(losses):.2f}, {max(later):.2f}, {fmean(losses):.2f}",
            *(accuracies(auto, part) for part in (4, 1)),
            "; ".join(accuracies(fixed, part) for part in (4, 1) if fixed),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def losses_by_length(rows: list[dict[str, Any]]) -> list[str]:
    """A row for each kind of cells and batch size: the largest loss up to each length, the mean.

    The last column has the largest loss of the images of training, where these were read.
    """
    lines = [
        f"| cells | batch | seeds | {' | '.join(map(str, LENGTHS))} | mean | learnt images |",
        f"|---|---|---|{len(LENGTHS) * '---|'}---|---|",
    ]
    fixed = [r for r in rows if r["transfer_every"] == str(FIXED)]
    kinds = dict.fromkeys((r["preset"], r["batch"]) for r in fixed)
    for kind in sorted(kinds, key=lambda kind: (PRESETS.index(kind[0]), kind[1])):
        some = [r for r in fixed if (r["preset"], r["batch"]) == kind]
        pairs = [pair for r in some for pair in r["transfers"]]
        if not pairs:
            continue
        longest = min(r["mini_batches"] for r in some)
        shown = [
            f"{max(before - after for step, _, before, after, *_ in pairs if step <= length):.2f}"
            if FIXED <= length <= longest
            else ""
            for length in LENGTHS
        ]
        mean = fmean(before - after for _, _, before, after, *_ in pairs)
        learnt = [extra[1] - extra[2] for _, _, _, _, *extra in pairs if extra]
        shown += [f"{mean:.2f}", f"{max(learnt):.2f}" if learnt else ""]
        lines.append(f"| {kind[0]} | {kind[1]} | {len(some)} | {' | '.join(shown)} |")
    return lines


def merges(rows: list[dict[str, Any]]) -> list[str]:
    """A row for each kind of cells and batch size: largest losses of merges, and of means at ends.

    The last column has means over seeds at the end of the runs: of the model, of W alone, and of W
    alone where other cells make up for those out of reach.
    """
    lines = [
        "| cells | batch | seeds | W alone | made up | at the end |",
        "|---|---|---|---|---|---|",
    ]
    some = [r for r in rows if len(r["ends"][0]) == 4]
    kinds = dict.fromkeys((r["preset"], r["batch"]) for r in some)
    for kind in sorted(kinds, key=lambda kind: (PRESETS.index(kind[0]), kind[1])):
        own = [r for r in some if (r["preset"], r["batch"]) == kind]
        ends = [end for r in own for end in r["ends"]]
        losses = [f"{max(end[1] - end[i] for end in ends):.2f}" for i in (2, 3)]
        last = [f"{fmean(r['ends'][-1][i] for r in own):.2f}" for i in (1, 2, 3)]
        cells = [kind[0], str(kind[1]), str(len(own)), *losses, ", ".join(last)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def accuracies(rows: list[dict[str, Any]], part: int) -> str:
    """The mean accuracy of the model after a part of the run, and that of W alone in brackets."""
    ends = [end for r in rows for end in r["ends"] if end[0] == r["mini_batches"] // part]
    model, alone = (fmean(end[i] for end in ends) for i in (1, 2))
    return f"{model:.1f} ({alone:.1f})"


def main() -> None:
    """Makes the runs that a file does not have yet, or prints its table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--presets", nargs="+", default=PRESETS, choices=PRESETS)
    parser.add_argument("--runs", nargs="+", type=int, default=[8, 64, 256], choices=RUNS)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rules", nargs="+", default=["auto", str(FIXED)])
    parser.add_argument("--steps", type=int, help="mini-batches of a run")
    parser.add_argument("--learnt", action="store_true", help="read the images of training too")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--out", type=Path, help="a line of JSON per run; runs in it are kept")
    parser.add_argument("--table", type=Path, help="only print the table of such a file")
    parser.add_argument("--lengths", type=Path, help="only print the losses by length of such")
    parser.add_argument("--merges", type=Path, help="only print the losses of merges of such")
    chosen = parser.parse_args()
    only_print = chosen.table or chosen.lengths or chosen.merges
    held = only_print or chosen.out
    lines = held.read_text().splitlines() if held and held.is_file() else []
    rows = [json.loads(line) for line in lines]
    names = ("preset", "batch", "transfer_every", "seed")
    have = {tuple(row[name] for name in names) for row in rows}
    tasks = [
        (preset, batch, rule, seed, chosen.steps, chosen.learnt, chosen.device, chosen.data)
        for seed in range(1, chosen.seeds + 1)
        for rule in chosen.rules
        for batch in chosen.runs
        for preset in chosen.presets
        if not only_print and (preset, batch, rule, seed) not in have
    ]
    with multiprocessing.get_context("spawn").Pool(chosen.processes) as pool:
        for row in pool.imap_unordered(run, tasks):  # a run that is stopped keeps what is done
            rows.append(row)
            print(row["preset"], row["batch"], row["transfer_every"], row["ends"], flush=True)
            if chosen.out:
                with chosen.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    by_length = chosen.lengths or chosen.steps
    show = merges if chosen.merges else losses_by_length if by_length else table
    print("\n".join(show(rows)))


if __name__ == "__main__":
    main()
