"""Devices in files: one table of plain values, as TOML or JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path

from pulsora._internal.files import read_settings, replace_file
from pulsora._internal.models import require_source
from pulsora._internal.parameters import SOURCE_KEY
from pulsora.devices.models import Device

__all__ = ["is_file_name", "load", "save"]


def save(device: Device, path: str | os.PathLike[str]) -> None:
    """Writes a device to a text file that `load` reads.

    The file of a device whose model is from source has the SHA-256 of that source as well
    (`source_sha256`), and not its text.

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
    if device.source_sha256:
        values[SOURCE_KEY] = device.source_sha256
    if suffix == ".json":
        text = json.dumps(values, indent=1) + "\n"
    else:
        # Numbers, truth values, lists and plain words are the same in JSON and in TOML.
        text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
    replace_file(path, text.encode())


def load(path: str | os.PathLike[str]) -> Device:
    """The device in a file that `save` wrote. Missing parameters take their default.

    A model from source must be known, by from_source() on the same text: no file contains code.

    Raises:
        ConfigError: for an unknown model or name, a bad value, or a model from another source.
        ValueError: if the file is no TOML or JSON, or has another ending.
        OSError: if the file cannot be read.
    """
    _suffix(path)
    values = read_settings("path", Path(path))
    if SOURCE_KEY in values:
        require_source("device", values.get("model"), values.pop(SOURCE_KEY), os.fspath(path))
    return Device.from_dict(values)


def is_file_name(name: str | os.PathLike[str]) -> bool:
    """Whether a name ends as the files of devices do, in .toml or .json."""
    return Path(name).suffix in {".toml", ".json"}


def _suffix(path: str | os.PathLike[str]) -> str:
    if not is_file_name(path):
        raise ValueError(f"path = '{path}' must end in .toml or .json")
    return Path(path).suffix
