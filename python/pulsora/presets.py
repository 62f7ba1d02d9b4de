"""Configurations of whole tiles with published numbers, and the devices that they are made of.

Every device preset (`EcRam()`, see `pulsora.devices`) has two configurations, with the periphery of
`io()`: `EcRamSingle()`, one array under plain pulsed SGD, and `EcRamLRTT(rank=16)`, an array with a
pulsed low-rank adapter. Six of them have `EcRamPair()` and `EcRamQuad()`, two and four arrays that
act as one weight, and chains of arrays (`transfer_presets`): `EcRamTikiTaka()`, `EcRamTTv2()`,
`EcRamChoppedTTv2()`, `EcRamAGAD()`. Eight have mixed precision (`mixed_precision_presets`):
`EcRamMixedPrecision()`. `PCMPair()` has two arrays of cells that can only grow, and
`ReRamArrayOMSingle()` and `ReRamArrayHfO2Single()` have cells of few states. `StandardHWA()`,
`AnalogFoundation()`, `ReRamCMO()`, `RRAMMilo()` and `SONOS()` are arrays that are programmed once.
All take any setting of the configuration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pulsora.config import LRTTConfig, OneSidedConfig, SingleConfig, VectorConfig
from pulsora.crosssim_presets import SONOS, RRAMMilo
from pulsora.devices import (
    COARSE,
    DEVICES,
    ONE_SIDED,
    PCM,
    Capacitor,
    EcRam,
    EcRamMO,
    GokmenVlasov,
    Idealized,
    ReRamArrayHfO2,
    ReRamArrayOM,
    ReRamES,
    ReRamSB,
    SixT1C,
)
from pulsora.devices.presets import device, names
from pulsora.inference_presets import AnalogFoundation, ReRamCMO, StandardHWA, noise_model
from pulsora.mixed_precision_presets import (
    CapacitorMixedPrecision,
    EcRamMixedPrecision,
    EcRamMOMixedPrecision,
    GokmenVlasovMixedPrecision,
    IdealizedMixedPrecision,
    PCMMixedPrecision,
    ReRamESMixedPrecision,
    ReRamSBMixedPrecision,
)
from pulsora.preset_io import io
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
    "COARSE",
    "DEVICES",
    "ONE_SIDED",
    "PCM",
    "SONOS",
    "AnalogFoundation",
    "Capacitor",
    "CapacitorAGAD",
    "CapacitorChoppedTTv2",
    "CapacitorLRTT",
    "CapacitorMixedPrecision",
    "CapacitorPair",
    "CapacitorQuad",
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
    "EcRamMOMixedPrecision",
    "EcRamMOPair",
    "EcRamMOQuad",
    "EcRamMOSingle",
    "EcRamMOTTv2",
    "EcRamMOTikiTaka",
    "EcRamMixedPrecision",
    "EcRamPair",
    "EcRamQuad",
    "EcRamSingle",
    "EcRamTTv2",
    "EcRamTikiTaka",
    "GokmenVlasov",
    "GokmenVlasovLRTT",
    "GokmenVlasovMixedPrecision",
    "GokmenVlasovSingle",
    "Idealized",
    "IdealizedAGAD",
    "IdealizedChoppedTTv2",
    "IdealizedLRTT",
    "IdealizedMixedPrecision",
    "IdealizedPair",
    "IdealizedQuad",
    "IdealizedSingle",
    "IdealizedTTv2",
    "IdealizedTikiTaka",
    "PCMMixedPrecision",
    "PCMPair",
    "RRAMMilo",
    "ReRamArrayHfO2",
    "ReRamArrayHfO2Single",
    "ReRamArrayOM",
    "ReRamArrayOMSingle",
    "ReRamCMO",
    "ReRamES",
    "ReRamESAGAD",
    "ReRamESChoppedTTv2",
    "ReRamESLRTT",
    "ReRamESMixedPrecision",
    "ReRamESPair",
    "ReRamESQuad",
    "ReRamESSingle",
    "ReRamESTTv2",
    "ReRamESTikiTaka",
    "ReRamSB",
    "ReRamSBAGAD",
    "ReRamSBChoppedTTv2",
    "ReRamSBLRTT",
    "ReRamSBMixedPrecision",
    "ReRamSBPair",
    "ReRamSBQuad",
    "ReRamSBSingle",
    "ReRamSBTTv2",
    "ReRamSBTikiTaka",
    "SixT1C",
    "SixT1CLRTT",
    "SixT1CSingle",
    "StandardHWA",
    "device",
    "io",
    "lrtt",
    "names",
    "noise_model",
    "one_sided",
    "single",
    "vector",
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


def _vector(preset: Callable[..., Device], count: int, word: str) -> Callable[..., VectorConfig]:
    def make(**settings: Any) -> VectorConfig:
        return vector(preset(), count, **settings)

    make.__name__ = make.__qualname__ = f"{preset.__name__}{word}"
    make.__doc__ = (
        f"{count} arrays of {preset.__name__} devices that act as one weight, of which one, chosen "
        "at random, takes the pulses of a sample, with `io()`."
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
ReRamArrayOMSingle, ReRamArrayHfO2Single = _single(ReRamArrayOM), _single(ReRamArrayHfO2)

IdealizedPair, IdealizedQuad = _vector(Idealized, 2, "Pair"), _vector(Idealized, 4, "Quad")
EcRamPair, EcRamQuad = _vector(EcRam, 2, "Pair"), _vector(EcRam, 4, "Quad")
EcRamMOPair, EcRamMOQuad = _vector(EcRamMO, 2, "Pair"), _vector(EcRamMO, 4, "Quad")
CapacitorPair, CapacitorQuad = _vector(Capacitor, 2, "Pair"), _vector(Capacitor, 4, "Quad")
ReRamESPair, ReRamESQuad = _vector(ReRamES, 2, "Pair"), _vector(ReRamES, 4, "Quad")
ReRamSBPair, ReRamSBQuad = _vector(ReRamSB, 2, "Pair"), _vector(ReRamSB, 4, "Quad")


def PCMPair(**settings: Any) -> OneSidedConfig:  # noqa: N802 - named as a preset
    """Two arrays of PCM devices, which can only grow, refreshed after every mini-batch; `io()`."""
    return one_sided(PCM(), **settings)


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


def vector(name: str | os.PathLike[str] | Device, count: int = 2, **settings: Any) -> VectorConfig:
    """Equal arrays that act as one weight, with `io()`; `EcRamPair()` is `vector("EcRam", 2)`.

    One array, chosen at random, takes the pulses of a sample.

    Args:
        name: The device, as `device()` takes it: a preset, a model, a file or a device.
        count: Number of arrays, 1 to 8.
        settings: Settings of the configuration.

    Raises:
        ValueError: for an unknown name.
        ConfigError: for another number of arrays.
    """
    devices = [device(name) for _ in range(count)]
    defaults = {"devices": devices, "update_policy": "single_random"}
    return VectorConfig(**(defaults | {"forward": io(), "backward": io()} | settings))


def one_sided(name: str | os.PathLike[str] | Device = "PCM", **settings: Any) -> OneSidedConfig:
    """Pairs of cells that can only grow, with `io()`; `PCMPair()` is `one_sided("PCM")`.

    Args:
        name: The device, as `device()` takes it: a preset, a model, a file or a device.
        settings: Settings of the configuration.

    Raises:
        ValueError: for an unknown name.
    """
    defaults = {"device": device(name), "forward": io(), "backward": io()}
    return OneSidedConfig(**(defaults | settings))


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
