"""Small trainings whose bits are the same on every machine, and hashes of their results.

A case is a tile of 7 x 9, four mini-batches of three samples: reads in both directions, an update,
the weights. It is named `devices/MODEL/PULSE_TYPE`, `compounds/NAME`, `noise_models/MODEL`,
`cells/CELL/MODEL` (of noise models) or `threads`, a tile of 256 x 200 which several threads share.
Inputs are whole numbers over 1000.
"""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pulsora import _core, devices, noise_models
from pulsora.config import InferenceConfig, SingleConfig, TileConfig, UpdateParameters
from pulsora.tiki_taka import AGAD, ChoppedTTv2, TikiTaka, TTv2
from pulsora.tile import Tile

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["THREADS", "Place", "case_names", "config_of", "hash_of"]

THREADS = "threads"
_STEPS, _SEED, _LR = 4, 20, 0.1
_SMALL, _LARGE = (7, 9, 3), (256, 200, 32)  # outputs, inputs, samples
_DEVICE = {
    "model": "SoftBounds",
    "dw_min": 0.005,
    "lifetime": 50.0,
    "lifetime_dtod": 0.2,
    "diffusion": 0.002,
    "diffusion_dtod": 0.3,
    "reset_dtod": 0.01,
    "write_noise_std": 0.5,
}
_ALGORITHMS = {
    "TikiTaka": TikiTaka,
    "TTv2": TTv2,
    "ChoppedTTv2": ChoppedTTv2,
    "AGAD": AGAD,
}
_CELLS: dict[str, dict[str, Any]] = {  # beside "pair", which noise_models/MODEL has
    "two_sided_pair": {"cell": "two_sided_pair"},
    "pairs": {"cell": "pairs", "significance": [1.0, 4.0]},
    "single": {"cell": "single"},
    "single_column": {"cell": "single", "cell_reference": "column"},
    "slices": {"cell": "slices", "weight_bits": 8, "slice_bits": 2},
    "table": {
        "cell": "table",
        "table_w": [-1.0, 0.0, 1.0],
        "table_g": [0.0, 0.25, 1.0, 1.0, 0.25, 0.0],
    },
}


@dataclass(frozen=True)
class Place:
    """Place of a case: device, threads and instruction set.

    Attributes:
        device: "cpu" or "cuda:<number>".
        threads: CPU threads.
        instruction_set: Instruction set of the CPU; empty for the best.
    """

    device: str = "cpu"
    threads: int = 1
    instruction_set: str = ""


def case_names() -> list[str]:
    """Names of all cases of this build."""
    pulse_types = next(
        one["choices"]
        for one in _core.schema()["structs"]["UpdateParameters"]
        if one["name"] == "pulse_type"
    )
    names = [f"devices/{model}/{kind}" for model in devices.MODELS for kind in pulse_types]
    for kind, facts in _core.schema()["compounds"].items():
        names += [f"compounds/{kind}", *(f"compounds/{name}" for name in facts["variants"])]
    names += [f"compounds/{name}" for name in _ALGORITHMS]
    names += [f"noise_models/{model}" for model in noise_models.MODELS]
    names += [f"cells/{cell}/{model}" for cell in _CELLS for model in noise_models.MODELS]
    return [*names, THREADS]


def config_of(name: str) -> TileConfig:
    """The configuration of a case. KeyError if this build lacks a part of it."""
    group, _, rest = name.partition("/")
    if name == THREADS:
        return SingleConfig(device=_made(devices, "SoftBounds"))
    if group == "devices":
        model, _, kind = rest.partition("/")
        update = UpdateParameters.from_dict({"pulse_type": kind, "x_res_implicit": 0.05})
        return SingleConfig(device=_made(devices, model), update=update)
    if group == "noise_models":
        return InferenceConfig(noise_model=_memory(rest))
    if group == "cells":
        cell, _, model = rest.partition("/")
        return InferenceConfig(noise_model=_memory(model), **_CELLS[cell])
    if rest in _ALGORITHMS:
        return _ALGORITHMS[rest](devices.SoftBounds(dw_min=0.005))
    for kind, facts in _core.schema()["compounds"].items():
        settings = {kind: {}, **facts["variants"]}.get(rest)
        if settings is not None:
            complete = {"kind": kind, **_complete(facts["fields"], settings)}
            with warnings.catch_warnings():  # what other settings make idle takes its default
                warnings.filterwarnings("ignore", message=".*has no effect beside the other")
                return TileConfig.from_dict(complete)
    raise KeyError(f"this build has no {name}")


