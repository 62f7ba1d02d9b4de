"""Files of the conductances of a model's arrays, to a chip and back."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from pulsora import _core
from pulsora._internal.checks import reading
from pulsora._internal.files import replace_file, replace_together
from pulsora.inference.converters import (
    converters_in,
    converters_of,
    require_same,
    set_converters,
)
from pulsora.inference.exact_reads import layers_by_name
from pulsora.nn.tiles.held_weights import require_number

if TYPE_CHECKING:
    import os

    from torch import nn

    from pulsora.inference.converters import Converters
    from pulsora.nn.base import AnalogModule

__all__ = ["load_conductances", "save_conductances"]

_M = TypeVar("_M", bound="nn.Module")
_TENSORS = "conductances.safetensors"
_PLACES = "conductances.json"
_FORMAT = 1
_EARLIER = {"single_span": "symmetric"}  # of files that lack an entry


def save_conductances(
    model: nn.Module,
    folder: str | os.PathLike[str],
    *,
    which: Literal["target", "programmed", "now"] = "target",
    tables: bool = False,
) -> None:
    """Writes the conductances of all devices of a programmed model, and where they belong.

    `conductances.safetensors` has a tensor [outputs, inputs, devices of a cell] in uS for each
    tile, `<layer>/<row>_<column>`, and its scales, `<layer>/<row>_<column>/scale`: the weight of an
    output that uses the whole range. The gains of its ADCs, [arrays with ADCs of their own,
    outputs], are `<layer>/<row>_<column>/adc_gains`. `conductances.json` has for each layer its
    shape, the place of each tile, the cells, the range of conductances, and the ranges of the
    converters of forward reads. The two files are replaced together.

    Args:
        model: A programmed model with layers of InferenceConfig.
        folder: Existing folder for the files.
        which: "target", what a chip is asked for; "programmed", after programming and before drift
            and read noise; "now", as reads see them.
        tables: Whether a CSV file for each layer is written too, `<layer>.csv` with the columns
            output, input, device and conductance.

    Raises:
        ValueError: If the model has no layer of InferenceConfig.
        StateError: If a layer is not programmed, or its weights changed since.
        OSError: If the folder or a file cannot be written.
    """
    layers = _layers(model)
    where = Path(folder)
    if not where.is_dir():
        raise FileNotFoundError(f"folder '{where}' does not exist; make it first")
    for layer in layers.values():
        held: Any = layer.held
        held.require_current(layer.carrier)
        held.require_programmed()
    tensors: dict[str, np.ndarray] = {}
    places: dict[str, Any] = {"format": _FORMAT, "which": which, "layers": {}}
    csvs: dict[Path, bytes] = {}
    for name, layer in layers.items():
        entry = _described(layer)
        places["layers"][name] = entry
        rows: list[tuple[int, int, int, float]] = []
        for tile_name, row, col, tile in _tiles(layer):
            values = tile.programming.conductances(which)
            tensors[f"{name}/{tile_name}"] = values
            tensors[f"{name}/{tile_name}/scale"] = np.array(tile.programming.scales, np.float32)
            if "converters" in entry:
                tensors[f"{name}/{tile_name}/adc_gains"] = tile.programming.adc_gains
            if tables:
                rows += [
                    (row.start + i, col.start + j, k, float(g))
                    for (i, j, k), g in np.ndenumerate(values)
                ]
        if tables:
            csvs[where / f"{name or 'layer'}.csv"] = _table(rows)
    contents = (json.dumps(places, indent=1) + "\n").encode()
    replace_together((where / _PLACES, contents), {where / _TENSORS: _library().save(tensors)})
    for path, data in csvs.items():
        replace_file(path, data)


def load_conductances(
    model: _M,
    folder: str | os.PathLike[str],
    *,
    number: int = 0,
    converters: Literal["same", "file", "model"] = "same",
) -> _M:
    """Programs a model with conductances that were measured on a chip, in place.

    The files are those of `save_conductances`, with measured values in the tensors. The arrays then
    drift, compensate and take adapters as any others; drift and read noise of their devices are
    those of programming `number`.

    Args:
        model: The model whose weights the conductances stand for.
        folder: Folder of the files.
        number: Number of the programming.
        converters: Which ranges and ADC gains forward reads have: those of the "file", or of the
            "model" as it is. "same": they must be equal. Files of earlier versions have none, and
            leave those of the model.

    Returns:
        The model.

    Raises:
        ValueError: If the model has no layer of InferenceConfig, the files are damaged or belong to
            other layers, cells, ranges or weights, and for other converters than `converters` says.
        ConfigError: For a bad number, and for cells with a reference column. Nothing has changed
            after these errors.
        OSError: If a file cannot be read.
    """
    if converters not in ("same", "file", "model"):
        raise ValueError(f"converters = {converters!r}: write 'same', 'file' or 'model'")
    require_number(number)
    layers = _layers(model)
    where = Path(folder)
    with reading("folder", where, "give a folder that save_conductances() wrote"):
        places = _parsed(where / _PLACES)
        data = (where / _TENSORS).read_bytes()
    try:
        tensors = _library().load(data)
    except Exception as error:  # noqa: BLE001 - of many types
        raise ValueError(
            f"{where / _TENSORS} is no safetensors file ({error}); was it cut short? Copy it "
            "again, or save the conductances once more"
        ) from None
    if set(places) != set(layers):
        raise ValueError(
            f"{where / _PLACES} has the layers {sorted(places)}, but the model has "
            f"{sorted(layers)}; load the files into the model that they were made from"
        )
    measured = {name: _measured(layer, name, places, tensors) for name, layer in layers.items()}
    found = {}
    for name, layer in layers.items() if converters != "model" else ():
        if "converters" in places[name]:
            found[name] = _converters(layer, name, places, tensors)
            if converters == "same":
                require_same(layer, name, found[name])
    for name, layer in layers.items():
        if name in found:
            set_converters(layer, found[name])
        held: Any = layer.held
        held.program_measured(layer.carrier, measured[name], number)
    return model


def _layers(model: nn.Module) -> dict[str, AnalogModule]:
    layers = layers_by_name(model)
    if not layers:
        raise ValueError("the model has no layer of InferenceConfig, which has conductances")
    return layers


def _library() -> Any:  # noqa: ANN401 - a module
    try:
        import safetensors.numpy  # noqa: PLC0415 - only these files need it
    except ModuleNotFoundError as error:
        raise ImportError(
            "conductances are written by safetensors; install it with pip install 'pulsora[hf]'"
        ) from error
    return safetensors.numpy


def _tiles(layer: AnalogModule) -> list[tuple[str, slice, slice, Any]]:
    """Returns name, rows, columns and tile of each tile of a layer."""
    array = layer.tiles
    return [
        (f"{i}_{j}", row, col, tile)
        for i, (row, tiles) in enumerate(zip(array.rows, array.grid, strict=True))
        for j, (col, tile) in enumerate(zip(array.cols, tiles, strict=True))
    ]


def _described(layer: AnalogModule) -> dict[str, Any]:
    """Returns what the conductances of a layer depend on."""
    config: Any = layer.config
    entry: dict[str, Any] = {
        "shape": list(layer.tiles.shape),
        "tiles": {n: [r.start, r.stop, c.start, c.stop] for n, r, c, _ in _tiles(layer)},
        "cell": config.cell,
        "significance": list(config.significance),
        "g_min": config.noise_model.g_min,
        "g_max": config.noise_model.g_max,
    }
    if config.cell == "single":
        entry["single_span"] = config.single_span
    if config.cell == "slices":
        entry |= {"weight_bits": config.weight_bits, "slice_bits": config.slice_bits}
    if config.cell == "table":
        entry |= {"table_w": list(config.table_w), "table_g": list(config.table_g)}
    converters = converters_of(layer)
    return entry if converters is None else entry | {"converters": converters}


def _parsed(path: Path) -> dict[str, Any]:
    """Returns the entries of the layers in a file of places."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON ({error})") from None
    known = values if isinstance(values, dict) else {}
    if known.get("format") != _FORMAT:
        raise ValueError(f"{path} has the format {known.get('format')!r}; expected {_FORMAT}")
    found = known.get("layers")
    if not isinstance(found, dict):
        raise ValueError(f"{path} has no layers; write it by save_conductances()")  # noqa: TRY004
    if known.get("which") == "now":
        raise ValueError(
            f"{path} is of conductances after drift and read noise (which='now'), and would drift "
            "once more; save those of which='programmed'"
        )
    return found


