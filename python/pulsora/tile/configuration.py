"""Configurations that callers give."""

from __future__ import annotations

from pulsora.config import CLASSES, SingleConfig, TileConfig
from pulsora.devices import Device

__all__ = ["config_of"]


def config_of(given: object, name: str = "config") -> TileConfig:
    """Returns a configuration, by default a SingleConfig; TypeError for anything else."""
    if given is None:
        return SingleConfig()
    if isinstance(given, TileConfig):
        return given
    kinds = " or ".join(made.__name__ for made in CLASSES.values())
    if isinstance(given, type):
        hint = f"; write {given.__name__}()" if issubclass(given, TileConfig) else ""
        raise TypeError(f"{name} is the class {given.__name__}; pass a {kinds}{hint}")
    hint = ", such as SingleConfig(device=...) of this device" if isinstance(given, Device) else ""
    raise TypeError(f"{name} is of type {type(given).__name__}; pass a {kinds}{hint}")
