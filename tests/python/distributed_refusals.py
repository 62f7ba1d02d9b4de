"""Errors in a training by several processes, for distributed_runs.py."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch
from torch import nn

import pulsora as pl
from distributed_models import LR, data, labels, mlp
from pulsora import distributed
from pulsora.nn import AnalogLinear, AnalogLSTM
from pulsora.optim import AnalogSGD

if TYPE_CHECKING:
    from collections.abc import Callable


def message(work: Callable[[], object]) -> str:
    try:
        work()
    except (ValueError, RuntimeError, UserWarning) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was raised"


def refusals(rank: int) -> dict[str, str]:  # noqa: C901, PLR0915 - one function for each
    """The error raised on this rank, for each fault."""

    def other_seed() -> None:
        torch.manual_seed(rank)
        distributed.prepare(AnalogLinear(3, 2))

    def other_config() -> None:
        config = pl.SingleConfig(device=pl.devices.SoftBounds(dw_min=0.001 * (1 + rank)))
        distributed.prepare(
            nn.Sequential(AnalogLinear(3, 2, seed=1), AnalogLinear(2, 2, config=config, seed=1))
        )

    def other_weights() -> None:
        model = mlp()
        with torch.no_grad():
            model[2].bias[0] += rank
        distributed.prepare(model)

    def other_layers() -> None:
        distributed.prepare(nn.Sequential(*[AnalogLinear(3, 3, seed=1) for _ in range(1 + rank)]))

    def without_average() -> None:
        model = mlp().append(nn.Linear(6, 6))
        distributed.prepare(model)(data(0, 4, 12))

    def outside() -> None:
        model = distributed.prepare(mlp())
        model[0](data(0, 4, 12))

    def other_shapes() -> None:
        distributed.prepare(nn.Sequential(AnalogLinear(3, 3, seed=1)))(data(0, 2, 3 + rank, 3))

    def batch_second() -> None:
        distributed.prepare(nn.Sequential(AnalogLinear(3, 3, seed=1)), batch_dim=1)(
            data(0, 5, 2, 3)
        )

    def packed() -> None:
        torch.manual_seed(1)
        model = distributed.prepare(AnalogLSTM(3, 4))
        sequences = [data(0, 3, 3), data(1, 2, 3)]
        model(nn.utils.rnn.pack_sequence(sequences))

    def diverged() -> None:
        model = distributed.prepare(mlp(), check_every=2)
        optimizer = AnalogSGD(model.parameters(), lr=LR)
        for step in range(2):
            nn.functional.cross_entropy(model(data(step, 4, 12)), labels(step, 4)).backward()
            if step == 1 and rank == 1:
                model[2].tiles.grid[0][0].reset_columns("visible", 0, 1)
            optimizer.step()

    def other_gradients() -> None:
        model, optimizer = begun()
        if rank == 1:
            model[2].analog_weight.grad = None
        before = model.state_dict()
        try:
            optimizer.step()
        finally:
            after = model.state_dict()
            if any(not torch.equal(after[name], values) for name, values in before.items()):
                raise AssertionError("a refused step has changed the model")

    def no_gradients() -> None:
        _, optimizer = begun()
        if rank == 1:
            optimizer.zero_grad()
        optimizer.step()

    def no_step() -> None:
        model, optimizer = begun()
        if rank == 0:
            optimizer.step()
        else:
            model(data(1, 4, 12))

    def begun() -> tuple[nn.Module, AnalogSGD]:
        model = distributed.prepare(mlp())
        optimizer = AnalogSGD(model.parameters(), lr=LR)
        nn.functional.cross_entropy(model(data(0, 4, 12)), labels(0, 4)).backward()
        return model, optimizer

    def unprepared() -> None:
        model = mlp()
        model(data(0, 4, 12)).sum().backward()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            AnalogSGD(model.parameters(), lr=LR).step()

    work = (
        unprepared,
        other_seed,
        other_config,
        other_weights,
        other_layers,
        without_average,
        outside,
        other_shapes,
        batch_second,
        packed,
        diverged,
        other_gradients,
        no_gradients,
        no_step,
    )
    return {each.__name__: message(each) for each in work}
