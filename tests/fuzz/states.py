"""Saved states with damaged bytes, headers, tensors and values; those that load are used."""

from __future__ import annotations

import contextlib
import json
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

import pulsora as pl
from pulsora import state as states
from tests.fuzz import generators
from tests.fuzz.checks import bits, exercise, require, require_same_future
from tests.fuzz.random_source import Draws, plain_values

if TYPE_CHECKING:
    from collections.abc import Callable

BASES = 40


@cache
def base(number: int) -> states.State:
    """The state of some tile that has worked."""
    draws = Draws("a state to damage", number)
    tile = generators.tile(draws, generators.config(draws), largest=5)
    work = exercise(tile, draws)
    for _ in range(draws.integer(0, 3)):
        work(tile)
    return tile.state()


@cache
def _file(number: int) -> bytes:
    return states.dumps(base(number))


def run(draws: Draws) -> None:
    number = draws.integer(0, BASES - 1)
    draws.note("the state of base", number)
    damage: Callable[[Draws, int], states.State | None] = draws.pick(
        (damaged_bytes, damaged_header, damaged_tensors, damaged_values)
    )
    try:
        damaged = damage(draws, number)
    except pl.StateError as error:
        require(str(error), "a refusal without a word")
        return
    if damaged is None:
        return
    if draws.chance(0.8):  # otherwise the checksum is all that is ever looked at
        draws.note("signed")
        try:
            damaged = damaged.signed()
        except pl.StateError as error:
            require(str(error), "a refusal without a word")
            return
    _load(draws, number, damaged)


def _load(draws: Draws, number: int, damaged: states.State) -> None:
    if draws.chance(0.5):
        tile = pl.Tile.from_state(base(number), threads=1)
        before = bits(tile)
        try:
            tile.load_state(damaged)
        except pl.StateError:
            require(bits(tile) == before, "a state was refused, but the tile has changed")
            return
    else:
        try:
            tile = pl.Tile.from_state(damaged, threads=1)
        except (pl.StateError, pl.OutOfMemoryError):
            return
    draws.note("loaded")
    require_same_future(tile, draws)


def damaged_bytes(draws: Draws, number: int) -> states.State | None:
    data = bytearray(_file(number))
    for _ in range(draws.pick((1, 1, 1, 2, 5))):
        _damage_bytes(draws, data)
    return states.loads(bytes(data))


def _damage_bytes(draws: Draws, data: bytearray) -> None:
    at = draws.integer(0, max(0, len(data) - 1))
    if draws.chance(0.5):  # the header is what makes the difference
        at = min(at, draws.integer(0, 2000))
    size = draws.pick((1, 1, 2, 8, 100))
    what = draws.integer(0, 5)
    draws.note("bytes: damage", what, "of", size, "at", at)
    if what == 0 and data:
        data[min(at, len(data) - 1)] ^= 1 << draws.integer(0, 7)
    elif what == 1:
        data[at : at + size] = draws.arrays.bytes(size)
    elif what == 2:
        del data[at : at + size]
    elif what == 3:
        del data[at:]
    elif what == 4:
        data[at:at] = draws.pick((b"\0", b'"', b"[[", b"9" * size, data[:size], b"null", b"1e999"))
    else:
        data[at : at + size] = _file(draws.integer(0, BASES - 1))[at : at + size]


def damaged_header(draws: Draws, number: int) -> states.State | None:
    data = _file(number)
    length = int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8 : 8 + length])
    for _ in range(draws.pick((1, 1, 2))):
        _damage_tree(draws, header)
    try:
        text = json.dumps(header, default=str).encode()
    except (ValueError, TypeError):  # what JSON cannot say, such as a list that contains itself
        return None
    draws.note("header", text)
    size = len(text) if draws.chance(0.95) else draws.pick((0, len(text) - 1, 2**63, 2**64 - 1))
    return states.loads(size.to_bytes(8, "little") + text + data[8 + length :])


