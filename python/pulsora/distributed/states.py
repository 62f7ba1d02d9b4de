"""Digests of the states of a model, by which processes compare them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import torch

from pulsora.nn.autograd.analog_parameter import AnalogParameter
from pulsora.state import State

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from torch import nn

    from pulsora.nn.base import AnalogModule

__all__ = ["states"]

_OF_CELLS = {"cells", "cells_drawn", "decay_rates", "diffusions", "resets"}
"""Last parts of the names of tensors and values of cells, which never change."""


def states(
    model: nn.Module,
    layers: Mapping[str, AnalogModule],
    names: Collection[str] | None = None,
    *,
    without_cells: bool = False,
    without_tensors: bool = False,
) -> dict[str, str]:
    """Returns digests of the states of layers, and of parameters with these names or all.

    Without cells, digests are equal also where cells are stored on some processes alone. Without
    tensors, they are those of counters and other numbers, which all processes have.
    """
    found = {}
    sums: list[Any]
    for name, layer in layers.items():
        if without_tensors:
            together = layer.tiles.together
            sums = together.changed_numbers(list(range(len(layer.tiles))))
        else:
            sums = [_checksum(tile.state(), without_cells) for tile in layer.tiles]
        scales = layer.tiles.scales
        found[name] = f"{sums} {'' if scales is None else _bytes(scales)}"
    for name, each in model.named_parameters():
        if not isinstance(each, AnalogParameter) and (names is None or name in names):
            found[name] = _bytes(each)
    return found


def _checksum(state: State, without_cells: bool) -> str:
    if without_cells:
        tensors, values = (
            {name: each for name, each in part.items() if name.rpartition("/")[2] not in _OF_CELLS}
            for part in (state.tensors, state.values)
        )
        state = State(tensors, values).signed()
    return str(state.values["checksum"])


def _bytes(values: torch.Tensor) -> str:
    flat = values.detach().cpu().contiguous().view(-1).view(torch.uint8)
    return hashlib.sha256(flat.numpy().tobytes()).hexdigest()
