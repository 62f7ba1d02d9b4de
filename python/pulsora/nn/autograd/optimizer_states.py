"""Saved states of optimisers, whose entries follow the order of the parameters.

Earlier versions had another order: the bias of a layer before its analog weight. A state of a
digital run has an entry for each weight that is analog now.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import torch

from pulsora.nn.autograd.analog_parameter import AnalogParameter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

__all__ = ["in_present_order"]


def in_present_order(groups: Sequence[dict[str, Any]], saved: dict[str, Any]) -> dict[str, Any]:
    """Returns an optimiser's saved state with its entries at the places of `groups`' parameters.

    Entries of weights that are analog now are left out, with a warning.
    """
    entries: dict[Any, Any] = dict(saved["state"])
    left_out = 0
    for group, of_group in zip(groups, saved["param_groups"], strict=False):
        keys = list(of_group["params"])
        parameters = list(group["params"])
        if len(keys) != len(parameters):
            return saved  # torch says that sizes differ
        old = [entries.pop(key, None) for key in keys]
        new = _placed(parameters, old)
        for key, parameter, entry in zip(keys, parameters, new, strict=True):
            if entry is not None and _is_of_weight(parameter, _shape(entry)):
                left_out += 1
            elif entry is not None:
                entries[key] = entry
    if left_out:
        warnings.warn(
            f"the saved state of this optimiser has entries (momentum, averages) for {left_out} "
            "weights that are analog now; pulses follow plain SGD, so that these entries are left "
            "out",
            stacklevel=5,
        )
    return {**saved, "state": entries}


def _placed(parameters: Sequence[Tensor], entries: Sequence[Any]) -> Sequence[Any]:
    """Moves entries of earlier versions and of digital runs to the places of their parameters.

    Entries that fit nowhere stay, so that the optimiser's step raises torch's error.
    """
    placed = list(entries)
    for i, parameter in enumerate(parameters):
        if placed[i] is None or _belongs(parameter, _shape(placed[i])):
            continue
        one_further = i + 1 < len(placed) and placed[i + 1] is None
        is_shifted = one_further or isinstance(parameter, AnalogParameter)
        if not (_shift(placed, i) if is_shifted else _sort(parameters, placed, i)):
            return entries
    return placed


def _shift(entries: list[Any], start: int) -> bool:
    """Moves the entry at an analog weight, and all that follow, up to the next empty place."""
    carried, entries[start] = entries[start], None
    for i in range(start + 1, len(entries)):
        entries[i], carried = carried, entries[i]
        if carried is None:
            return True
    return False


def _sort(parameters: Sequence[Tensor], entries: list[Any], start: int) -> bool:
    """Sorts the entries of a recurrent layer of torch: each to the first parameter of its shape.

    Torch has the weights of each direction before its biases; the analog layer has all biases
    before all weights.
    """
    stop = start
    for is_analog in (False, True):
        while stop < len(entries) and isinstance(parameters[stop], AnalogParameter) == is_analog:
            stop += 1
    rest = [entry for entry in entries[start:stop] if entry is not None]
    for i in range(start, stop):
        found = (n for n, entry in enumerate(rest) if _belongs(parameters[i], _shape(entry)))
        place = next(found, None)
        entries[i] = None if place is None else rest.pop(place)
    return not rest


def _shape(entry: dict[str, Any]) -> tuple[int, ...] | None:
    """Returns the shape of the parameter whose entry this is; None if the entry does not tell."""
    tensors = (value for value in entry.values() if isinstance(value, torch.Tensor))
    return next((tuple(each.shape) for each in tensors if each.dim() > 0), None)


def _belongs(parameter: Tensor, shape: tuple[int, ...] | None) -> bool:
    is_same = shape == tuple(parameter.shape)
    return shape is None or is_same or _is_of_weight(parameter, shape)


def _is_of_weight(parameter: Tensor, shape: tuple[int, ...] | None) -> bool:
    """Whether the shape is of the digital weight that an analog parameter has replaced."""
    if not isinstance(parameter, AnalogParameter) or shape is None:
        return False
    rows, columns = parameter.shape
    return shape == (columns, rows) or (shape[0] == rows and math.prod(shape[1:]) == columns)
