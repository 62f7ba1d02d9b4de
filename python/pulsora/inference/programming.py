"""Programming and drift of all layers of a model."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from pulsora import _core
from pulsora._internal.modules import require_module
from pulsora._internal.times import seconds
from pulsora.nn.base import AnalogModule
from pulsora.nn.fused_encoders import unfuse
from pulsora.nn.tiles.held_weights import HeldWeights
from pulsora.nn.tiles.layer_names import described
from pulsora.nn.tiles.tile_read import require_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

    from pulsora.nn.gates import TaskGate
    from pulsora.nn.tiles.tile_array import TileArray
    from pulsora.tile import Tile

__all__ = [
    "drift",
    "drifting_parts",
    "held_layers",
    "measured_number",
    "program",
    "program_others",
    "programmed_tiles",
    "require_age",
    "retaining_arrays",
    "same_point_on_error",
    "set_age",
    "unprogram",
]

_M = TypeVar("_M", bound="nn.Module")


def program(model: _M, number: int = 0, *, chip: int = 0, time: float | str = 0.0) -> _M:
    """Programs the weights of all layers of InferenceConfig, in place; reads see them at a time.

    Other analog layers stay as they are.

    Args:
        model: A model with layers of InferenceConfig, or such a layer.
        number: Number of the programming, from 0 to 2^47 - 1: each has errors of its own, and the
            same number has the same errors again.
        chip: Number of the chip, from 0 to 2^32 - 1: each has stuck devices, spreads of its
            converters and programming errors of its own.
        time: Seconds since the end of programming, or a text such as "1 day" (`seconds`).
            `program(model, time=t)` has the bits of `drift(program(model), t)` for these layers; a
            GPU makes both arrays in one pass. Pulsed arrays with a retention keep their age.

    Returns:
        The model.

    Raises:
        ValueError: If the model has no layer of InferenceConfig.
        ConfigError: For a bad number, and a time for which a noise model has no numbers; nothing
            has changed then.
        InputError: If a weight is not finite; nothing has changed then.
    """
    _program(held_layers(model), number, chip, seconds(time))
    return model


def program_others(layers: list[tuple[HeldWeights, nn.Parameter]], number: int, chip: int) -> None:
    """Programs the layers that have no measured conductances."""
    _program([each for each in layers if not each[0].is_measured], number, chip, 0.0)


def _program(
    layers: list[tuple[HeldWeights, nn.Parameter]], number: int, chip: int, time: float
) -> None:
    zeros = _zeros(layers) if layers else 0
    if zeros:
        which = "1 layer has" if zeros == 1 else f"{zeros} layers have"
        warnings.warn(
            f"{which} no weight but 0, programmed as zeros; write weights before program()",
            stacklevel=3,
        )
    HeldWeights.program(layers, number, chip, time)


def _zeros(layers: list[tuple[HeldWeights, nn.Parameter]]) -> int:
    """Returns the number of layers whose weights are all 0; InputError if some are not finite."""
    for _, weight in layers:
        require_whole(weight)
    ends = torch.stack([torch.stack(w.detach().aminmax()).float().cpu() for _, w in layers])
    for (held, weight), finite in zip(layers, ends.isfinite().all(1).tolist(), strict=True):
        if not finite:
            matrix = weight.detach().reshape(held.array.shape)
            i, j = (~matrix.isfinite()).nonzero()[0].tolist()
            raise _core.InputError(
                f"{described(held.array)}: weights[{i}, {j}] is {matrix[i, j].item():g}; every "
                "value must be finite (is the training diverging? lower the learning rate)"
            )
    return int((ends == 0.0).all(1).sum())


def drift(model: _M, time: float | str, *, redraw: int = 0) -> _M:
    """Lets reads see programmed layers and pulsed arrays with a retention at a time, in place.

    The times may come in any order: the result does not depend on earlier calls. A programmed layer
    is seen `time` after programming; an array that pulses have trained, and whose configuration has
    a `retention=`, `time` after the last pulse on it. 0 returns to what training left.

    Args:
        model: A model that `program` has programmed, or whose arrays have a retention.
        time: Seconds, or a text such as "1 day" (`seconds`).
        redraw: Number of the reading at this time; read noise is drawn for each.

    Returns:
        The model.

    Raises:
        ValueError: If the model has no layer of InferenceConfig, and no array with a retention.
        ConfigError: For a time for which a noise model has no numbers; nothing has changed then.
        StateError: If a layer of InferenceConfig is not programmed, or has changed since; nothing
            has changed then.
    """
    after = seconds(time)
    layers, arrays = drifting_parts(model)
    require_age(arrays, after)
    if layers:
        HeldWeights.drift(layers, after, redraw)
    set_age(arrays, after, redraw)
    return model


class _Before:
    """The points of layers, arrays and gates, to which they can return."""

    def __init__(
        self,
        layers: list[tuple[HeldWeights, nn.Parameter]],
        arrays: Sequence[TileArray],
        gates: Sequence[TaskGate],
    ) -> None:
        self._layers = [_PointOf(*layer) for layer in layers]
        self._ages = [(array, [_age_of(tile) for tile in array]) for array in arrays]
        self._tasks = [(gate, gate.task.clone()) for gate in gates]

    def restore_measured(self) -> None:
        """Returns layers with measured conductances alone to where they were."""
        for layer in self._layers:
            if layer.measured is not None:
                layer.restore()

    def restore(self) -> None:
        """Returns everything to where it was."""
        for array, tiles in self._ages:
            array.changes += 1
            for tile, (ages, samples) in zip(array, tiles, strict=True):
                tile._core.ages = ages  # noqa: SLF001 - of this package
                tile._core.evaluated = samples  # noqa: SLF001 - of this package
        for gate, task in self._tasks:
            gate.select(task)
        for layer in self._layers:
            layer.restore()


class _PointOf:
    """The point of a layer, its correction, and how many samples it has read."""

    def __init__(self, held: HeldWeights, weight: nn.Parameter) -> None:
        self._held, self._weight = held, weight
        self._is_stale = held.is_programmed and not held.is_current(weight)
        is_here = held.is_programmed and not self._is_stale and held.points == 1
        self._point = held.point if is_here else None
        self._affine = held.affine
        self._read = [tile._core.evaluated for tile in held.array]  # noqa: SLF001
        self.measured: list[NDArray[np.float32]] | None = None
        if is_here and held.is_measured:
            arrays: list[Any] = [tile.programming for tile in held.array]
            self.measured = [array.conductances("programmed") for array in arrays]

    def restore(self) -> None:
        held, point = self._held, self._point
        if point is None:
            held.unprogram(is_stale=self._is_stale)
            return
        if self.measured is not None:
            held.program_measured(self._weight, self.measured, point.number)
        else:
            HeldWeights.program([(held, self._weight)], point.number, point.chip)
        HeldWeights.drift([(held, self._weight)], point.time, point.redraw)
        held.affine = self._affine
        for tile, samples in zip(held.array, self._read, strict=True):
            tile._core.evaluated = samples  # noqa: SLF001 - of this package


@contextmanager
def same_point_on_error(
    layers: list[tuple[HeldWeights, nn.Parameter]],
    arrays: Sequence[TileArray] = (),
    gates: Sequence[TaskGate] = (),
) -> Iterator[_Before]:
    """Returns layers, arrays and gates to where they were, if the block raises an error.

    Layers that were not programmed read their weights then, and those that were stale are refused
    as before.
    """
    before = _Before(layers, arrays, gates)
    try:
        yield before
    except BaseException:
        before.restore()
        raise


def measured_number(layers: list[tuple[HeldWeights, nn.Parameter]]) -> int | None:
    """Returns the number of the programming of measured conductances; None if there are none.

    Raises:
        ValueError: If layers have measured conductances of different programmings.
        StateError: If weights changed since.
    """
    numbers = set()
    for held, weight in layers:
        if held.is_measured:
            held.require_current(weight)
            numbers.add(held.point.number)
    if len(numbers) > 1:
        raise ValueError(
            f"layers have measured conductances of the programmings {sorted(numbers)}; load those "
            "of one chip, by load_conductances(model, folder, number=...)"
        )
    return next(iter(numbers), None)


def _age_of(tile: Tile) -> tuple[list[tuple[float, int]], int]:
    """Returns time and reading of each array of a tile, and how many samples it has evaluated."""
    return tile._core.ages, tile._core.evaluated  # noqa: SLF001 - of this package


def drifting_parts(
    model: nn.Module,
) -> tuple[list[tuple[HeldWeights, nn.Parameter]], list[TileArray]]:
    """Returns the layers that are programmed, and the tiles of arrays that drift by themselves.

    Raises:
        ValueError: If there are neither.
    """
    layers, arrays = _held_layers(model), retaining_arrays(model)
    if not layers and not arrays:
        raise ValueError(
            "the model has no layer of InferenceConfig, and no array with a retention; make one by "
            "pulsora.convert_to_analog(model, config) with an InferenceConfig, or with another "
            "configuration that has a retention=, such as SingleConfig"
        )
    return layers, arrays


def require_age(arrays: list[TileArray], time: float) -> None:
    """Raises ConfigError for a time for which a noise model of these arrays has no numbers."""
    for array in arrays:
        for tile in array:
            tile._core.require_age(time)  # noqa: SLF001 - of this package


def set_age(
    arrays: list[TileArray], time: float, redraw: int = 0, *, from_now: bool = False
) -> None:
    """Lets reads see these arrays at an age, or `from_now`, so much older than they are."""
    for array in arrays:
        array.changes += 1
        for tile in array:
            tile._core.drift_cells(time, redraw, from_now)  # noqa: SLF001 - of this package


def retaining_arrays(model: nn.Module) -> list[TileArray]:
    """Returns the tiles of each layer whose pulsed arrays drift, in the order of the layers."""
    found = {
        id(layer.tiles): layer.tiles
        for layer in model.modules()
        if isinstance(layer, AnalogModule) and next(iter(layer.tiles)).retention is not None
    }
    return list(found.values())


def unprogram(model: _M) -> _M:
    """Returns to reads of the weights themselves, in place.

    Raises:
        ValueError: If the model has no layer of InferenceConfig.
    """
    for held, _ in held_layers(model):
        held.unprogram()
    return model


def programmed_tiles(model: nn.Module) -> list[Tile]:
    """Returns the tiles of InferenceConfig of a model, in the order of its layers.

    Raises:
        ValueError: If there are none.
    """
    return [tile for held, _ in held_layers(model) for tile in held.array]


def held_layers(model: nn.Module) -> list[tuple[HeldWeights, nn.Parameter]]:
    """Returns tiles and weight of each layer of InferenceConfig, in the order of the model.

    Raises:
        ValueError: If there are none.
    """
    found = _held_layers(model)
    if not found:
        raise ValueError(
            "the model has no layer of InferenceConfig; make one by "
            "pulsora.convert_to_analog(model, pulsora.InferenceConfig(...))"
        )
    return found


def _held_layers(model: nn.Module) -> list[tuple[HeldWeights, nn.Parameter]]:
    require_module(model)
    unfuse(model)
    found = {
        id(layer.held): (layer.held, layer.carrier)
        for layer in model.modules()
        if isinstance(layer, AnalogModule) and isinstance(layer.held, HeldWeights)
    }
    return list(found.values())
