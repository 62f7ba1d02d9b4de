"""Hooks on forward and backward passes, which stay where one layer takes the place of another."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

__all__ = ["in_place_of", "move_hooks", "separate_hooks"]

_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
)


def in_place_of(layer: nn.Module, twin: nn.Module) -> nn.Module:
    """Returns the twin, in the mode and with the hooks of the layer that it replaces.

    Hooks that the twin has already come first.
    """
    for name in _HOOKS:
        getattr(twin, name).update(getattr(layer, name))
    if layer._is_full_backward_hook is not None:  # noqa: SLF001
        twin._is_full_backward_hook = layer._is_full_backward_hook  # noqa: SLF001
    return twin.train(layer.training)


def move_hooks(layer: nn.Module, outer: nn.Module) -> None:
    """Moves the hooks on forward and backward passes of a layer to the module around it."""
    in_place_of(layer, outer)
    for name in _HOOKS:
        getattr(layer, name).clear()
    layer._is_full_backward_hook = None  # noqa: SLF001


def separate_hooks(layer: nn.Module) -> None:
    """Gives a shallow copy of a layer tables of hooks of its own."""
    for name in _HOOKS:
        setattr(layer, name, copy.copy(getattr(layer, name)))
