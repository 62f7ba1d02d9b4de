"""Weights of programmed arrays, as their reads see them."""

from __future__ import annotations

import warnings

import torch
from torch import nn

from pulsora import _core
from pulsora.nn.base import AnalogModule
from pulsora.nn.tiles.held_weights import HeldWeights

__all__ = ["take_programmed"]


@torch.no_grad()
def take_programmed(model: nn.Module) -> None:
    """Writes what reads of programmed arrays see into the weights of layers; unprograms them."""
    corrected: list[str] = []
    layers = [
        (name, layer, layer.held)
        for name, layer in model.named_modules()
        if isinstance(layer, AnalogModule) and isinstance(layer.held, HeldWeights)
    ]
    for name, layer, held in layers:
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
    seen = {held: held.array.get_weights() for _, _, held in layers}
    taken: dict[nn.Parameter, HeldWeights] = {}
    for _, layer, held in layers:
        held.unprogram()
        if taken.setdefault(layer.carrier, held) is not held:  # a tied weight in other arrays
            own = nn.Parameter(layer.carrier.clone(), requires_grad=layer.carrier.requires_grad)
            layer._set_carrier(own)  # noqa: SLF001 - of this package
        layer.carrier.copy_(seen[held].reshape(layer.carrier.shape))
