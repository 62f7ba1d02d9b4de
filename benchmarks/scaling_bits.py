#!/usr/bin/env python3
"""Checks that several processes have the bits of one, also across checkpoints.

    python benchmarks/scaling_bits.py [--ranks 1 2 4 8] [--device cuda] [--steps 50] [--out FILE]

A perceptron, a convolutional network and a transformer, on SoftBounds, ReRamSB and LRTT, learn
random rows by SGD: mean cross entropy, 32 rows in a global batch, tiles of at most 24 x 24. Pulses
are made by all processes, or shared; then cells, or cells and weights, may be sharded. On GPUs
(NCCL, one each) steps are recorded as well, unless weights are sharded, and runs of several sizes
go side by side if there are GPUs for all. On a CPU (gloo) a process computes in one thread.

The digests of all analog weights have to be those of one process, on every rank. A state of half
the steps by the most processes is loaded by one process, which makes the other half, and a state by
one process is loaded by the others. Prints a table; the exit status is 1 where bits differ.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
import sys
import tempfile
from pathlib import Path

import torch
from torch import distributed as dist
from torch import nn

import pulsora as pl
from pulsora.nn import AnalogModule
from pulsora.training_step import TrainingStep

ROWS, CLASSES = 32, 10
TILES = {"max_input_size": 24, "max_output_size": 24}
WAYS = {
    "all": {"updates": "all"},
    "shared": {"updates": "shared"},
    "cells sharded": {"cells": "sharded"},
    "weights sharded": {"weights": "sharded"},
}
CONFIGS: dict[str, pl.TileConfig] = {
    "SoftBounds": pl.SingleConfig(device=pl.devices.SoftBounds()),
    "ReRamSB": pl.SingleConfig(device=pl.presets.ReRamSB()),
    "LRTT": pl.LRTTConfig(visible=pl.presets.ReRamSB(), rank=4, transfer_every=10),
}


class Attention(nn.Module):
    """One attention over the rows of an image, by products whose backward pass is exact."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x has the shape [rows, tokens, width]."""
        query, key, value = self.qkv(x).chunk(3, dim=-1)
        seen = (query.unsqueeze(2) * key.unsqueeze(1)).sum(-1).softmax(-1)
        mixed: torch.Tensor = (seen.unsqueeze(-1) * value.unsqueeze(1)).sum(2)
        return x + self.out(mixed)


NETWORKS = {
    "perceptron": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, CLASSES)
    ),
    "convolutional": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 8)),
        nn.Conv2d(1, 8, 3),
        nn.ReLU(),
        nn.Conv2d(8, 12, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(192, CLASSES),
    ),
    "transformer": lambda: nn.Sequential(
        nn.Linear(8, 32), Attention(32), nn.ReLU(), nn.Flatten(), nn.Linear(256, CLASSES)
    ),
}


def digest(model: nn.Module) -> str:
    """A digest of the weights of all analog layers."""
    found = hashlib.sha256()
    for layer in model.modules():
        if isinstance(layer, AnalogModule):
            found.update(layer.get_weights()[0].cpu().numpy().tobytes())
    return found.hexdigest()[:16]


