"""Trainings with sharded weights, for test_sharded_weights.py.

Called as `distributed_runs.py`, it starts processes, which make all runs together.
"""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from torch import nn

import distributed_cases as cases
import distributed_runs as runs
import pulsora as pl
from distributed_models import LR, SINGLE, data, labels, mlp, outcome, train
from distributed_refusals import message
from pulsora import distributed
from pulsora.distributed.sharded_update import ShardedUpdate
from pulsora.nn import AnalogLinear
from pulsora.optim import AnalogSGD

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from distributed_models import World

LRTT = pl.LRTTConfig(rank=2, visible=pl.devices.SoftBounds(), transfer_every=2)


def deep(config: pl.TileConfig = SINGLE, layers: int = 4, size: int = 12) -> nn.Sequential:
    torch.manual_seed(5)
    make = (AnalogLinear(size, size, bias=False, config=config) for _ in range(layers))
    return nn.Sequential(*(part for layer in make for part in (layer, nn.Tanh())))


class Twice(nn.Module):
    """A layer that a forward pass reads twice, with another one between."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.layer = AnalogLinear(12, 12, config=SINGLE)
        self.other = AnalogLinear(12, 12, config=LRTT)
        self.last = AnalogLinear(12, 6, config=SINGLE, max_input_size=7)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.last(self.layer(self.other(self.layer(x).tanh()).tanh()).tanh())
        return y


def read_twice(world: World) -> dict[str, Any]:
    return outcome(train(world, Twice()))


def only_forward(world: World) -> dict[str, Any]:
    """Forward passes without a backward pass, and evaluations, between steps."""
    model = world.wrap(mlp(LRTT))
    optimizer = AnalogSGD(model.parameters(), lr=LR)
    seen = []
    for step in range(3):
        x = world.mine(data(step, 8, 12))
        model(x)  # never goes back
        loss = nn.functional.cross_entropy(model(x), world.mine(labels(step, 8)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            # The same rows on each rank, whose noise is that of one process.
            seen += [model(data(step, m, 12).to(world.device)).tolist() for m in (1, 5)]
    return outcome(model) | {"seen": seen}


def loaded(world: World) -> dict[str, Any]:
    """A prepared model takes the state of one process, and leaves files for one process."""
    model = world.wrap(mlp())
    model.load_state_dict(torch.load(world.folder / "begun.pt", weights_only=True))
    own = stored(model)
    optimizer = AnalogSGD(model.parameters(), lr=LR)
    for step in range(2, 4):
        loss = nn.functional.cross_entropy(
            model(world.mine(data(step, 8, 12))), world.mine(labels(step, 8))
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if world.size > 1:
        assert own == stored(model)
        pl.save(model, world.folder / "parts")
    return outcome(model)


EXACT: dict[str, Callable[[World], dict[str, Any]]] = {
    run.__name__: run for run in (read_twice, only_forward, loaded)
}


def stored(model: nn.Module) -> list[int]:
    """Bytes that this rank stores of each analog layer."""
    layers = [each for each in model.modules() if isinstance(each, AnalogLinear)]
    return [sum(tile.memory_bytes for tile in layer.tiles) for layer in layers]


def memory(world: World, config: pl.TileConfig) -> dict[str, Any]:
    """Bytes of the tiles of each layer: made, prepared, after reads and a step, in a block."""
    model = deep(config)
    found: dict[str, Any] = {"whole": stored(model)}
    world.wrap(model)
    found["prepared"] = stored(model)
    found["reads"] = []
    for layer in model:
        layer.register_forward_hook(lambda *_: found["reads"].append(stored(model)))
    optimizer = AnalogSGD(model.parameters(), lr=LR)
    for step in range(2):
        found["reads"].clear()
        loss = model(world.mine(data(step, 8, 12))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        found["backward"] = stored(model)
        optimizer.step()
    found["stepped"] = stored(model)
    with distributed.gathered(model):
        found["gathered"] = stored(model)
        with distributed.gathered(model):
            pass
        assert stored(model) == found["gathered"]
    found["after"] = stored(model)
    return found


def resident() -> int:
    """Bytes of this process in memory; what was freed has gone back to the machine."""
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def allocated(world: World) -> list[int]:
    """Bytes that a prepared model of 16 MiB of weights takes: all of them, and sharded."""
    device = pl.devices.SoftBounds(cells="computed")
    found = []
    for weights in ("all", "all", "sharded"):  # the first makes what stays with the process
        before = resident()
        model = deep(pl.SingleConfig(device=device), 4, 1024)
        dataclasses.replace(world, weights=weights, cells="sharded").wrap(model)
        found.append(resident() - before)
        del model
    return found[1:]


def messages(world: World) -> list[int]:
    """Numbers of gathered layers in the second step of a network of four."""
    counts = []
    gather = ShardedUpdate.gather

    def counted(self: ShardedUpdate, group: Any) -> Any:  # noqa: ANN401
        counts[-1] += 1
        return gather(self, group)

    with mock.patch.object(ShardedUpdate, "gather", counted):
        model = world.wrap(deep())
        optimizer = AnalogSGD(model.parameters(), lr=LR)
        for step in range(3):
            counts.append(0)
            model(world.mine(data(step, 8, 12))).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return counts


def refusals(world: World) -> dict[str, str]:
    """The error of this rank for each use of weights that are elsewhere."""
    model = world.wrap(mlp())
    layer, optimizer = model[0], AnalogSGD(model.parameters(), lr=LR)
    mine = stored(model)
    theirs = min(layer.tiles, key=lambda tile: tile.memory_bytes)

    def step() -> None:
        loss = nn.functional.cross_entropy(
            model(world.mine(data(0, 8, 12))), world.mine(labels(0, 8))
        )
        loss.backward()
        optimizer.step()

    def step_in_a_block() -> None:
        with distributed.gathered(model):
            step()

    def alone() -> None:
        with torch.no_grad():
            layer(data(0, 2, 12))

    tries: dict[str, Callable[[], object]] = {
        "weight": lambda: layer.weight,
        "get": layer.get_weights,
        "set": lambda: layer.set_weights(torch.zeros(16, 12), torch.zeros(16)),
        "state_dict": model.state_dict,
        "copy": lambda: copy.deepcopy(model),
        "statistics": layer.statistics,
        "io": lambda: layer.tiles.set_io(forward=pl.IOParameters()),
        "move": lambda: layer.tiles.move(torch.device("cpu")),
        "tile": lambda: theirs.weights,
        "explain": lambda: theirs.explain(data(0, 1, theirs.x_size), data(0, 1, theirs.d_size), LR),
        "alone": alone,
        "block": step_in_a_block,
    }
    found = {name: message(work) for name, work in tries.items()}
    found["nothing changed"] = message(lambda: distributed.check(model))
    optimizer.zero_grad()
    step()
    found["trained"] = str(stored(model) == mine)

    def one_evaluates() -> None:
        if world.rank == 0:
            with torch.no_grad():
                model(data(0, 2, 12))
        else:
            step()

    found["evaluation"] = message(one_evaluates)
    return found


def run_all(world: World) -> dict[str, Any]:
    runs.begin(world)
    found: dict[str, Any] = {"allocated": allocated(world)}
    names = {**cases.EXACT, **EXACT, **(cases.EXACT_OF_TWO if world.size == 2 else {})}
    del names["penalised"]  # reads weights, outside of layers
    for reshards in (True, False):
        own = dataclasses.replace(world, weights="sharded", reshards=reshards)
        found[f"{reshards}"] = {name: run(own) for name, run in names.items()}
        found[f"messages {reshards}"] = messages(own)
    world = dataclasses.replace(world, weights="sharded")
    recording = dataclasses.replace(world, recorded=[])
    found["training steps"] = {run.__name__: run(recording) for run in cases.SIMPLE}
    found["memory"] = {"single": memory(world, SINGLE), "lrtt": memory(world, LRTT)}
    apart = dataclasses.replace(world, weights="all")
    found["digital"] = [cases.with_digital(each) for each in (apart, world)]
    if world.size == 2 and world.device == "cpu":
        found["refusals"] = refusals(world)
    return found


if __name__ == "__main__":
    sys.exit(runs.main(run_all))
