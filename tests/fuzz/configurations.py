"""Configurations of hostile and random values; tiles are made of the accepted ones and used."""

from __future__ import annotations

import copy
import json
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np

import pulsora as pl
from pulsora.config import CLASSES
from tests.fuzz import generators
from tests.fuzz.checks import (
    REFUSALS,
    exercise,
    require,
    require_finite,
    require_same_future,
)
from tests.fuzz.random_source import plain_values

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsora._internal.parameters import Parameters
    from tests.fuzz.random_source import Draws


def run(draws: Draws) -> None:
    value_of = draws.pick((generators.plausible, generators.extreme, generators.hostile))
    made = _made(draws, value_of)
    if made is None:
        return
    _same_by_every_way(draws, made)
    if draws.chance(0.5):
        _change(draws, made)
        _same_by_every_way(draws, made)
    if isinstance(made, pl.TileConfig) and draws.chance(0.25):
        _use(draws, made, moderate=value_of is generators.plausible)


def _made(draws: Draws, value_of: generators.ValueOf) -> Parameters | None:
    """An object of a class of parameters, by one of the ways in, or None if it is refused."""
    if value_of is generators.hostile and draws.chance(0.05):
        way = draws.pick((
            pl.TileConfig.from_dict, pl.devices.Device.from_dict, pl.SingleConfig.from_dict,
            pl.IOParameters.from_dict,
        ))  # fmt: skip
        return _tried(draws, way, draws.pick(plain_values(draws)))
    what = draws.integer(0, 4)
    if what == 4:
        values = generators.noise_model_values(draws, value_of)
        if values["model"] not in generators.NOISE_MODELS or draws.chance(0.5):
            return _tried(draws, pl.noise_models.NoiseModel.from_dict, values)
        by_name = getattr(pl.noise_models, values["model"])
        return _called(draws, by_name, {n: v for n, v in values.items() if n != "model"})
    if what == 0:
        values = generators.device_values(draws, value_of)
        if values["model"] not in generators.MODELS or draws.chance(0.5):
            return _tried(draws, pl.devices.Device.from_dict, values)
        by_name = getattr(pl.devices, values["model"])
        return _called(draws, by_name, {n: v for n, v in values.items() if n != "model"})
    if what == 1:
        by_name = draws.pick((pl.IOParameters, pl.UpdateParameters))
        values = generators.values_of(
            draws, generators.SCHEMA["structs"][by_name.__name__], value_of
        )
        return (
            _tried(draws, by_name.from_dict, values)
            if draws.chance(0.5)
            else _called(draws, by_name, values)
        )
    values = generators.config_values(draws, value_of)
    if values["kind"] not in generators.KINDS or draws.chance(0.5):
        return _tried(draws, pl.TileConfig.from_dict, values)
    return _called(draws, CLASSES[values["kind"]], {n: v for n, v in values.items() if n != "kind"})


def _called(draws: Draws, by_name: type, values: dict[Any, Any]) -> Parameters | None:
    names = {str(name): value for name, value in values.items()}
    return _tried(draws, lambda: by_name(**names), note=(by_name.__name__, names))


def _tried(
    draws: Draws,
    make: Callable[..., Parameters],
    *arguments: object,
    note: tuple[object, ...] | None = None,
) -> Parameters | None:
    draws.note(*(note or (make, *arguments)))
    try:
        return make(*arguments)
    except (pl.ConfigError, TypeError) as error:
        require(str(error), "a refusal without a word")
        return None


def _same_by_every_way(draws: Draws, made: Parameters) -> None:
    """Plain values, and now and then JSON, pickle and copies, lead back to the same object."""
    values = made.to_dict()
    again = type(made).from_dict(values)
    require(again == made, f"from_dict(to_dict()) gives {again!r} instead of {made!r}")
    require(again.to_dict() == values, "to_dict() of what from_dict() gave differs")
    if draws.chance(0.8):
        return
    text = json.dumps(values)
    require(json.loads(text) == values, "the plain values change as JSON")
    require(pickle.loads(pickle.dumps(made)) == made, "a pickled copy differs")  # noqa: S301
    require(copy.deepcopy(made) == made, "a deep copy differs")
    require(repr(again) == repr(made), "two equal objects show differently")


def _change(draws: Draws, made: Parameters) -> None:
    """Sets an attribute; a value that is refused leaves the object as it was."""
    before = made.to_dict()
    field = draws.pick(list(made._fields.values()))
    name = "no_such_name" if draws.chance(0.05) else field["name"]
    value = (
        draws.pick(plain_values(draws)) if draws.chance(0.5) else generators.hostile(draws, field)
    )
    draws.note("set", name, value)
    try:
        setattr(made, name, value)
    except (pl.ConfigError, TypeError):
        require(made.to_dict() == before, f"{name} was refused, but the object has changed")


def _use(draws: Draws, made: pl.TileConfig, *, moderate: bool) -> None:
    sizes = [draws.integer(1, 9), draws.integer(1, 9)]
    seed = draws.integer(0, 9)
    draws.note("Tile", sizes, "seed", seed, made)
    try:
        tile = pl.Tile(*sizes, made, seed=seed, threads=draws.integer(1, 2))
    except REFUSALS:
        return
    require(tile.config == made, f"the tile's configuration is {tile.config!r} instead of {made!r}")
    work = exercise(tile, draws)
    for _ in range(draws.integer(1, 3)):
        work(tile)
    if moderate:
        if tile.programming is not None:
            tile.programming.unprogram()  # weights were updated
        require_finite("weights", tile.weights)
        require_finite("a read", tile.forward(np.ones(tile.x_size, np.float32)))
    require_same_future(tile, draws)
