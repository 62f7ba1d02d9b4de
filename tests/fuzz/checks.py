"""Checks that must pass for every input."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

import pulsora as pl
from pulsora import state as states

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tests.fuzz.random_source import Draws

REFUSALS = (
    pl.ConfigError,
    pl.InputError,
    pl.StateError,
    pl.DeviceError,
    pl.OutOfMemoryError,
    TypeError,
)
"""The documented ways to say no; a target adds those that are documented for single members."""


class Planted(Exception):  # noqa: N818 - what it is
    """Raised by the methods of hostile objects; it must reach the caller unchanged."""


class Broken(AssertionError):  # noqa: N818 - an invariant is
    """Something that must hold does not."""


def require(holds: object, what: str) -> None:
    if not holds:
        raise Broken(what)


def plain_state(saved: states.State) -> tuple[dict[str, tuple[str, tuple[int, ...], bytes]], str]:
    """Every bit of a state, in a form that compares."""
    tensors = {
        name: (array.dtype.str, array.shape, array.tobytes())
        for name, array in saved.tensors.items()
    }
    return tensors, json.dumps(saved.values, sort_keys=True)


def bits(tile: pl.Tile) -> object:
    """Every bit of a tile's state, to compare before and after."""
    try:
        return plain_state(tile.state())
    except pl.StateError:  # its numbers have become infinite, and it says so
        return {name: array.tobytes() for name, array in _arrays(tile).items()}, tile.counters


def _arrays(tile: pl.Tile) -> dict[str, NDArray[np.float32]]:
    return {"weights": tile.weights, **tile.arrays}


def outcome(call: Callable[[], Any]) -> object:
    """The result of a call, comparable: bytes of an array, or the type of a refusal."""
    try:
        given = call()
    except REFUSALS as error:
        return type(error).__name__
    return given.tobytes() if isinstance(given, np.ndarray) else given


def exercise(tile: pl.Tile, draws: Draws) -> Callable[[pl.Tile], list[object]]:
    """A mini-batch of every operation, with inputs drawn once, for any number of equal tiles."""
    rows = draws.integer(1, 4)
    x = draws.normal(rows, tile.x_size)
    d = draws.normal(rows, tile.d_size, scale=0.1)

    def work(tile: pl.Tile) -> list[object]:
        programming = tile.programming
        if programming is not None:
            outcome(lambda: programming.program(rows))
            outcome(lambda: programming.drift(60.0 * rows))
        return [
            outcome(lambda: tile.forward(x)),
            outcome(lambda: tile.backward(d)),
            outcome(lambda: tile.update(x, d, 0.05)),
            outcome(lambda: tile.weights),
            repr(tile.statistics()),
        ]

    return work


def overflows(tile: pl.Tile) -> bool:
    """Whether weights of a tile have become infinite."""
    return any(not np.isfinite(array).all() for array in _arrays(tile).values())


def require_same_future(tile: pl.Tile, draws: Draws) -> None:
    """A saved and loaded tile has the bits of the original, and goes on with them.

    A tile whose numbers have become infinite refuses to be saved.
    """
    try:
        saved = tile.state()
    except pl.StateError:
        require(overflows(tile), "a tile of finite weights cannot be saved")
        return
    data = states.dumps(saved)
    try:
        loaded = pl.Tile.from_state(states.loads(data), threads=draws.integer(1, 2))
    except REFUSALS as error:
        raise Broken(f"what was saved cannot be loaded: {type(error).__name__}: {error}") from error
    require(bits(loaded) == bits(tile), "what was loaded differs from what was saved")
    work = exercise(tile, draws)
    first, second = work(tile), work(loaded)
    require(first == second, "what was loaded goes on differently from what was saved")
    require(bits(loaded) == bits(tile), "what was loaded and goes on ends differently")


def require_finite(name: str, array: NDArray[Any]) -> None:
    require(np.isfinite(array).all(), f"{name} is not finite")
