"""Chains of copies, states, pickles, conversions and new seeds: who has whose cells and noise."""

from __future__ import annotations

import copy
import io
import pickle
from typing import TYPE_CHECKING, Any

import torch

import pulsora as pl
from tests.fuzz import models
from tests.fuzz.checks import require
from tests.fuzz.random_source import plain_values

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from tests.fuzz.models import Training
    from tests.fuzz.random_source import Draws

PROBE = "probe"
"""Name of a layer whose reads are noisy and whose cells differ, whatever the others are."""


def run(draws: Draws) -> None:
    made = models.model(draws)
    made.add_module(
        PROBE, pl.nn.AnalogLinear(models.WIDTH, models.WIDTH, config=pl.SingleConfig(), threads=1)
    )
    training = models.training(draws, made)
    if draws.chance(0.5) and _learns(training):
        return
    original = _state(made)
    twin = made
    for _ in range(draws.integer(1, 4)):
        name = draws.pick(list(TWINS))
        draws.note(name)
        twin = TWINS[name](twin)
        models.require_equal(original, _state(twin), f"{name} gives another state")
    future = _future(training, made)
    require(_future(training, twin) == future, "a twin continues differently")
    _reseeded(draws, training, twin)
    _converted(draws, training, twin)
    models.require_equal(original, _state(made), "a copy was used, and the original has changed")
    require(
        _future(training, made) == future, "a copy was used, and the original goes on otherwise"
    )


def _learns(training: Training) -> bool:
    """Whether a step of training is refused."""
    try:
        training.backward()
        training.optimizer.step()
    except models.DOCUMENTED:
        return True
    finally:
        training.optimizer.zero_grad()
    return False


def _reseeded(draws: Draws, training: Training, made: nn.Sequential) -> None:
    """New seeds of copies: equal ones give twins, others other noise, and other cells if asked."""
    seed, cells = draws.pick((0, 1, 7, 2**40, 2**63 - 1)), draws.chance(0.5)
    draws.note("reseed", seed, "cells", cells)
    first, second, third = (copy.deepcopy(made) for _ in range(3))
    require(pl.reseed(first, seed, cells=cells) is first, "reseed returns another model")
    pl.reseed(second, seed, cells=cells)
    pl.reseed(third, seed // 2 + 1_000_003, cells=cells)
    models.require_equal(_state(first), _state(second), "equal seeds give unequal states")
    wanted = _future(training, first)
    require(_future(training, second) == wanted, "equal seeds continue differently")
    for other in (made, third):
        require(_probe(training, first) != _probe(training, other), "another seed has equal noise")
        has_equal_cells = _cells(first) == _cells(other)
        require(has_equal_cells != cells, "reseed has new cells, or has not where it was asked to")
    if not cells:
        before, after = (
            {name: value for name, value in _state(each).items() if not name.endswith(".values")}
            for each in (made, first)
        )
        models.require_equal(before, after, "reseed changes more than seeds")
    before = _state(first)
    bad: Any = draws.pick([-1, 2**63, 0.5, "1", *plain_values(draws)])
    try:
        pl.reseed(first, bad)
    except (ValueError, TypeError) as error:
        draws.note("refused", str(error))
        models.require_equal(before, _state(first), "a seed was refused, but has changed")
    first.load_state_dict(made.state_dict())
    models.require_equal(_state(made), _state(first), "a state that is loaded keeps the new seeds")
    require(_future(training, made) == _future(training, first), "a loaded state goes on otherwise")


def _converted(draws: Draws, training: Training, made: nn.Sequential) -> None:
    """Conversions give equal models for equal seeds, other noise and cells for other seeds."""
    digital = pl.convert_to_digital(made)
    config, seed = models.tile_config(draws), draws.integer(0, 99)
    draws.note("convert", config, seed)

    def choose(name: str, _layer: nn.Module) -> pl.TileConfig:
        return pl.SingleConfig() if name == PROBE else config

    try:
        first, second, other = (
            pl.convert_to_analog(digital, choose, seed=each, threads=1)
            for each in (seed, seed, seed + 1)
        )
    except models.DOCUMENTED as error:
        draws.note("refused", type(error).__name__, str(error))
        return
    models.require_equal(_state(first), _state(second), "equal seeds convert to unequal states")
    wanted = _future(training, first)
    require(_future(training, second) == wanted, "equal seeds continue differently")
    require(_cells(first) != _cells(other), "another seed converts to equal cells")
    require(_probe(training, first) != _probe(training, other), "another seed has equal noise")


def _state(made: nn.Module) -> dict[str, Any]:
    return {name: models.plain(value) for name, value in made.state_dict().items()}


def _cells(made: nn.Module) -> object:
    """Bounds of the probe's cells."""
    cells = made.get_submodule(PROBE).tiles.grid[0][0].describe_cells()
    return models.plain([cells["w_max"], cells["w_min"]])


def _probe(training: Training, made: nn.Module) -> object:
    """A read of a copy of the probe."""
    return models.plain(copy.deepcopy(made.get_submodule(PROBE))(training.x))


def _future(training: Training, made: nn.Sequential) -> list[object]:
    """Reads and a step of a copy, and its state then, or the refusal that they end with."""
    future = copy.deepcopy(made)
    optimizer = pl.optim.AnalogSGD(future.parameters(), lr=0.05)
    found: list[object] = []
    try:
        found += [models.plain(future(training.x)) for _ in range(2)]
        future(training.x).square().mean().backward()
        optimizer.step()
        found.append(_state(future))
    except models.DOCUMENTED as error:
        found.append(str(error))
    return found


def _through_state(made: nn.Sequential) -> nn.Sequential:
    """Another model, with other cells and noise, that loads the state."""
    file = io.BytesIO()
    torch.save(made.state_dict(), file)
    file.seek(0)
    other = pl.reseed(copy.deepcopy(made), 77, cells=True)
    other.load_state_dict(torch.load(file, weights_only=True))
    return other


TWINS: dict[str, Callable[[nn.Sequential], nn.Sequential]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda made: pickle.loads(pickle.dumps(made)),  # noqa: S301
    "state": _through_state,
    "to": lambda made: copy.deepcopy(made).to("cpu"),
    "convert": lambda made: pl.convert_to_analog(made, lambda _name, _layer: None),
}
"""Ways to a model with the cells, counters and noise of another one."""
