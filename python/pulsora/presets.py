"""Configurations of whole tiles with published numbers, and the devices that they are made of.

Every device preset (`EcRam()`, see `pulsora.devices`) has two configurations, with the periphery of
`io()`: `EcRamSingle()`, one array under plain pulsed SGD, and `EcRamLRTT(rank=16)`, an array with a
pulsed low-rank adapter. Both take any setting of the configuration. Six devices have chains of
arrays too (`transfer_presets`): `EcRamTikiTaka()`, `EcRamTTv2()`, `EcRamChoppedTTv2()`,
`EcRamAGAD()`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pulsora._internal.preset_io import io
from pulsora.config import LRTTConfig, SingleConfig
from pulsora.devices import (
    DEVICES,
    Capacitor,
    EcRam,
    EcRamMO,
    GokmenVlasov,
    Idealized,
    ReRamES,
    ReRamSB,
    SixT1C,
)
from pulsora.devices.presets import device, names
from pulsora.transfer_presets import (
    CapacitorAGAD,
    CapacitorChoppedTTv2,
    CapacitorTikiTaka,
    CapacitorTTv2,
    EcRamAGAD,
    EcRamChoppedTTv2,
    EcRamMOAGAD,
    EcRamMOChoppedTTv2,
    EcRamMOTikiTaka,
    EcRamMOTTv2,
    EcRamTikiTaka,
    EcRamTTv2,
    IdealizedAGAD,
    IdealizedChoppedTTv2,
    IdealizedTikiTaka,
    IdealizedTTv2,
    ReRamESAGAD,
    ReRamESChoppedTTv2,
    ReRamESTikiTaka,
    ReRamESTTv2,
    ReRamSBAGAD,
    ReRamSBChoppedTTv2,
    ReRamSBTikiTaka,
    ReRamSBTTv2,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from pulsora.devices import Device

__all__ = [
    "DEVICES",
    "Capacitor",
    "CapacitorAGAD",
    "CapacitorChoppedTTv2",
    "CapacitorLRTT",
    "CapacitorSingle",
    "CapacitorTTv2",
    "CapacitorTikiTaka",
    "EcRam",
    "EcRamAGAD",
    "EcRamChoppedTTv2",
    "EcRamLRTT",
    "EcRamMO",
    "EcRamMOAGAD",
    "EcRamMOChoppedTTv2",
    "EcRamMOLRTT",
    "EcRamMOSingle",
    "EcRamMOTTv2",
    "EcRamMOTikiTaka",
    "EcRamSingle",
    "EcRamTTv2",
    "EcRamTikiTaka",
    "GokmenVlasov",
    "GokmenVlasovLRTT",
    "GokmenVlasovSingle",
    "Idealized",
    "IdealizedAGAD",
    "IdealizedChoppedTTv2",
    "IdealizedLRTT",
    "IdealizedSingle",
    "IdealizedTTv2",
    "IdealizedTikiTaka",
    "ReRamES",
    "ReRamESAGAD",
    "ReRamESChoppedTTv2",
    "ReRamESLRTT",
    "ReRamESSingle",
    "ReRamESTTv2",
    "ReRamESTikiTaka",
    "ReRamSB",
    "ReRamSBAGAD",
    "ReRamSBChoppedTTv2",
    "ReRamSBLRTT",
    "ReRamSBSingle",
    "ReRamSBTTv2",
    "ReRamSBTikiTaka",
    "SixT1C",
    "SixT1CLRTT",
    "SixT1CSingle",
    "device",
    "io",
    "lrtt",
    "names",
    "single",
]


def _single(preset: Callable[..., Device]) -> Callable[..., SingleConfig]:
    def make(**settings: Any) -> SingleConfig:
        return single(preset(), **settings)

    make.__name__ = make.__qualname__ = f"{preset.__name__}Single"
    make.__doc__ = f"One array of {preset.__name__} devices under pulsed SGD, with `io()`."
    return make


def _lrtt(preset: Callable[..., Device]) -> Callable[..., LRTTConfig]:
    def make(rank: int | Literal["auto"] = "auto", **settings: Any) -> LRTTConfig:
        return lrtt(preset(), rank, **settings)

    make.__name__ = make.__qualname__ = f"{preset.__name__}LRTT"
    make.__doc__ = (
        f"A pulsed low-rank adapter of SixT1C cells on an array of {preset.__name__} devices, "
        "with `io()`."
    )
    return make


IdealizedSingle, IdealizedLRTT = _single(Idealized), _lrtt(Idealized)
GokmenVlasovSingle, GokmenVlasovLRTT = _single(GokmenVlasov), _lrtt(GokmenVlasov)
EcRamSingle, EcRamLRTT = _single(EcRam), _lrtt(EcRam)
EcRamMOSingle, EcRamMOLRTT = _single(EcRamMO), _lrtt(EcRamMO)
CapacitorSingle, CapacitorLRTT = _single(Capacitor), _lrtt(Capacitor)
SixT1CSingle, SixT1CLRTT = _single(SixT1C), _lrtt(SixT1C)
ReRamESSingle, ReRamESLRTT = _single(ReRamES), _lrtt(ReRamES)
ReRamSBSingle, ReRamSBLRTT = _single(ReRamSB), _lrtt(ReRamSB)


def single(name: str | os.PathLike[str] | Device, **settings: Any) -> SingleConfig:
    """One array under pulsed SGD, with `io()`; `EcRamSingle()` is `single("EcRam")`.

    Args:
        name: The device, as `device()` takes it: a preset, a model, a file or a device.
        settings: Settings of the configuration.

    Raises:
        ValueError: for an unknown name.
    """
    defaults = {"device": device(name), "forward": io(), "backward": io()}
    return SingleConfig(**(defaults | settings))


def lrtt(
    name: str | os.PathLike[str] | Device, rank: int | Literal["auto"] = "auto", **settings: Any
) -> LRTTConfig:
    """A low-rank adapter of SixT1C cells with `io()`; `EcRamLRTT()` is `lrtt("EcRam")`.

    Args:
        name: The device of the large array, as `device()` takes it: a preset, a model, a file or a
            device.
        rank: Rank of the adapter.
        settings: Settings of the configuration.

    Raises:
        ValueError: for an unknown name.
    """
    # Fast arrays take many pulses around zero: cells that are symmetric there and do not forget
    # serve for every visible device, and of the presets with a measured fit, the 6T1C cell does so
    # best (docs/explain/results.md).
    defaults = {"visible": device(name), "fast": SixT1C(), "forward": io(), "backward": io()}
    return LRTTConfig(rank=rank, **(defaults | settings))
