"""Files of conductances with damaged bytes, places, tensors and scales, loaded into a model.

What is refused changes nothing; what loads is a programmed array that drifts.
"""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import numpy as safetensors
from torch import nn

import pulsora as pl
from tests.fuzz.checks import require
from tests.fuzz.models import plain
from tests.fuzz.random_source import plain_values

if TYPE_CHECKING:
    from tests.fuzz.random_source import Draws

CELLS: tuple[dict[str, Any], ...] = (
    {"cell": "pair"},
    {"cell": "pairs", "significance": [1, 2]},
    {"cell": "single"},
    {"cell": "two_sided_pair", "scaling_per": "tile"},
    {"cell": "slices", "weight_bits": 6, "slice_bits": 3},
    {"cell": "slices", "slice_converters": "shared"},
    {"cell": "table", "table_w": [-1, 0, 1], "table_g": [0, 0.5, 0.8, 0.8, 0.5, 0]},
)
PLACES, TENSORS = "conductances.json", "conductances.safetensors"
X = torch.linspace(-1.0, 1.0, 14).reshape(2, 7)


def model_of(number: int) -> nn.Module:
    """A small model whose first layer has several tiles, programmed and drifted."""
    torch.manual_seed(number)
    net = nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 3))
    config = pl.InferenceConfig(**CELLS[number])
    made = pl.convert_to_analog(net, config, max_input_size=4, seed=number).eval()
    return pl.drift(pl.program(made, number), 60.0)


@cache
def files(number: int) -> tuple[bytes, bytes]:
    """Both files of the conductances of a model."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        pl.inference.save_conductances(model_of(number), folder, which="programmed")
        return Path(folder, PLACES).read_bytes(), Path(folder, TENSORS).read_bytes()


def run(draws: Draws) -> None:
    number = draws.integer(0, len(CELLS) - 1)
    places, tensors = files(number)
    draws.note("the files of model", number)
    what = draws.integer(0, 3)
    if what == 0:
        places = _bytes(draws, places)
    elif what == 1:
        tensors = _bytes(draws, tensors)
    elif what == 2:
        places = _places(draws, places)
    else:
        tensors = _tensors(draws, tensors)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        Path(folder, PLACES).write_bytes(places)
        Path(folder, TENSORS).write_bytes(tensors)
        _load(draws, number, folder)


def _load(draws: Draws, number: int, folder: str) -> None:
    model = model_of(number)
    read = _read(model)  # lets it drift, so the state comes after
    before = plain(model.state_dict())
    try:
        pl.inference.load_conductances(model, folder, number=draws.integer(0, 5))
    except (ValueError, OSError) as error:
        require(str(error), "a refusal without a word")
        require(
            plain(model.state_dict()) == before, "files were refused, but the model has changed"
        )
        require(_read(model) == read, "files were refused, but reads have changed")
        return
    draws.note("loaded")
    for tile in pl.inference.programmed_tiles(model):
        require(tile.programming.is_measured, "a tile was left out")
    pl.drift(model, draws.pick((0.0, 1.0, 1e6)))
    for tile in pl.inference.programmed_tiles(model):
        require(np.isfinite(tile.weights).all(), "weights are not finite")
    other = model_of(number)
    other.load_state_dict(model.state_dict())
    require(_read(other) == _read(model), "what was loaded is saved as something else")


def _read(model: nn.Module) -> bytes:
    with torch.no_grad():
        y: torch.Tensor = pl.drift(model, 3600.0)(X)
    return y.numpy().tobytes()


def _bytes(draws: Draws, content: bytes) -> bytes:
    data = bytearray(content)
    for _ in range(draws.pick((1, 1, 2, 5))):
        at, size = draws.integer(0, max(0, len(data) - 1)), draws.pick((1, 2, 8, 100))
        what = draws.integer(0, 4)
        draws.note("bytes: damage", what, "of", size, "at", at)
        if what == 0 and data:
            data[at] ^= 1 << draws.integer(0, 7)
        elif what == 1:
            data[at : at + size] = draws.arrays.bytes(size)
        elif what == 2:
            del data[at : at + size]
        elif what == 3:
            del data[at:]
        else:
            data[at:at] = draws.pick((b"\0", b'"', b"[[", b"9" * size, b"null", b"1e999"))
    return bytes(data)


def _places(draws: Draws, content: bytes) -> bytes:
    tree: Any = json.loads(content)
    holder = tree
    while True:
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys:
            break
        key = draws.pick(keys)
        if isinstance(holder[key], dict | list) and draws.chance(0.8):
            holder = holder[key]
            continue
        value = draws.pick((None, True, -1, 0, 2**63, 1.5, float("nan"), "", "pair", [], {}, [[]]))
        draws.note("places", key, "becomes", value)
        if draws.chance(0.2):
            del holder[key]
        else:
            holder[key] = value
        break
    return json.dumps(tree).encode()


def _tensors(draws: Draws, content: bytes) -> bytes:
    tensors: dict[str, np.ndarray] = dict(safetensors.load(content))
    name = draws.pick(list(tensors))
    array = tensors[name]
    what = draws.integer(0, 6)
    draws.note("tensor", name, "damage", what)
    if what == 0:
        del tensors[name]
    elif what == 1:
        tensors["x" + name] = array
    elif what == 2:
        tensors[name] = array.astype(draws.pick(("f8", "f2", "i8", "i4", "u1", "?")))
    elif what == 3:
        tensors[name] = array.reshape(draws.pick(((-1,), (1, *array.shape), array.shape[::-1])))
    elif what == 4:
        tensors[name] = array[..., : draws.integer(0, array.shape[-1])]
    else:
        numbers = [v for v in plain_values(draws) if isinstance(v, float)] or [0.0]
        values = array.copy().reshape(-1)
        values[draws.integer(0, len(values) - 1)] = draws.pick((
            *numbers, 0.0, -0.0, -1.0, 1e-40, 25.0, 1e6, 3e38, float("inf"), float("nan"),
        ))  # fmt: skip
        tensors[name] = values.reshape(array.shape)
    return safetensors.save({n: np.ascontiguousarray(v) for n, v in tensors.items()})
