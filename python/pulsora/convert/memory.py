"""Bytes of memory of an analog model, told before the model is converted."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from pulsora import _core
from pulsora._internal.modules import require_module
from pulsora._internal.text_tables import aligned
from pulsora.config import LRTTConfig
from pulsora.convert.choice import (
    chosen_layers,
    conversion_functions,
    require_names,
    require_shareable,
    untie_layers,
    whole_names,
)
from pulsora.convert.replacing import weight_key
from pulsora.convert.report import is_conv1d, named_analog_parts
from pulsora.nn.tiles.partition import configs_of_columns, even_slices, tiles_of_layer
from pulsora.tile import Tile

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from pulsora.config import TileConfig

__all__ = ["LayerMemory", "ModelMemory", "model_memory"]

_FLOAT = 4
_SMALL = 32  # lines, with which rank="auto" has its largest value


@dataclass(frozen=True)
class LayerMemory:
    """Bytes of one weight matrix on tiles.

    Attributes:
        name: The name of the layer in the model; of a recurrent layer with the name of the matrix.
        shape: The shape of the matrix, with a bias in cells.
        tiles: Number of tiles.
        weights: Bytes of the weights: 4 for each, and 4 more where the weight is a parameter of
            torch too.
        cells: Bytes of the parameters of the cells, where they are stored (`cells` of a device),
            and of what else belongs to arrays.
        adapters: Bytes of the arrays A and B of adapters in the tiles, with their cells.
        per_row: Bytes that a row of the mini-batch keeps until the step: x and d, 4 for each input
            and output. A row is a sample, a step in time of a sequence, or a patch of an image.
    """

    name: str
    shape: tuple[int, int]
    tiles: int
    weights: int
    cells: int
    adapters: int
    per_row: int


@dataclass(frozen=True)
class ModelMemory:
    """Bytes that an analog model takes, as `print` shows them in a table.

    Attributes:
        layers: The matrices on tiles.
        digital: Bytes of parameters and buffers of torch that stay.
        scratch: Bytes that an operation may borrow while it runs, for each thread or stream that
            reads or updates (`pulsora.scratch_limit`).
    """

    layers: tuple[LayerMemory, ...]
    digital: int
    scratch: int

    @property
    def tiles(self) -> int:
        """Bytes of all tiles: weights, cells and adapters."""
        return sum(each.weights + each.cells + each.adapters for each in self.layers)

    @property
    def total(self) -> int:
        """Bytes of the model: tiles, and what stays digital."""
        return self.tiles + self.digital

    @property
    def per_row(self) -> int:
        """Bytes that a row of the mini-batch keeps in all layers until the step."""
        return sum(each.per_row for each in self.layers)

    def __str__(self) -> str:
        names = ("weights", "cells", "adapters", "per_row")
        rows: list[tuple[str, ...]] = [("layer", "matrix", "tiles", *names)]
        for each in self.layers:
            sizes = [getattr(each, name) for name in names]
            text = f"{each.shape[0]} x {each.shape[1]}"
            rows.append((each.name, text, str(each.tiles), *map(_told, sizes)))
        sums = [sum(getattr(each, name) for each in self.layers) for name in names]
        count = sum(each.tiles for each in self.layers)
        rows += [
            ("all layers", "", str(count), *map(_told, sums)),
            ("digital", "", "", _told(self.digital), "", "", ""),
            ("the model", "", "", _told(self.total), "", "", ""),
        ]
        return f"{aligned(rows)}\nscratch memory: up to {_told(self.scratch)} a thread or stream"


def _told(size: int) -> str:
    power = min(3, int(math.log(max(size, 1), 1024)))
    return f"{size / 1024**power:.3g} {('B', 'KiB', 'MiB', 'GiB')[power]}"


def model_memory(
    model: nn.Module,
    config: TileConfig | Callable[[str, nn.Module], TileConfig | None] | None = None,
    *,
    exclude: Collection[str] = (),
    untie: Collection[str] = (),
    digital_bias: bool = True,
    max_input_size: int = 512,
    max_output_size: int = 512,
) -> ModelMemory:
    """Tells what a model takes in memory once it is converted, without making its tiles.

        with torch.device("meta"):
            model = MyModel()
        print(pulsora.model_memory(model, pulsora.LRTTConfig(rank=8)))

    The bytes of a tile follow from tiles of a few lines, which are made for each configuration.
    Layers that functions of one's own would convert count as digital. Activations of other layers,
    gradients and states of optimisers are not included.

    Args:
        model: A digital model, in memory or on torch's meta device; or an analog one, whose tiles
            are counted as they are. It is not changed.
        config: As for `convert_to_analog`; None for an analog model.
        exclude: As for `convert_to_analog`.
        untie: As for `convert_to_analog`.
        digital_bias: Whether biases are parameters of torch, or else in cells.
        max_input_size: Largest number of inputs of a tile; 0 is no limit.
        max_output_size: Largest number of outputs of a tile; 0 is no limit.

    Raises:
        ValueError: for names that do not occur, a negative size, and no config for a model without
            analog layers.
        ConfigError: for a configuration of which no tile can be made.
    """
    for argument, size in (
        ("max_input_size", max_input_size),
        ("max_output_size", max_output_size),
    ):
        if size < 0:
            raise ValueError(f"{argument} = {size}: give a tile size, or 0 for no limit")
    require_module(model)
    if config is None:
        return _of_analog(model)
    skeleton = _without_memory(model)
    names = dict(skeleton.named_modules(remove_duplicate=False))
    require_names("untie", untie)
    untie = list(untie)
    left_out = whole_names(names, exclude)
    for argument, given in (("exclude", left_out), ("untie", list(untie))):
        if unknown := sorted(set(given) - set(names)):
            raise ValueError(f"{argument} = {unknown}: the model has no such layers")
    untie_layers(skeleton, untie, [])
    chosen = chosen_layers(skeleton, config, left_out, conversion_functions(None))
    require_shareable(skeleton, chosen, digital_bias=digital_bias)
    limits = {"max_input_size": max_input_size, "max_output_size": max_output_size}
    rows: list[LayerMemory] = []
    digital = {id(each): each for each in (*skeleton.parameters(), *skeleton.buffers())}
    seen: set[int] = set()
    for layer, (name, layer_config) in chosen.items():
        is_first = weight_key(layer) not in seen
        seen.add(weight_key(layer))
        for part, weight, bias in _matrices(layer, digital_bias=digital_bias):
            digital.pop(id(weight), None)
            digital.pop(id(bias), None)
            sizes = _size_of(layer, weight, bias)
            named = f"{name}.{part}" if name and part else name or part
            row = _of_matrix(named, sizes, layer_config, limits, bias is not None)
            if is_first:
                rows.append(row)
            elif layer_config.facts.digital_weight:  # the parameter is shared, the tiles are not
                rows.append(replace(row, weights=row.weights // 2))
    return _of_parts(rows, digital.values())


def _of_parts(rows: Iterable[LayerMemory], digital: Iterable[torch.Tensor]) -> ModelMemory:
    """Returns the memory of matrices on tiles and of what stays digital."""
    size = sum(each.numel() * each.element_size() for each in digital)
    return ModelMemory(tuple(rows), size, int(_core.scratch_memory("cpu")["limit"]))


def _of_analog(model: nn.Module) -> ModelMemory:
    """Counts the tiles of an analog model."""
    rows: list[LayerMemory] = []
    digital = {id(each): each for each in (*model.parameters(), *model.buffers())}
    seen: set[int] = set()
    carriers: set[int] = set()
    for name, layer in named_analog_parts(model):
        is_first = id(layer.carrier) not in carriers
        carriers.add(id(layer.carrier))
        digital.pop(id(layer.carrier), None)
        tiles = layer.tiles
        if id(tiles) in seen:
            continue
        seen.add(id(tiles))
        adapters = sum(_adapter_bytes(tile.config, tile.d_size, tile.x_size) for tile in tiles)
        held = _FLOAT * math.prod(tiles.shape)
        bytes_of_tiles = sum(tile.memory_bytes for tile in tiles)
        parameter = held if tiles.facts.digital_weight and is_first else 0
        lines = tiles.groups * tiles.shape[1] + tiles.shape[0]
        cells = bytes_of_tiles - held - adapters
        rows.append(
            LayerMemory(
                name, tiles.shape, len(tiles), held + parameter, cells, adapters, _FLOAT * lines
            )
        )
    if not rows:
        raise ValueError(
            "config is None, but the model has no analog layer; give the configuration of the "
            "tiles that it shall get"
        )
    return _of_parts(rows, digital.values())


def _without_memory(model: nn.Module) -> nn.Module:
    """Returns a copy of a model on the meta device; what is shared stays shared."""
    memo: dict[int, Any] = {}
    for parameter in model.parameters():
        if not isinstance(parameter, nn.parameter.UninitializedParameter):
            empty = torch.empty_like(parameter, device="meta")
            memo[id(parameter)] = nn.Parameter(empty, parameter.requires_grad)
    for buffer in model.buffers():
        memo[id(buffer)] = torch.empty_like(buffer, device="meta")
    return copy.deepcopy(model, memo)


def _matrices(
    layer: nn.Module, *, digital_bias: bool
) -> Iterator[tuple[str, nn.Parameter, nn.Parameter | None]]:
    """Yields the weights of a layer with their names, and the biases that go to cells."""
    own = dict(layer.named_parameters(recurse=False))
    for name, weight in own.items():
        if name.startswith("weight"):
            bias = None if digital_bias else own.get(name.replace("weight", "bias"))
            yield name.removeprefix("weight").removeprefix("_"), weight, bias


def _size_of(
    layer: Any,  # noqa: ANN401 - of several kinds
    weight: nn.Parameter,
    bias: nn.Parameter | None,
) -> tuple[int, int, int]:
    """Returns rows, columns and groups of a matrix on tiles."""
    shape = tuple(weight.shape)[::-1] if is_conv1d(layer) else tuple(weight.shape)
    groups = int(getattr(layer, "groups", 1))
    return shape[0], math.prod(shape[1:]) + (bias is not None), groups


def _of_matrix(
    name: str,
    size: tuple[int, int, int],
    config: TileConfig,
    limits: dict[str, int],
    has_bias: bool,
) -> LayerMemory:
    """Returns what the tiles of a matrix take."""
    rows, columns, groups = size
    of_tiles, largest = tiles_of_layer(config.frozen(), limits)
    heights = [_length(each) for each in even_slices(rows // groups, largest["max_output_size"])]
    widths = [_length(each) for each in even_slices(columns, largest["max_input_size"])]
    configs = configs_of_columns(of_tiles, len(widths), has_bias=has_bias)
    whole = adapters = 0
    for height in heights:
        for width, each in zip(widths, configs, strict=True):
            whole += groups * _tile_bytes(each, height, width)
            adapters += groups * _adapter_bytes(each, height, width)
    held = _FLOAT * rows * columns
    parameter = held if config.facts.digital_weight else 0
    lines = groups * columns + rows
    return LayerMemory(
        name,
        (rows, columns),
        groups * len(heights) * len(widths),
        held + parameter,
        whole - held - adapters,
        adapters,
        _FLOAT * lines,
    )


def _length(lines: slice) -> int:
    return int(lines.stop) - int(lines.start)


def _adapter_bytes(config: TileConfig, rows: int, columns: int) -> int:
    """Returns the bytes of an adapter in a tile."""
    if not isinstance(config, LRTTConfig) or config.rank == 0:
        return 0
    visible = config.visible.replace(cells="stored")  # with and without an adapter
    ranked, plain = config.replace(visible=visible), config.replace(visible=visible, rank=0)
    return _tile_bytes(ranked, rows, columns) - _tile_bytes(plain, rows, columns)


def _tile_bytes(config: TileConfig, rows: int, columns: int) -> int:
    """Returns the bytes of a tile.

    They are a + b rows + c columns + e rows columns, as four small tiles show. A tile in which
    rank="auto" depends on the size is small itself, and is made.
    """
    rank = getattr(config, "rank", 0)
    if rank == "auto" and min(rows, columns) < _SMALL:
        return _bytes_of((config.frozen(), rows, columns))
    least = _SMALL if rank == "auto" else max(_SMALL, 2 * int(rank))
    sizes = [(a * least, b * least) for a in (1, 2) for b in (1, 2)]
    seen = [_bytes_of((config.frozen(), *size)) for size in sizes]
    matrix = np.array([[1.0, a, b, a * b] for a, b in sizes])
    terms = np.linalg.solve(matrix, np.array(seen, float))
    return round(float(terms @ np.array([1.0, rows, columns, rows * columns])))


_known: list[tuple[tuple[TileConfig, int, int], int]] = []
"""Bytes of the tiles that were made last."""


def _bytes_of(kind: tuple[TileConfig, int, int]) -> int:
    """Returns the bytes of a tile of a configuration and size."""
    for known, size in _known:
        if known == kind:
            return size
    config, rows, columns = kind
    found = Tile(rows, columns, config, threads=1).memory_bytes
    _known[:] = [(kind, found), *_known[:63]]
    return found
