"""Saved states of tiles, as safetensors files.

A state is everything a tile needs to go on to the bit: named arrays, and a table of plain values (sizes, configuration,
seed, counters, version). In a file the arrays are tensors and the table is JSON in the metadata, so that nothing in a
file is ever executed.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors
import safetensors.numpy

from pulsora._core import StateError
from pulsora.config import TileConfig

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
    "tile_arguments",
    "to_tensors",
]

FORMAT = "pulsora.tile"
"""Name of the table of values in the metadata of a file; nothing else stands there."""
_VALUES = "values"  # the table among the tensors of to_tensors(), as JSON in UTF-8
_DTYPES = {
    "F16": np.float16,
    "F32": np.float32,
    "U8": np.uint8,
    "I32": np.int32,
    "I64": np.int64,
    "U64": np.uint64,
}


@dataclass(frozen=True)
class State:
    """The state of a tile.

    Attributes:
        tensors: Arrays by name: weights [d_size, x_size], cells, and what else the device keeps.
        values: Sizes, configuration, seed, counters and version; plain values.
    """

    tensors: dict[str, NDArray[Any]]
    values: dict[str, Any]


def dumps(state: State) -> bytes:
    """The state as the bytes of a safetensors file."""
    tensors = {name: np.ascontiguousarray(array) for name, array in state.tensors.items()}
    return safetensors.numpy.save(tensors, metadata={FORMAT: _to_json(state.values)})


def loads(data: bytes) -> State:
    """The state whose file consists of these bytes.

    Raises:
        StateError: If the bytes are no safetensors file, incomplete, or not the state of a tile.
    """
    try:
        entries = safetensors.deserialize(data)  # type: ignore[no-untyped-call]
        length = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + length]).get("__metadata__", {})
    except (safetensors.SafetensorError, ValueError, RecursionError) as error:
        raise StateError(
            f"this is not a complete safetensors file ({error}); was it cut short?"
        ) from None
    if FORMAT not in metadata:
        raise StateError(
            f"this safetensors file is not the state of a tile: its metadata has no {FORMAT!r}"
        )
    tensors = {name: _array(name, entry) for name, entry in entries}
    return State(tensors, _from_json(metadata[FORMAT]))


def save(state: State, path: str | os.PathLike[str]) -> None:
    """Writes the state to a file; a file of that name is replaced only once the new one is complete.

    Raises:
        OSError: If the file cannot be written.
    """
    target = Path(path)
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with draft.open("wb") as file:
            file.write(dumps(state))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def load(path: str | os.PathLike[str]) -> State:
    """The state in a file.

    Raises:
        FileNotFoundError: If there is no such file.
        StateError: If it does not hold the state of a tile, or only a part.
    """
    try:
        return loads(Path(path).read_bytes())
    except StateError as error:
        raise StateError(f"{os.fspath(path)}: {error}") from None


def to_tensors(state: State) -> dict[str, NDArray[Any]]:
    """The state as arrays alone, for containers that hold nothing else (a torch state_dict)."""
    table = np.frombuffer(_to_json(state.values).encode(), dtype=np.uint8).copy()
    return {**state.tensors, _VALUES: table}


def from_tensors(tensors: Mapping[str, NDArray[Any]]) -> State:
    """The state that to_tensors() gave.

    Raises:
        StateError: If the table of values is missing or damaged.
    """
    rest = dict(tensors)
    table = rest.pop(_VALUES, None)
    if table is None:
        raise StateError(f"the state has no tensor {_VALUES!r}; it is incomplete")
    try:
        text = np.asarray(table, dtype=np.uint8).tobytes().decode()
    except ValueError as error:
        raise StateError(f"tensor {_VALUES!r} of the state is damaged ({error})") from None
    return State(rest, _from_json(text))


def _to_json(values: Mapping[str, Any]) -> str:
    return json.dumps(values, sort_keys=True)


def _from_json(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StateError(f"the table of values is damaged ({error})") from None
    if not isinstance(values, dict):
        raise StateError("the table of values is damaged; it is no JSON object")
    return values


def _array(name: str, entry: Mapping[str, Any]) -> NDArray[Any]:
    dtype = _DTYPES.get(entry["dtype"])
    if dtype is None:
        raise StateError(f"tensor {name!r} has type {entry['dtype']}, which no array of a tile has")
    array: NDArray[Any] = np.frombuffer(entry["data"], dtype=dtype)
    shape: list[int] = entry["shape"]
    return array.reshape(shape)


def tile_arguments(saved: State) -> dict[str, Any]:
    """The arguments of the Tile that a state belongs to, but for where it was.

    Raises:
        StateError: If they are missing, or the state holds too few weights for them.
    """
    values = saved.values
    try:
        arguments: dict[str, Any] = {
            "d_size": int(values["d_size"]),
            "x_size": int(values["x_size"]),
            "config": TileConfig.from_dict(values["config"]),
            "seed": int(values["seed"]),
            "tile_id": int(values["tile_id"]),
        }
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(
            f"the state does not say what tile it belongs to ({type(error).__name__}: {error})"
        ) from None
    # Every cell has a weight in the file, so damaged sizes are found before memory is taken for them.
    weights = sum(tensor.size for name, tensor in saved.tensors.items() if name.endswith("weights"))
    if arguments["d_size"] * arguments["x_size"] > weights:
        raise StateError(
            f"the state holds {weights} weights, which is too few for a tile of size "
            f"[{arguments['d_size']}, {arguments['x_size']}]; it is damaged"
        )
    return arguments
