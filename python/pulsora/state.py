"""Saved states of tiles, as safetensors files.

A state is everything that a tile needs to resume bit-exactly: named arrays, and a table of plain
values (sizes, configuration, seed, counters, version). In a file the arrays are tensors and the
table is JSON in the metadata, so that nothing in a file is ever executed. The value `checksum`
covers everything else; reading and loading verify it. The core reads and writes the files, for C++
and Python alike.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pulsora import _core
from pulsora._core import StateError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = [
    "State",
    "StateError",
    "dumps",
    "from_tensors",
    "load",
    "loads",
    "save",
    "to_tensors",
]

FORMAT = "pulsora.tile"
"""Key of the table of values in the metadata of a file; there is no other key."""
_LONGEST_NUMBER = len("-1.2345678901234567e-308")
_VALUES = "values"  # the table among the tensors of to_tensors(), as JSON in UTF-8


@dataclass(frozen=True)
class State:
    """The state of a tile.

    Attributes:
        tensors: Arrays by name: weights [d_size, x_size], cells, and what else the device keeps.
        values: Sizes, configuration, seed, counters, version and checksum; plain values.
    """

    tensors: dict[str, NDArray[Any]]
    values: dict[str, Any]

    def signed(self) -> State:
        """This state with a checksum of its present content, for states changed on purpose.

        Raises:
            StateError: If the state holds something that cannot be saved.
        """
        checksum = _core.state_checksum(self.tensors, self.values)
        return State(self.tensors, {**self.values, "checksum": checksum})


def dumps(state: State) -> bytes:
    """The state as the bytes of a safetensors file.

    Raises:
        StateError: If the state was changed and not signed, or holds something that cannot be
            saved.
    """
    return _core.dump_state(state.tensors, state.values)


def loads(data: bytes) -> State:
    """The state whose file consists of these bytes.

    Raises:
        TypeError: For anything but bytes.
        StateError: If the bytes are no safetensors file, incomplete, damaged, or not the state of a
            tile.
    """
    if not isinstance(data, bytes):
        raise TypeError(f"data is of type {type(data).__name__}; give bytes, as of dumps(state)")
    return State(*_core.parse_state(data))


def save(state: State, path: str | os.PathLike[str]) -> None:
    """Writes the state to a file, which is replaced atomically when the new one is on the disk.

    A symbolic link stays, and the file behind it is replaced; an existing file keeps its mode.
    Several processes may save to one path: the file is then complete, from one of them.

    Raises:
        OSError: If the file cannot be written; a previous one is then still there.
        StateError: If the state was changed and not signed, or holds something that cannot be
            saved.
    """
    _core.save_state(os.fsencode(path), state.tensors, state.values)


def load(path: str | os.PathLike[str]) -> State:
    """The state in a file.

    Raises:
        FileNotFoundError: If there is no such file.
        StateError: If the file does not hold the state of a tile, is incomplete, or is damaged.
    """
    return State(*_core.load_state(os.fsencode(path)))


def to_tensors(state: State) -> dict[str, NDArray[Any]]:
    """The state as arrays alone, for containers that hold nothing else (a torch state_dict).

    The table of values is filled up with blanks, so that tiles of one size and configuration have
    arrays of equal sizes, whatever they have counted: tools such as torch.distributed.checkpoint
    load into arrays that are there.
    """
    text = _core.dump_values(state.values)
    text = text.ljust(_room(state.values))
    return {**state.tensors, _VALUES: np.frombuffer(text.encode(), dtype=np.uint8).copy()}


def _room(value: object) -> int:
    """The length of the longest JSON of a value with other numbers."""
    if isinstance(value, dict):
        return 2 + sum(len(json.dumps(name)) + 4 + _room(each) for name, each in value.items())
    if isinstance(value, list | tuple):
        return 2 + sum(2 + _room(each) for each in value)
    is_text = isinstance(value, str) and not value.isdecimal()  # a seed is text of digits
    return len(json.dumps(value)) if is_text else _LONGEST_NUMBER


def from_tensors(tensors: Mapping[str, NDArray[Any]]) -> State:
    """The state that to_tensors() gave; the tile that loads it verifies it.

    Raises:
        StateError: If the table of values is missing or damaged.
    """
    rest = dict(tensors)
    table = rest.pop(_VALUES, None)
    if table is None:
        raise StateError(f"the state has no tensor {_VALUES!r}; it is incomplete")
    try:
        return State(rest, _core.parse_values(np.asarray(table, dtype=np.uint8).tobytes()))
    except (ValueError, TypeError) as error:
        raise StateError(f"tensor {_VALUES!r} of the state is damaged ({error})") from None
