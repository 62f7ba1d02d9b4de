"""Small models, their data and their training by one process or several."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pulsora as pl
from pulsora import distributed
from pulsora.distributed.prepare import _layers, _own_parameters
from pulsora.distributed.process_group import ProcessGroup
from pulsora.distributed.states import states
from pulsora.nn import AnalogLinear
from pulsora.optim import AnalogSGD
from pulsora.training_step import TrainingStep

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

SINGLE = pl.SingleConfig(device=pl.devices.SoftBounds(dw_min=0.002, lifetime=50.0, diffusion=1e-3))
LR = 0.1


def data(step: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1000 + step))


def labels(step: int, rows: int, classes: int = 6) -> Tensor:
    return torch.randint(classes, (rows,), generator=torch.Generator().manual_seed(step))


def mlp(config: pl.TileConfig = SINGLE, **options: Any) -> nn.Sequential:
    torch.manual_seed(5)
    options = {"max_input_size": 7} | options
    return nn.Sequential(
        AnalogLinear(12, 16, config=config, **options),
        nn.ReLU(),
        AnalogLinear(16, 6, config=config, **options),
    )


def perfect() -> pl.TileConfig:
    """Weights in floating point: what depends on their rounding shows no more than that."""
    io = pl.IOParameters(is_perfect=True)
    return pl.IdealConfig(forward=io, backward=io)


@dataclasses.dataclass
class World:
    """The processes that train: this one, or `size` of them."""

    rank: int = 0
    size: int = 1
    prepares: bool = False
    folder: Path = Path()
    updates: str = "auto"
    cells: str = "all"
    weights: str = "all"
    reshards: bool = True
    exchanges: bool = False
    """Whether changes go as in recorded steps, for updates = 'shared'."""
    device: str = "cpu"
    recorded: list[int] | None = None
    """If given, training is by TrainingStep, and the numbers of its graphs are appended."""

    def wrap(self, model: nn.Module, **options: Any) -> nn.Module:
        """The model as a user would prepare it."""
        model.to(self.device)
        if not self.prepares:
            return model
        options |= {"updates": self.updates, "cells": self.cells, "weights": self.weights}
        distributed.prepare(model, reshard_after_forward=self.reshards, **options)
        own = _own_parameters(model)
        digital = [p for n, p in model.named_parameters() if n not in own and p.requires_grad]
        is_alone = self.size == 1 or self.recorded is not None  # a TrainingStep averages itself
        return DistributedDataParallel(model) if digital and not is_alone else model

    def mine(self, x: Tensor, counts: Sequence[int] = (), dim: int = 0) -> Tensor:
        """This rank's rows; as many for each rank, unless counts (of two ranks) say otherwise."""
        if self.size == 1:
            return x.to(self.device)
        rows = x.shape[dim]
        each = list(counts) or [rows // self.size] * self.size
        assert sum(each) == rows
        return x.split(each, dim)[self.rank].to(self.device)


def outcome(model: nn.Module) -> dict[str, Any]:
    """Digests of everything that belongs to analog layers, and the numbers of other parameters."""
    model = getattr(model, "module", model)
    layers = _layers(model)
    own = _own_parameters(model)
    digital = {n: p.tolist() for n, p in model.named_parameters() if n not in own}
    with whole(model):
        return states(model, layers, own, without_cells=True) | digital


def whole(model: nn.Module) -> contextlib.AbstractContextManager[None]:
    """A block in which every rank has all weights."""
    model = getattr(model, "module", model)
    prepared = hasattr(model, "_pulsora_process_group")
    return distributed.gathered(model) if prepared else contextlib.nullcontext()


def train(
    world: World,
    model: nn.Module,
    steps: range = range(4),
    counts: Callable[[int], Sequence[int]] = lambda _: (),
    **options: Any,
) -> nn.Module:
    """Steps on a global batch of 8 rows."""
    model = world.wrap(model, **options)
    optimizer = AnalogSGD(model.parameters(), lr=LR)
    make = TrainingStep(model, optimizer, nn.functional.cross_entropy)
    for step in steps:
        x, y = (
            world.mine(data(step, 8, 12), counts(step)),
            world.mine(labels(step, 8), counts(step)),
        )
        if world.recorded is not None:
            make(x, y)
            world.recorded.append(make.recorded_shapes)
            continue
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        if world.exchanges:
            step_and_exchange(model, optimizer)
        else:
            optimizer.step()
    return model


def step_and_exchange(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """A step whose changes go to the other ranks as those of a recorded step."""
    group: Any = getattr(model, "module", model)._pulsora_process_group
    with (
        mock.patch.object(ProcessGroup, "_records", return_value=True),
        mock.patch.object(ProcessGroup, "stepped"),
    ):
        optimizer.step()
    shared = [array for array in group._arrays.values() if id(array) in group.updates]
    if shared:
        group.recorded_exchange(shared).exchange_numbers()
    group.stepped()


def processes(program: str, count: int, folder: Path, device: str = "cpu") -> list[dict[str, Any]]:
    """The results of each of several processes, by a program of ours, in all of its runs."""
    begun = train(World(device=device), mlp(), range(2))
    torch.save(begun.state_dict(), folder / "begun.pt")
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, program, str(count), folder, device],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(count)]