def _measured(
    layer: AnalogModule, name: str, places: dict[str, Any], tensors: dict[str, np.ndarray]
) -> list[np.ndarray]:
    """Returns the checked conductances of the tiles of a layer."""
    own = _described(layer)
    entry = places[name]
    for key in own.keys() - {"converters"}:
        found = entry.get(key, _EARLIER.get(key)) if isinstance(entry, dict) else None
        if found != own[key]:
            raise ValueError(
                f"layer '{name}' of the file has {key} = {found}, and of the model {own[key]}; "
                "load conductances of the same layers, tiles, cells and ranges"
            )
    held: Any = layer.held
    if getattr(layer.config, "cell_reference", "") == "column" and own["cell"] == "single":
        raise _core.ConfigError(
            f"layer '{name}' has cell_reference = 'column', whose conductances are not among those "
            "of the cells; measured conductances need 'digital'"
        )
    if held.is_programmed and not held.is_current(layer.carrier):
        held.unprogram(is_stale=True)
    if not held.is_programmed:
        held.write(layer.carrier)
    values = []
    for tile_name, _, _, tile in _tiles(layer):
        values.append(_conductances_of(tile, f"{name}/{tile_name}", tensors))
    return values


def _conductances_of(
    tile: Any,  # noqa: ANN401 - of programmed arrays
    where: str,
    tensors: dict[str, np.ndarray],
) -> np.ndarray:
    """Returns the checked conductances of a tile."""
    shape = (tile.d_size, tile.x_size, tile._core.conductance_devices)  # noqa: SLF001
    g, scale = tensors.get(where), tensors.get(f"{where}/scale")
    if g is None or scale is None or g.shape != shape or scale.shape != shape[:1]:
        raise ValueError(
            f"tensor '{where}' has the shape {_shape(g)}, and its scale {_shape(scale)}; "
            f"expected {list(shape)} and {list(shape[:1])}; copy the tensors' shapes of "
            "save_conductances()"
        )
    if g.dtype != np.float32 or not np.isfinite(g).all() or (g < 0.0).any():
        raise ValueError(f"tensor '{where}' must hold float32 numbers of uS, finite and >= 0")
    try:
        tile.programming.require_measured(g)
    except _core.InputError as error:
        raise ValueError(f"tensor '{where}': {error}") from None
    wanted = np.array(tile.programming.scales, np.float32)
    if not np.allclose(scale, wanted, rtol=1e-4):
        raise ValueError(
            f"tensor '{where}/scale' is not that of the model's weights; load conductances "
            "into the model whose weights they were made from"
        )
    return g


def _shape(tensor: np.ndarray | None) -> str:
    return "None: it is missing" if tensor is None else str(list(tensor.shape))


def _converters(
    layer: AnalogModule, name: str, places: dict[str, Any], tensors: dict[str, np.ndarray]
) -> Converters:
    """Returns the checked converters of a layer."""
    names = [f"{name}/{tile_name}/adc_gains" for tile_name, _, _, _ in _tiles(layer)]
    if lacking := [each for each in names if each not in tensors]:
        raise ValueError(f"the tensors {lacking} are missing; save the conductances once more")
    gains = {each: tensors[each] for each in names}
    return converters_in(places[name]["converters"], layer, name, gains)


def _table(rows: list[tuple[int, int, int, float]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(("output", "input", "device", "conductance"))
    writer.writerows(rows)
    return text.getvalue().encode()
