"""Reads of a model as exact products of its weights, and what they were given."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pulsora._internal.modules import require_module
from pulsora.nn.base import AnalogModule
from pulsora.nn.tiles.held_weights import HeldWeights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor, nn

__all__ = ["exact_reads", "layers_by_name"]


def layers_by_name(model: nn.Module) -> dict[str, AnalogModule]:
    """Returns the layers of InferenceConfig by their names; layers with shared tiles once."""
    require_module(model)
    found = {
        id(layer.held): (name, layer)
        for name, layer in reversed(list(model.named_modules()))
        if isinstance(layer, AnalogModule) and isinstance(layer.held, HeldWeights)
    }
    return dict(reversed(list(found.values())))


@contextmanager
def exact_reads(
    layers: dict[str, AnalogModule], seen: Callable[[str, Tensor], object]
) -> Iterator[None]:
    """Within this context, layers multiply by their weights exactly.

    Args:
        layers: Layers of InferenceConfig by name.
        seen: Called with a layer's name and its inputs [m, groups * in_features] at each read.
    """
    for name, layer in layers.items():
        held: Any = layer.held
        held.exact = lambda x, name=name: seen(name, x)
    try:
        yield
    finally:
        for layer in layers.values():
            held = layer.held
            held.exact = None
