"""Configurations of mixed precision for the device presets: part of `presets`.

`EcRamMixedPrecision()` has an array of EcRam devices that follows a digital weight, with the
periphery of `io()`. `PCMMixedPrecision()` has pairs of cells that are pulsed up alone. All take any
setting of `MixedPrecisionConfig`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsora.config import MixedPrecisionConfig
from pulsora.devices import (
    PCM,
    Capacitor,
    EcRam,
    EcRamMO,
    GokmenVlasov,
    Idealized,
    ReRamES,
    ReRamSB,
)
from pulsora.preset_io import io

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsora.devices import Device

_DEVICES = (Capacitor, EcRam, EcRamMO, GokmenVlasov, Idealized, PCM, ReRamES, ReRamSB)

__all__ = [
    f"{device}MixedPrecision"
    for device in (
        "Capacitor",
        "EcRam",
        "EcRamMO",
        "GokmenVlasov",
        "Idealized",
        "PCM",
        "ReRamES",
        "ReRamSB",
    )
]


def _preset(device: Callable[..., Device]) -> Callable[..., MixedPrecisionConfig]:
    name = device.__name__

    def make(**settings: Any) -> MixedPrecisionConfig:
        cells = {"cells": "one_sided"} if device is PCM else {}
        defaults: dict[str, Any] = {"visible": device(), "forward": io(), "backward": io(), **cells}
        return MixedPrecisionConfig(**(defaults | settings))

    make.__name__ = make.__qualname__ = f"{name}MixedPrecision"
    make.__doc__ = f"Cells of {name} that follow a digital weight (mixed precision), with `io()`."
    return make


(
    CapacitorMixedPrecision,
    EcRamMixedPrecision,
    EcRamMOMixedPrecision,
    GokmenVlasovMixedPrecision,
    IdealizedMixedPrecision,
    PCMMixedPrecision,
    ReRamESMixedPrecision,
    ReRamSBMixedPrecision,
) = map(_preset, _DEVICES)
