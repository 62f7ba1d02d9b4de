"""Configurations of Tiki-Taka and its successors for the device presets: part of `presets`.

`EcRamTikiTaka()`, `EcRamTTv2()`, `EcRamChoppedTTv2()` and `EcRamAGAD()` are chains of two arrays of
EcRam devices with the periphery of `io()`. The last three read a column after each sample, and
find the learning rate of the fast array by themselves (`auto_scale`). They take any setting of
`TransferConfig`. The settings are those of AIHWKit's presets for the same devices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pulsora.config import UpdateParameters
from pulsora.devices import Capacitor, EcRam, EcRamMO, Idealized, ReRamES, ReRamSB
from pulsora.preset_io import io
from pulsora.tiki_taka import AGAD, ChoppedTTv2, TikiTaka

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsora.config import TransferConfig
    from pulsora.devices import Device

__all__ = [
    f"{device}{algorithm}"
    for device in ("Idealized", "EcRam", "EcRamMO", "Capacitor", "ReRamES", "ReRamSB")
    for algorithm in ("TikiTaka", "TTv2", "ChoppedTTv2", "AGAD")
]


class _Numbers(NamedTuple):
    """The settings that differ between devices."""

    fast_lr: float
    chopped_fast_lr: float
    auto_granularity: int
    agad_granularity: int
    slots: int
    agad_slots: int
    in_chop_prob: float
    agad_chop_prob: float
    tail_weightening: float


_RERAM = _Numbers(0.5, 0.5, 1000, 1000, 31, 31, 0.01, 0.02, 5.0)
_FINE = _Numbers(0.1, 0.1, 500, 500, 100, 100, 0.001, 0.005, 50.0)
_NUMBERS = {
    ReRamES: _RERAM,
    ReRamSB: _RERAM,
    Capacitor: _Numbers(0.1, 0.1, 1000, 1000, 31, 31, 0.01, 0.01, 20.0),
    EcRam: _Numbers(0.1, 1.0, 500, 750, 100, 31, 0.01, 0.005, 50.0),
    EcRamMO: _FINE,
    Idealized: _FINE,
}


def _cells(preset: Callable[..., Device]) -> Device:
    """The preset's cells; those of ReRamSB are read against their symmetric point."""
    return preset(subtract_symmetry_point=True) if preset is ReRamSB else preset()


def _named(
    preset: Callable[..., Device], algorithm: str, text: str, make: Callable[..., TransferConfig]
) -> Callable[..., TransferConfig]:
    make.__name__ = make.__qualname__ = f"{preset.__name__}{algorithm}"
    make.__doc__ = f"{text} with two arrays of {preset.__name__} devices and `io()`."
    return make


def _transfers(preset: Callable[..., Device]) -> tuple[Callable[..., TransferConfig], ...]:
    numbers = _NUMBERS[preset]

    def periphery(slots: int) -> dict[str, Any]:
        reads = io(noise_management="none", bound_management="none")
        update = UpdateParameters(desired_bl=slots)
        return {"forward": io(), "backward": io(), "transfer_forward": reads, "update": update}

    def tiki_taka(**settings: Any) -> TransferConfig:
        return TikiTaka(_cells(preset), **(periphery(31) | settings))

    def chopped(in_chop_prob: float, fast_lr: float, settings: dict[str, Any]) -> TransferConfig:
        own = {
            "auto_scale": True,
            "fast_lr": fast_lr,
            "auto_granularity": numbers.auto_granularity,
            "in_chop_prob": in_chop_prob,
        }
        return ChoppedTTv2(_cells(preset), **(periphery(numbers.slots) | own | settings))

    def ttv2(**settings: Any) -> TransferConfig:
        return chopped(0.0, numbers.fast_lr, settings)

    def chopped_ttv2(**settings: Any) -> TransferConfig:
        return chopped(numbers.in_chop_prob, numbers.chopped_fast_lr, settings)

    def agad(**settings: Any) -> TransferConfig:
        own = {
            "auto_scale": True,
            "fast_lr": numbers.fast_lr,
            "auto_granularity": numbers.agad_granularity,
            "in_chop_prob": numbers.agad_chop_prob,
            "tail_weightening": numbers.tail_weightening,
        }
        return AGAD(_cells(preset), **(periphery(numbers.agad_slots) | own | settings))

    return (
        _named(preset, "TikiTaka", "Tiki-Taka v1", tiki_taka),
        _named(preset, "TTv2", "Tiki-Taka v2", ttv2),
        _named(preset, "ChoppedTTv2", "Chopped Tiki-Taka v2", chopped_ttv2),
        _named(preset, "AGAD", "AGAD", agad),
    )


IdealizedTikiTaka, IdealizedTTv2, IdealizedChoppedTTv2, IdealizedAGAD = _transfers(Idealized)
EcRamTikiTaka, EcRamTTv2, EcRamChoppedTTv2, EcRamAGAD = _transfers(EcRam)
EcRamMOTikiTaka, EcRamMOTTv2, EcRamMOChoppedTTv2, EcRamMOAGAD = _transfers(EcRamMO)
CapacitorTikiTaka, CapacitorTTv2, CapacitorChoppedTTv2, CapacitorAGAD = _transfers(Capacitor)
ReRamESTikiTaka, ReRamESTTv2, ReRamESChoppedTTv2, ReRamESAGAD = _transfers(ReRamES)
ReRamSBTikiTaka, ReRamSBTTv2, ReRamSBChoppedTTv2, ReRamSBAGAD = _transfers(ReRamSB)
