"""Weights of programmed arrays, as their reads see them."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch

from pulsora import _core
from pulsora.nn.base import AnalogModule
from pulsora.nn.tiles.held_weights import HeldWeights

if TYPE_CHECKING:
    from torch import nn

__all__ = ["take_programmed"]


@torch.no_grad()
def take_programmed(model: nn.Module) -> None:
    """Writes what reads of programmed arrays see into the weights of layers; unprograms them."""
    corrected: list[str] = []
    for name, layer in model.named_modules():
        held = layer.held if isinstance(layer, AnalogModule) else None
        if not isinstance(held, HeldWeights) or not isinstance(layer, AnalogModule):
            continue
        if not held.is_programmed:
            raise _core.StateError(
                f"layer '{name}' is not programmed; call pulsora.program(model) first, or leave "
                "out programmed=True"
            )
        held.require_drift(layer.carrier, 0.0)
        corrected += [name] * (held.affine is not None)
    if corrected:
        warnings.warn(
            f"layers {corrected} have corrections of their outputs (pulsora.inference.fit_affine), "
            "which the digital layers lack; call pulsora.drift(model, time) before, which removes "
            "them, if this is meant",
            stacklevel=3,
        )
    seen = {
        layer.held: layer.held.array.get_weights()
        for layer in model.modules()
        if isinstance(layer, AnalogModule) and isinstance(layer.held, HeldWeights)
    }
    for layer in model.modules():
        if (
            isinstance(layer, AnalogModule)
            and isinstance(layer.held, HeldWeights)
            and layer.held in seen
        ):
            layer.held.unprogram()
            layer.carrier.copy_(seen[layer.held].reshape(layer.carrier.shape))
