"""Times reads in integers beside reads in floating point, on one core of a CPU.

`taskset -c 0 python benchmarks/integer_reads_cpu.py [NAME ...]` prints whole training steps and
single reads for each instruction set: microseconds in floating point (`weight_bits=32`), in
integers of 24 bits (the default), and their ratio. Both take turns, in one process; a time is the
least of all rounds. Before, results of both are compared. NAME chooses cases that contain it.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

import pulsora as pl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROUNDS = 7
SECONDS = 0.25
"""Time of one case in one round."""

Step = "Callable[[], object]"


def config_of(name: str, bits: int | str) -> pl.SingleConfig | pl.LRTTConfig:
    io = pl.IOParameters(weight_bits=bits)
    if name == "SoftBounds":
        return pl.SingleConfig(device=pl.devices.SoftBounds(), forward=io, backward=io)
    return pl.LRTTConfig(rank=8, transfer_every=1000, forward=io, backward=io)


def mlp(config: pl.SingleConfig | pl.LRTTConfig) -> nn.Module:
    def layer(inputs: int, outputs: int, seed: int) -> nn.Module:
        return pl.nn.AnalogLinear(inputs, outputs, config=config, seed=seed)

    sizes = [784, 256, 128, 10]
    parts: list[nn.Module] = []
    for i in range(3):
        parts += [layer(sizes[i], sizes[i + 1], i + 1), nn.Sigmoid()]
    return nn.Sequential(*parts[:-1])


def lenet(config: pl.SingleConfig | pl.LRTTConfig) -> nn.Module:
    return nn.Sequential(
        pl.nn.AnalogConv2d(1, 16, 5, config=config, seed=1), nn.Tanh(), nn.MaxPool2d(2),
        pl.nn.AnalogConv2d(16, 32, 5, config=config, seed=2), nn.Tanh(), nn.MaxPool2d(2),
        nn.Flatten(),
        pl.nn.AnalogLinear(512, 128, config=config, seed=3), nn.Tanh(),
        pl.nn.AnalogLinear(128, 10, config=config, seed=4),
    )  # fmt: skip


def training(model: nn.Module, shape: tuple[int, ...], isa: str) -> Callable[[], object]:
    optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.05)
    for tile in (tile for layer in model.modules() for tile in getattr(layer, "tiles", [])):
        tile._core.instruction_set = isa
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(shape, generator=generator)
    y = torch.randint(10, shape[:1], generator=generator)

    def step() -> object:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def read(rows: int, backward: bool, config: pl.SingleConfig, isa: str) -> Callable[[], object]:
    tile = pl.Tile(512, 512, config, seed=1)
    tile._core.instruction_set = isa
    x = np.random.default_rng(0).normal(size=(rows, 512)).astype(np.float32)
    return lambda: tile.backward(x) if backward else tile.forward(x)


def cases() -> Iterator[tuple[str, Callable[[int | str, str], Callable[[], object]]]]:
    for kind in ("SoftBounds", "LRTT"):
        for rows in (32, 128):
            yield (
                f"MLP, batch {rows}, {kind}",
                lambda bits, isa, rows=rows, kind=kind: training(
                    mlp(config_of(kind, bits)), (rows, 784), isa
                ),
            )
        yield (
            f"LeNet-5, batch 64, {kind}",
            lambda bits, isa, kind=kind: training(
                lenet(config_of(kind, bits)), (64, 1, 28, 28), isa
            ),
        )
    for rows in (1, 8, 64):
        for backward in (False, True):
            name = f"{rows} x 512 -> 512, {'backward' if backward else 'forward'}"
            for kind in ("SoftBounds", "LRTT") if rows == 1 else ("SoftBounds",):
                yield (
                    f"{name}, {kind}",
                    lambda bits, isa, rows=rows, back=backward, kind=kind: read(
                        rows, back, config_of(kind, bits), isa
                    ),
                )


def least(steps: list[Callable[[], object]]) -> list[float]:
    counts, best = [], [float("inf")] * len(steps)
    for step in steps:
        start = time.perf_counter()
        step()
        counts.append(max(1, int(SECONDS / 5 / (time.perf_counter() - start))))
    for _ in range(ROUNDS * 5):
        for i, step in enumerate(steps):
            start = time.perf_counter()
            for _ in range(counts[i]):
                step()
            best[i] = min(best[i], (time.perf_counter() - start) / counts[i])
    return best


def main() -> None:
    torch.set_num_threads(1)
    chosen = sys.argv[1:]
    isas = (
        pl.Tile(1, 1)._core.supported_instruction_sets()
        if False
        else ["V2", "V3", "V4", "V4Popcnt"]
    )
    for name, make in cases():
        if chosen and not any(part in name for part in chosen):
            continue
        for isa in isas:
            steps = [make(bits, isa) for bits in (32, "auto")]
            first = [step() for step in steps]
            np.testing.assert_allclose(np.asarray(first[0]), np.asarray(first[1]), atol=0.2)
            times = [1e6 * t for t in least(steps)]
            print(
                f"| {name} | {isa} | {times[0]:.0f} | {times[1]:.0f} | {times[1] / times[0]:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