def _damage_tree(draws: Draws, tree: dict[str, Any]) -> None:
    """Changes one entry of a tree of dicts and lists, at any depth."""
    holder: Any = tree
    while True:
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys:
            return
        key = draws.pick(keys)
        if isinstance(holder[key], dict | list) and draws.chance(0.8):
            holder = holder[key]
            continue
        break
    old = holder[key]
    if isinstance(old, str) and old.startswith("{") and draws.chance(0.8):
        try:
            inner = json.loads(old)
        except ValueError:
            return
        _damage_tree(draws, inner)
        holder[key] = json.dumps(inner, default=str)
        return
    what = draws.integer(0, 4)
    if what == 0:
        del holder[key]
    elif what == 1:
        holder[key] = draws.pick((
            None, True, -1, 0, 1, 2, 2**31, 2**48, 2**63 - 1, 2**63, 2**64, 1.5, float("inf"),
            float("nan"), 1e30, "", "x", "F64", "F16", "BF16", [], {}, [0], [[]], [1] * 70,
            [0, 2**63],
        ))  # fmt: skip
    elif what == 2 and isinstance(old, int | float) and not isinstance(old, bool):
        holder[key] = old + draws.pick((-1, 1, 8, 0.5, 1e30, -1e30))
    elif what == 3 and isinstance(holder, dict):
        holder[draws.pick(("x", "weights", "version", "model", "")) + str(key)] = old
    elif isinstance(holder, dict):
        other = draws.pick(list(holder))
        holder[key], holder[other] = holder[other], holder[key]


def damaged_tensors(draws: Draws, number: int) -> states.State | None:
    saved = base(number)
    tensors: dict[Any, Any] = dict(saved.tensors)
    for _ in range(draws.pick((1, 1, 2))):
        if tensors:
            _damage_tensor(draws, tensors)
    return states.State(tensors, dict(saved.values))


def _damage_tensor(draws: Draws, tensors: dict[Any, Any]) -> None:
    # What was damaged before may not be damaged in every way.
    with contextlib.suppress(ValueError, TypeError, IndexError):
        _damage_sound_tensor(draws, tensors)


def _damage_sound_tensor(draws: Draws, tensors: dict[Any, Any]) -> None:
    name = draws.pick(list(tensors))
    array = tensors[name]
    what = draws.integer(0, 9)
    draws.note("tensor", name, "damage", what)
    if not isinstance(array, np.ndarray) or what == 0:
        tensors[name] = draws.pick(plain_values(draws))
    elif what == 1:
        del tensors[name]
    elif what == 2:
        tensors[draws.pick(("x", "", "visible.weights", 5, None, "\ud800"))] = array
    elif what == 3:
        tensors[name] = array.astype(
            draws.pick(("f4", ">f4", "f8", "f2", "i8", "i4", "u1", "u8", "c8", "O", "S4", "?")),
        )  # fmt: skip
    elif what == 4:
        shape = draws.pick(((), (-1,), (1, -1), array.shape[::-1], (*array.shape, 1)))
        tensors[name] = array.reshape(shape) if shape or array.size == 1 else array[..., :0]
    elif what == 5:
        tensors[name] = draws.pick((
            array[:0], np.concatenate([array, array]), array[::-1], array.T, array[..., :-1],
        ))  # fmt: skip
    elif what == 6:
        other = base(draws.integer(0, BASES - 1)).tensors
        tensors[name] = other.get(name, array)
    else:
        changed = array.copy()
        flat = changed.reshape(-1)
        if flat.size:
            _damage_values(draws, flat, what)
        tensors[name] = changed


def _damage_values(draws: Draws, flat: np.ndarray[Any, Any], what: int) -> None:
    at = draws.integer(0, flat.size - 1)
    if what == 7:
        flat[:] = np.frombuffer(draws.arrays.bytes(flat.nbytes), flat.dtype)
    elif flat.dtype.kind in "fc":
        number = draws.pick((float("nan"), float("inf"), -float("inf"), draws.extreme()))
        with np.errstate(over="ignore"):
            flat[at : at + draws.pick((1, flat.size))] = number
    elif flat.dtype.kind in "iu":
        limits = np.iinfo(flat.dtype)
        flat[at] = draws.pick((limits.min, limits.max, limits.max // 2, 0, 1))


def damaged_values(draws: Draws, number: int) -> states.State | None:
    saved = base(number)
    values = json.loads(json.dumps(saved.values))
    for _ in range(draws.pick((1, 1, 2))):
        if draws.chance(0.3) and values:
            values[draws.pick(list(values))] = draws.pick(plain_values(draws))
        else:
            _damage_tree(draws, values)
    draws.note("values", values)
    return states.State(dict(saved.tensors), values)
