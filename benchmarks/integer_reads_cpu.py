"""Times reads in integers beside reads in floating point, on one core of a CPU.

`taskset -c 0 python benchmarks/integer_reads_cpu.py [NAME ...]` prints whole training steps and
single reads for each instruction set: microseconds in floating point (`weight_bits=32`), in
integers of 24 bits (the default), and their ratio. Both take turns in one process, and a time is
the least of all turns. Results are compared first. NAME chooses the cases that contain it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

import pulsora as pl
from pulsora import _core

if TYPE_CHECKING:
    from collections.abc import Iterator

TURNS = 35
SECONDS = 0.05
"""Time of one turn."""

Step = Callable[[], object]
MakeStep = Callable[[object, str], Step]
"""Makes a step for a value of weight_bits and an instruction set."""


def config_of(kind: str, bits: object) -> pl.config.TileConfig:
    """Return the settings of all tiles of a case."""
    io = pl.IOParameters(weight_bits=bits)
    if kind == "SoftBounds":
        return pl.SingleConfig(device=pl.devices.SoftBounds(), forward=io, backward=io)
    return pl.LRTTConfig(rank=8, transfer_every=1000, forward=io, backward=io)


def mlp(config: pl.config.TileConfig) -> nn.Module:
    """Return a perceptron 784-256-128-10."""
    sizes = [784, 256, 128, 10]
    parts: list[nn.Module] = []
    for i in range(3):
        layer = pl.nn.AnalogLinear(sizes[i], sizes[i + 1], config=config, seed=i + 1)
        parts += [layer, nn.Sigmoid()]
    return nn.Sequential(*parts[:-1])


def lenet(config: pl.config.TileConfig) -> nn.Module:
    """Return LeNet-5."""
    return nn.Sequential(
        pl.nn.AnalogConv2d(1, 16, 5, config=config, seed=1), nn.Tanh(), nn.MaxPool2d(2),
        pl.nn.AnalogConv2d(16, 32, 5, config=config, seed=2), nn.Tanh(), nn.MaxPool2d(2),
        nn.Flatten(),
        pl.nn.AnalogLinear(512, 128, config=config, seed=3), nn.Tanh(),
        pl.nn.AnalogLinear(128, 10, config=config, seed=4),
    )  # fmt: skip


def set_instruction_set(tile: pl.Tile, isa: str) -> None:
    """Make a tile compute with an instruction set."""
    tile._core.instruction_set = isa  # noqa: SLF001 - for measurements alone


def training(model: nn.Module, shape: tuple[int, ...], isa: str) -> Step:
    """Return a training step of a model."""
    optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.05)
    for layer in model.modules():
        for tile in getattr(layer, "tiles", []):
            set_instruction_set(tile, isa)
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


def read(rows: int, direction: str, config: pl.config.TileConfig, isa: str) -> Step:
    """Return a read of a tile."""
    tile = pl.Tile(512, 512, config, seed=1)
    set_instruction_set(tile, isa)
    x = np.random.default_rng(0).normal(size=(rows, 512)).astype(np.float32)
    return lambda: tile.backward(x) if direction == "backward" else tile.forward(x)


def step_of(kind: str, model: Callable[..., nn.Module], shape: tuple[int, ...]) -> MakeStep:
    """Return what makes a training step."""
    return lambda bits, isa: training(model(config_of(kind, bits)), shape, isa)


def read_of(kind: str, rows: int, direction: str) -> MakeStep:
    """Return what makes a read."""
    return lambda bits, isa: read(rows, direction, config_of(kind, bits), isa)


def cases() -> Iterator[tuple[str, MakeStep]]:
    """Yield all cases with their names."""
    for kind in ("SoftBounds", "LRTT"):
        for rows in (32, 128):
            yield f"MLP, batch {rows}, {kind}", step_of(kind, mlp, (rows, 784))
        yield f"LeNet-5, batch 64, {kind}", step_of(kind, lenet, (64, 1, 28, 28))
        for rows in (1, 8, 64):
            for direction in ("forward", "backward"):
                name = f"{rows} x 512 -> 512, {direction}, {kind}"
                yield name, read_of(kind, rows, direction)


def least(steps: list[Step]) -> list[float]:
    """Return the least seconds of each step, which take turns."""
    counts = []
    for step in steps:
        start = time.perf_counter()
        step()
        counts.append(max(1, int(SECONDS / (time.perf_counter() - start))))
    best = [float("inf")] * len(steps)
    for _ in range(TURNS):
        for i, step in enumerate(steps):
            start = time.perf_counter()
            for _ in range(counts[i]):
                step()
            best[i] = min(best[i], (time.perf_counter() - start) / counts[i])
    return best


def main() -> None:
    """Measure."""
    torch.set_num_threads(1)
    chosen = sys.argv[1:]
    for name, make in cases():
        if chosen and not any(part in name for part in chosen):
            continue
        for isa in _core.instruction_sets():
            steps = [make(bits, isa) for bits in (32, "auto")]
            results = [np.asarray(step()) for step in steps]
            np.testing.assert_allclose(*results, atol=0.2)  # a level of the ADC is 0.05 alpha
            old, new = (1e6 * seconds for seconds in least(steps))
            print(f"| {name} | {isa} | {old:.0f} | {new:.0f} | {new / old:.2f} |", flush=True)


if __name__ == "__main__":
    main()
