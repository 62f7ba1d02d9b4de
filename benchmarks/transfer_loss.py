#!/usr/bin/env python3
"""Measures what a transfer costs: test accuracy right before and right after each of them.

    python benchmarks/transfer_loss.py [--presets ReRamES ReRamSB EcRam]
        [--modes verified write_verify exact] [--seeds 3] [--steps 3000] [--processes 2]
        [--data /usr/share/datasets/fashion-mnist] [--out FILE]

784-128-10 with a sigmoid learns Fashion-MNIST by LRTT with its defaults: mean cross entropy, batch
32, learning rate 0.1, 24000 images an epoch. A transfer is made by hand after every 750
mini-batches, so that the evaluations stand beside it. The last column is `pulsora.merge` at the end
of the run, halfway to the next transfer: W alone beside the model.

A second table has what transfers cost: pulses, reads and time slots. `--curve N` also reads the
accuracy every N mini-batches, and `--figure FILE` draws it through the transfers. With `--results
FILES`, tables and figure are those of earlier runs: where several files have a run, of the first.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import nn

import pulsora as pl
from pulsora.nn import AnalogLinear
from pulsora.optim import AnalogSGD
from pulsora.training import data as datasets

IMAGES, BATCH, EVERY = 24000, 32, 750
BL = pl.UpdateParameters().desired_bl


def run(task: tuple[str, str, int, int, str, int]) -> dict[str, Any]:
    """One training: accuracies in per cent, pairs of before and after, and numbers of transfers."""
    preset, mode, seed, steps, folder, often = task
    torch.set_num_threads(1)
    data = datasets.load(folder)
    train_x, train_y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
    test_x, test_y = torch.from_numpy(data.test_x), torch.from_numpy(data.test_y)
    cells = getattr(pl.presets, preset)()
    config = pl.LRTTConfig(visible=cells, transfer_every=0, transfer_mode=mode)
    torch.manual_seed(seed)
    layers = [AnalogLinear(784, 128, config=config, seed=10 * seed + 1), nn.Sigmoid()]
    layers.append(AnalogLinear(128, 10, config=config, seed=10 * seed + 2))
    model = nn.Sequential(*layers)
    tiles = [tile for layer in (model[0], model[2]) for tile in layer.tiles]
    optimizer = AnalogSGD(model.parameters(), lr=0.1)

    def accuracy() -> float:
        model.eval()
        with torch.no_grad():
            share = (model(test_x).argmax(1) == test_y).float().mean().item()
        model.train()
        return round(100.0 * share, 2)

    pairs = []
    curve: list[tuple[int, float]] = []
    accounts = []
    for step in range(steps + EVERY // 2):
        if step % EVERY == 0:
            order = datasets.shuffled(IMAGES, seed, step // EVERY)
        chosen = order[step % EVERY * BATCH :][:BATCH]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(train_x[chosen]), train_y[chosen]).backward()
        optimizer.step()
        if (step + 1) % EVERY == 0:
            before = accuracy()
            for tile in tiles:
                tile.adapter.transfer()
            pairs.append((before, accuracy()))
            accounts.append([tile.adapter.transfer_stats["last"] for tile in tiles])
            curve += [(step + 1, value) for value in pairs[-1]]
        elif often and (step + 1) % often == 0:
            curve.append((step + 1, accuracy()))
    cells = [
        {"visible": tile.d_size * tile.x_size, "fast": tile.adapter.a.size + tile.adapter.b.size}
        for tile in tiles
    ]
    fast = [sum(tile.statistics()[name] for name in ("pulses_a", "pulses_b")) for tile in tiles]
    last = [tile.adapter.transfer_stats["last"] for tile in tiles]
    before = accuracy()
    pl.merge(model)
    return {
        "preset": preset,
        "mode": mode,
        "seed": seed,
        "transfers": pairs,
        "merge": (before, accuracy()),
        "last_transfer": last,
        "each_transfer": accounts,
        "cells": cells,
        "pulses_of_training": fast,
        "mini_batches": steps + EVERY // 2,
        "curve": curve,
    }


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Means over seeds, as a table."""
    lines = [
        "| cells | transfer_mode | before -> after each transfer | largest loss | merge |",
        "|---|---|---|---|---|",
    ]
    for preset, mode in dict.fromkeys((row["preset"], row["mode"]) for row in rows):
        some = [r for r in rows if (r["preset"], r["mode"]) == (preset, mode)]
        pairs = zip(*(row["transfers"] for row in some), strict=True)
        means = [[fmean(pair[i] for pair in each) for i in (0, 1)] for each in pairs]
        loss = max(pair[0] - pair[1] for row in some for pair in row["transfers"])
        shown = ", ".join(f"{before:.1f} -> {after:.1f}" for before, after in means)
        merge = " -> ".join(f"{fmean(row['merge'][i] for row in some):.1f}" for i in (0, 1))
        lines.append(f"| {preset} | {mode} | {shown} | {loss:.1f} | {merge} |")
    return lines


