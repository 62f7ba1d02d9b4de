"""Devices in files: one table of plain values, as TOML or JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pulsora._internal.files import read_settings, replace_file
from pulsora.devices.models import Device

if TYPE_CHECKING:
    import os

__all__ = ["is_file_name", "load", "save"]


def save(device: Device, path: str | os.PathLike[str]) -> None:
    """Writes a device to a text file that `load` reads.

    Args:
        device: The device.
        path: The file; `.toml` or `.json`. An existing file is replaced at once.

    Raises:
        TypeError: if `device` is no device.
        ValueError: for another file ending.
        OSError: if the file cannot be written.
    """
    if not isinstance(device, Device):
        raise TypeError(f"device is of type {type(device).__name__}; pass a device model")
    suffix = _suffix(path)
    values = device.to_dict()
    if suffix == ".json":
        text = json.dumps(values, indent=1) + "\n"
    else:
        # Numbers, truth values, lists and plain words are the same in JSON and in TOML.
        text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
    replace_file(path, text.encode())


def load(path: str | os.PathLike[str]) -> Device:
    """The device in a file that `save` wrote. Missing parameters take their default.

    Raises:
        ConfigError: for an unknown model or name, or a bad value.
        ValueError: if the file is no TOML or JSON, or has another ending.
        OSError: if the file cannot be read.
    """
    _suffix(path)
    return Device.from_dict(read_settings("path", Path(path)))


def is_file_name(name: str | os.PathLike[str]) -> bool:
    """Whether a name ends as the files of devices do, in .toml or .json."""
    return Path(name).suffix in {".toml", ".json"}


def _suffix(path: str | os.PathLike[str]) -> str:
    if not is_file_name(path):
        raise ValueError(f"path = '{path}' must end in .toml or .json")
    return Path(path).suffix
