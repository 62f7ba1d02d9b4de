#!/usr/bin/env python3
"""Times whole training steps by one process and by several, each with a GPU of its own (NCCL).

    python benchmarks/distributed_loop.py [--ranks 1 2] [--rows 8192] [--width 4096] [--steps 10]
                                          [--device cuda]

A network of two layers, width-width-width, in tiles of 512 x 512 at most, learns random rows by
SGD: cross entropy, float32. Times are in milliseconds of a step, the least of three rounds of so
many steps, with messages. The same weights, to the bit, have to come out for every number of
processes; else nothing is printed but that. On a CPU (gloo) every process computes in one thread.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist
from torch import nn

import pulsora as pl

CONFIGS: dict[str, pl.TileConfig] = {
    "SoftBounds": pl.SingleConfig(device=pl.devices.SoftBounds()),
    "LRTT": pl.LRTTConfig(visible=pl.devices.SoftBounds()),
}


def network(config: pl.TileConfig, width: int) -> nn.Module:
    """The layers, the same in every process."""
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Identity(),
        pl.nn.AnalogLinear(width, width, config=config),
        nn.ReLU(),
        pl.nn.AnalogLinear(width, width, config=config),
    )


def digest(model: nn.Module) -> str:
    """A digest of the weights."""
    layers = [each for each in model.modules() if isinstance(each, pl.nn.AnalogLinear)]
    bits = b"".join(each.tiles.get_weights().cpu().numpy().tobytes() for each in layers)
    return hashlib.sha256(bits).hexdigest()


def measure(options: argparse.Namespace, rank: int, size: int, device: str) -> list[dict[str, Any]]:
    """Milliseconds per step and a digest of weights, by configuration and way to share pulses."""
    found = []
    for name, config in CONFIGS.items():
        for updates in ("all", "shared", "auto") if size > 1 else ("all",):
            model = network(config, options.width).to(device)
            pl.distributed.prepare(model, loss="sum", updates=updates)
            optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.01)
            generator = torch.Generator().manual_seed(2)
            x = torch.randn(options.rows, options.width, generator=generator)
            y = torch.randint(options.width, (options.rows,), generator=generator)
            mine = slice(rank * options.rows // size, (rank + 1) * options.rows // size)
            x, y = x[mine].to(device), y[mine].to(device)

            def steps(
                count: int,
                model: nn.Module = model,
                x: torch.Tensor = x,
                y: torch.Tensor = y,
                optimizer: torch.optim.Optimizer = optimizer,
            ) -> float:
                wait(device)
                begin = time.perf_counter()
                for _ in range(count):
                    optimizer.zero_grad()
                    loss = nn.functional.cross_entropy(model(x), y, reduction="sum")
                    (loss / options.rows).backward()
                    optimizer.step()
                wait(device)
                return 1000.0 * (time.perf_counter() - begin) / count

            steps(3)
            weights = digest(model)
            least = min(steps(options.steps) for _ in range(3))
            found.append(
                {"what": name, "ranks": size, "updates": updates, "ms": least, "weights": weights}
            )
    return found


def wait(device: str) -> None:
    """Waits for the device and for every process."""
    if device != "cpu":
        torch.cuda.synchronize()
    if dist.is_initialized():
        dist.barrier()


def worker(rank: int, size: int, folder: str, options: argparse.Namespace) -> None:
    """One process of `size`; rank 0 leaves its figures in a file."""
    device = "cpu" if options.device == "cpu" else f"cuda:{rank}"
    torch.set_num_threads(1)
    if device != "cpu":
        torch.cuda.set_device(rank)
    if size > 1:
        dist.init_process_group(
            "gloo" if device == "cpu" else "nccl",
            init_method=f"file://{folder}/store_{size}",
            rank=rank,
            world_size=size,
        )
    found = measure(options, rank, size, device)
    if rank == 0:
        Path(folder, f"{size}.json").write_text(json.dumps(found))
    if size > 1:
        dist.destroy_process_group()


def main() -> int:
    """Starts the processes of each size, one after another, and prints a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--ranks", type=int, nargs="+", default=[1, 2], help="numbers of processes (1 2)"
    )
    parser.add_argument("--rows", type=int, default=8192, help="of a global batch (8192)")
    parser.add_argument("--width", type=int, default=4096, help="of the layers (4096)")
    parser.add_argument("--steps", type=int, default=10, help="of a round (10)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    options = parser.parse_args()
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for size in options.ranks:
            torch.multiprocessing.spawn(worker, (size, folder, options), nprocs=size)
            found += json.loads(Path(folder, f"{size}.json").read_text())
    for name in CONFIGS:
        if len({each["weights"] for each in found if each["what"] == name}) > 1:
            print(f"{name}: the weights depend on the number of processes, or on who makes pulses")
            return 1
    print("| network | processes | pulses | ms per step | times as fast as the first |")
    print("|---|---|---|---|---|")
    for name in CONFIGS:
        rows = [each for each in found if each["what"] == name]
        for each in rows:
            print(
                f"| {options.width}-{options.width}-{options.width} {name}, {options.rows} rows | "
                f"{each['ranks']} | {each['updates']} | {each['ms']:.2f} | "
                f"{rows[0]['ms'] / each['ms']:.2f} |"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