def costs(rows: list[dict[str, Any]]) -> list[str]:
    """Costs of transfers of the first layer as a table: per cell, means over seeds and transfers.

    "training": pulses of a fast cell between two transfers.
    """
    lines = [
        "| cells | transfer_mode | pulses | reads | slots | most pulses of a cell | training |",
        "|---|---|---|---|---|---|---|",
    ]
    for preset, mode in dict.fromkeys((row["preset"], row["mode"]) for row in rows):
        some = [r for r in rows if (r["preset"], r["mode"]) == (preset, mode)]
        accounts = [each[0] for row in some for each in row["each_transfer"]]
        cells = some[0]["cells"][0]
        mean = {k: fmean(a[k] for a in accounts) for k in ("pulses", "reads", "slots", "trains")}
        most = max(account["most_pulses"] for account in accounts)
        verified = mode == "write_verify"
        # A pulse train acts on all lines at once, and the whole array is read around sendings.
        slots = mean["slots"] if verified else mean["trains"] * BL
        training = fmean(
            r["pulses_of_training"][0] / r["mini_batches"] * EVERY / cells["fast"] for r in some
        )
        reads = f"{mean['reads'] / cells['visible']:.2f}" if verified else ""
        lines.append(
            f"| {preset} | {mode} | {mean['pulses'] / cells['visible']:.1f} | {reads}"
            f" | {slots:.0f} | {most if verified else ''} | {training:.0f} |"
        )
    return lines


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Accuracy over mini-batches, with vertical steps at transfers: a panel for each preset."""
    presets = list(dict.fromkeys(row["preset"] for row in rows))
    figure = Figure(figsize=(4.5 * len(presets), 3.2), layout="constrained")
    axes = figure.subplots(1, len(presets), sharey=True, squeeze=False)[0]
    for axis, preset in zip(axes, presets, strict=True):
        for mode in dict.fromkeys(row["mode"] for row in rows):
            row = next(r for r in rows if (r["preset"], r["mode"]) == (preset, mode))
            axis.plot(*zip(*row["curve"], strict=True), label=mode, linewidth=1.2)
        axis.set(title=preset, xlabel="mini-batches")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("test accuracy (%)")
    axes[0].legend(title="transfer_mode")
    figure.savefig(path)


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--presets", nargs="+", default=["ReRamES", "ReRamSB", "EcRam"])
    parser.add_argument("--modes", nargs="+", default=["verified", "write_verify", "exact"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3000, help="mini-batches (%(default)s)")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--out", type=Path, help="where all numbers are written, as JSON")
    parser.add_argument("--curve", type=int, default=0, help="mini-batches between readings")
    parser.add_argument("--figure", type=Path, help="where the accuracy of seed 1 is drawn")
    parser.add_argument("--results", type=Path, nargs="+", help="files of --out: nothing is run")
    chosen = parser.parse_args()
    wanted = [
        (preset, mode, seed)
        for preset in chosen.presets
        for mode in chosen.modes
        for seed in range(1, chosen.seeds + 1)
    ]
    earlier = [row for file in chosen.results or () for row in json.loads(file.read_text())]
    found = {(row["preset"], row["mode"], row["seed"]): row for row in reversed(earlier)}
    rows = [found[name] for name in wanted if name in found]
    tasks = [] if earlier else [(*name, chosen.steps, chosen.data, chosen.curve) for name in wanted]
    with multiprocessing.get_context("spawn").Pool(chosen.processes) as pool:
        for row in pool.imap(run, tasks):
            rows.append(row)
            print(
                row["preset"], row["mode"], row["seed"], row["transfers"], row["merge"], flush=True
            )
    print("\n".join([*table(rows), "", *costs(rows)]))
    if chosen.figure:
        draw(rows, chosen.figure)
    if chosen.out:
        chosen.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