def _memory(name: str) -> Any:  # noqa: ANN401 - a noise model
    """A noise model that has numbers for every time."""
    made = _made(noise_models, name)
    if any(one["name"] == "extrapolate" for one in _fields(name)):
        made = made.replace(extrapolate=True)
    return made


def _fields(noise_model: str) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = _core.schema()["noise_models"][noise_model]["fields"]
    return fields


def _complete(fields: list[dict[str, Any]], settings: dict[str, Any]) -> dict[str, Any]:
    """Settings in which cells do all that they can, and a few mini-batches have transfers."""
    by_type: dict[str, Any] = {"device": _DEVICE, "devices": [_DEVICE, _DEVICE]}
    by_name = {"rank": 2, "transfer_every": 2, "refresh_every": 2}
    added = {
        one["name"]: by_name.get(one["name"], by_type.get(one["type"]))
        for one in fields
        if one["name"] in by_name or one["type"] in by_type
    }
    if any(one["name"] == "write" for one in fields):  # by the noise model: without cells
        added.pop("device", None)
    return added | settings


def _made(room: Any, name: str) -> Any:  # noqa: ANN401 - a device or a noise model
    if name not in room.MODELS:
        raise KeyError(f"this build has no {room.__name__.rpartition('.')[2]}.{name}")
    return getattr(room, name)()


def _numbers(rows: int, columns: int, step: int) -> NDArray[np.float32]:
    """Numbers from -1 to 1, multiples of 0.001, the same with every version of NumPy."""
    at = np.arange(rows * columns, dtype=np.int64) + 1000 * step
    whole = (at * at * 7919 + at * 104729 + 17) % 2003 - 1001
    made: NDArray[np.float32] = (whole.reshape(rows, columns) / 1001).astype(np.float32)
    return made


def hash_of(name: str, place: Place, between: Callable[[Tile], Tile] | None = None) -> str:
    """Hash of all results of a case.

    Args:
        name: One of case_names().
        place: Where the case runs.
        between: Called with the tile after half of the mini-batches; returns the tile that goes on,
            such as one that was saved and loaded.
    """
    outputs, inputs, samples = _LARGE if name == THREADS else _SMALL
    config = config_of(name)
    facts = _core.compound_facts(config.to_dict())
    tile = Tile(outputs, inputs, config, seed=_SEED, device=place.device, threads=place.threads)
    _prepare(tile, place)
    digest = hashlib.sha256()
    weights = _numbers(outputs, inputs, 100) * np.float32(0.3)
    tile.weights = weights
    if tile.programming is not None:
        tile.programming.program(1)
    for step in range(_STEPS):
        if step == _STEPS // 2 and between is not None:
            tile = between(tile)
            _prepare(tile, place)
        x, d = _numbers(samples, inputs, step), _numbers(samples, outputs, step + 50)
        given_x, given_d = _inputs(x, place), _inputs(d, place)
        digest.update(_host(tile.forward(given_x)))
        digest.update(_host(tile.backward(given_d)))
        if facts["follows"]:
            weights = weights - np.float32(_LR) * _numbers(outputs, inputs, step + 70)
            tile.follow(_inputs(weights, place))
        elif tile.programming is not None:
            tile.programming.drift(3600.0 * 10.0**step)
        else:
            tile.update(given_x, given_d, _LR)
        digest.update(tile.weights.tobytes())
    for array in tile.arrays:
        digest.update(tile.arrays[array].tobytes())
    return digest.hexdigest()[:16]


def _prepare(tile: Tile, place: Place) -> None:
    tile.gpu_products = "reproducible"
    tile.threads = place.threads
    if place.instruction_set:
        tile._core.instruction_set = place.instruction_set  # noqa: SLF001 - for this test alone


def _inputs(values: NDArray[np.float32], place: Place) -> Any:  # noqa: ANN401
    return values if place.device == "cpu" else _core.upload(values, place.device)


def _host(array: Any) -> bytes:  # noqa: ANN401
    """The bits of a result; results on a GPU come through torch."""
    if isinstance(array, np.ndarray):
        return array.tobytes()
    import torch  # noqa: PLC0415 - for results on a GPU alone

    copied: bytes = torch.utils.dlpack.from_dlpack(array).cpu().numpy().tobytes()
    return copied