class Run:
    """A model of a case on this process, and its steps."""

    def __init__(self, case: tuple[str, ...], rank: int, size: int, device: str) -> None:
        network, config, way, loop = case
        self.rank, self.size, self.device = rank, size, device
        torch.manual_seed(1)
        model = pl.convert_to_analog(NETWORKS[network](), CONFIGS[config], seed=1, **TILES)
        self.model = model.to(device)
        if size > 1:
            pl.distributed.prepare(self.model, **WAYS[way])
        self.optimizer = pl.optim.AnalogSGD(self.model.parameters(), lr=0.05)
        self.recorded = None
        if loop == "recorded":
            self.recorded = TrainingStep(self.model, self.optimizer, nn.functional.cross_entropy)

    def steps(self, first: int, last: int) -> str:
        """Makes the steps of these numbers; returns the digest after them."""
        mine = slice(self.rank * ROWS // self.size, (self.rank + 1) * ROWS // self.size)
        for step in range(first, last):
            generator = torch.Generator().manual_seed(step)
            x = torch.randn(ROWS, 8, 8, generator=generator)[mine].to(self.device)
            y = torch.randint(CLASSES, (ROWS,), generator=generator)[mine].to(self.device)
            if self.recorded:
                self.recorded(x, y)
                continue
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(self.model(x), y).backward()
            self.optimizer.step()
        with self.whole():
            return digest(self.model)

    def whole(self) -> contextlib.AbstractContextManager[None]:
        """A block in which this process has all weights."""
        prepared = self.size > 1
        return pl.distributed.gathered(self.model) if prepared else contextlib.nullcontext()


def cases(device: str) -> list[tuple[str, ...]]:
    """Networks, configurations, what processes share, and the kind of loop."""
    loops = ("plain", "recorded") if device == "cuda" else ("plain",)
    found = itertools.product(NETWORKS, CONFIGS, WAYS, loops)
    return [each for each in found if each[2:] != ("weights sharded", "recorded")]


def of_one(case: tuple[str, ...]) -> tuple[str, ...]:
    """The case that stands for this one in one process, which shares nothing."""
    network, config, _, loop = case
    return network, config, "all", loop


def worker(
    rank: int, size: int, folder: str, options: argparse.Namespace, load: int, first_gpu: int
) -> None:
    """One process of `size`: all cases from the start, or on from the states of `load` processes.

    Every rank leaves its digests in a file, and rank 0 its states of half the steps.
    """
    device = options.device
    torch.set_num_threads(1)
    if device == "cuda":
        device = f"cuda:{first_gpu + rank}"
        torch.cuda.set_device(first_gpu + rank)
    if size > 1:
        backend = "nccl" if options.device == "cuda" else "gloo"
        store = f"file://{folder}/store_{size}_{load}"
        dist.init_process_group(backend, init_method=store, rank=rank, world_size=size)
    found = {}
    half = options.steps // 2
    for case in cases(options.device):
        name = "-".join(case)
        if size == 1 and not load and case != of_one(case):
            found[name] = found["-".join(of_one(case))]
            continue
        run = Run(case, rank, size, device)
        if load:
            saved = "-".join(of_one(case)) if load == 1 else name
            run.model.load_state_dict(torch.load(f"{folder}/{saved}-{load}.pt", weights_only=True))
            found[name] = run.steps(half, options.steps)
            continue
        run.steps(0, half)
        with run.whole():
            if rank == 0:
                torch.save(run.model.state_dict(), f"{folder}/{name}-{size}.pt")
        found[name] = run.steps(half, options.steps)
    Path(folder, f"{size}-{load}-{rank}.json").write_text(json.dumps(found))
    if size > 1:
        dist.barrier()
        dist.destroy_process_group()


def run_together(sizes: list[int], load: int, folder: str, options: argparse.Namespace) -> None:
    """Runs the processes of some sizes, side by side as far as there are GPUs for them."""
    gpus = torch.cuda.device_count() if options.device == "cuda" else 0
    waiting = sorted(sizes, reverse=True)
    while waiting:
        first, running = 0, []
        for size in list(waiting):
            if running and first + size > gpus:
                continue
            waiting.remove(size)
            arguments = (size, folder, options, load, first)
            running.append(torch.multiprocessing.spawn(worker, arguments, nprocs=size, join=False))
            first += size
        for each in running:
            while not each.join():
                pass


def main() -> int:
    """Runs all numbers of processes, and prints where digests differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2], help="1 among them")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    columns: dict[str, list[dict[str, str]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for load in (0, max(options.ranks), 1):
            # from the start, from the most processes to one, from one to several
            sizes = [n for n in options.ranks if not load or (load == 1) != (n == 1)]
            run_together(sizes, load, folder, options)
            for size in sizes:
                files = [Path(folder, f"{size}-{load}-{rank}.json") for rank in range(size)]
                name = f"{size}, on from {load}" if load else f"{size}"
                columns[name] = [json.loads(file.read_text()) for file in files]
                print(f"{name}: done", file=sys.stderr, flush=True)
    differs = False
    lines = [f"| network | arrays | pulses | loop | {' | '.join(columns)} |"]
    lines.append("|---|---|---|---|" + "---|" * len(columns))
    for case in cases(options.device):
        name = "-".join(case)
        wanted = columns["1"][0][name]
        shown = []
        for ranks in columns.values():
            others = {each[name] for each in ranks} - {wanted}
            shown.append("differs" if others else "same bits")
            differs = differs or bool(others)
        lines.append(f"| {' | '.join(case)} | {' | '.join(shown)} |")
    print("\n".join(lines))
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
