"""Arrays by name in a safetensors file: a table in JSON, then bytes. Nothing in a file is ever executed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pulsora.files import replace_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[np.float32]]

__all__ = ["read_arrays", "write_arrays"]

_LENGTH = 8  # bytes of the number that says how long the table is


def write_arrays(path: str | PathLike[str], arrays: Mapping[str, NDArray[np.float32]]) -> None:
    """Replaces a file by one with these arrays.

    Raises:
        OSError: if it cannot be written; a previous one is then as it was.
    """
    table: dict[str, Any] = {}
    parts: list[bytes] = []
    at = 0
    for name, array in arrays.items():
        parts.append(np.ascontiguousarray(array, "<f4").tobytes())
        end = at + len(parts[-1])
        table[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, end]}
        at = end
    header = json.dumps(table).encode()
    header += b" " * (-len(header) % _LENGTH)
    replace_file(path, b"".join([len(header).to_bytes(_LENGTH, "little"), header, *parts]))


def read_arrays(path: str | PathLike[str]) -> Arrays:
    """The arrays in a file.

    Raises:
        OSError: if it cannot be read.
        ValueError: if it is no complete safetensors file, or holds other than 32-bit floating-point numbers.
    """
    data = Path(path).read_bytes()
    start = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
    if len(data) < _LENGTH or start > len(data):
        raise ValueError(f"{path} is no complete safetensors file (it has {len(data)} bytes)")
    try:
        table = json.loads(data[_LENGTH:start])
        table.pop("__metadata__", None)
        places = {
            name: (
                entry["dtype"],
                [int(n) for n in entry["shape"]],
                *map(int, entry["data_offsets"]),
            )
            for name, entry in table.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{path} is no safetensors file: its table is damaged ({error!r})"
        ) from None
    found: Arrays = {}
    for name, (dtype, shape, first, end) in places.items():
        if dtype != "F32":
            raise ValueError(f"{path}: tensor '{name}' has type {dtype}; expected F32")
        right = min([*shape, first]) >= 0 and end - first == 4 * math.prod(shape)
        if not right or start + end > len(data):
            raise ValueError(
                f"{path}: tensor '{name}' of shape {shape} is not in bytes {first} to {end} of "
                f"{len(data) - start}; the file is cut short or damaged"
            )
        values = np.frombuffer(data[start + first : start + end], "<f4")
        found[name] = values.astype(np.float32).reshape(shape)
    return found
