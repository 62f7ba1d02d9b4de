"""Atomic replacement of files, and reading of settings files."""

from __future__ import annotations

import importlib
import json
import os
import shutil
from typing import TYPE_CHECKING, Any

from pulsora import _core
from pulsora._internal.checks import reading

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["read_settings", "replace_file", "replace_together"]


def replace_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Replaces the content of a file atomically.

    A reader sees the old content or the whole new content, also if this process is killed, the
    machine fails or another process writes the file meanwhile. A symbolic link stays, and the file
    behind it is replaced. An existing file keeps its mode; a new file has the usual mode.

    Args:
        path: The file; its folder exists.
        data: The new content.

    Raises:
        OSError: If the file cannot be written; a previous one is then as it was.
    """
    _core.replace_file(os.fsencode(path), data)


def replace_together(leading: tuple[Path, bytes], others: Mapping[Path, bytes]) -> None:
    """Replaces several files in the same folder that belong together.

    All contents are written beside the files first, so that a full disk leaves the previous files.
    Then the leading file is removed, the others are replaced, and the leading file comes last. If
    the process is killed in between, the leading file is missing; there is never a mixture of
    previous and new files with a leading file.

    Args:
        leading: The file without which the others are not read, and its content.
        others: The contents of the other files.

    Raises:
        OSError: If a file cannot be written; the previous ones are then as they were, unless a
            file cannot be renamed within its folder.
    """
    path, data = leading
    places = [each.resolve() for each in (*others, path)]  # files behind links
    beside = [each.with_name(f".{each.name}.{os.getpid()}.new") for each in places]
    try:
        for place, new, content in zip(places, beside, (*others.values(), data), strict=True):
            replace_file(new, content)
            if place.exists():
                shutil.copymode(place, new)
        places[-1].unlink(missing_ok=True)
        for place, new in zip(places, beside, strict=True):
            new.replace(place)
    finally:
        for new in beside:
            new.unlink(missing_ok=True)


def read_settings(name: str, path: Path) -> dict[str, Any]:
    """Reads the table in a TOML or JSON file that was given as the parameter `name`.

    Raises:
        ValueError: for a file that holds no table, or a TOML file before Python 3.11.
        OSError: if the file cannot be read.
    """
    with reading(name, path, "give a file of settings, in TOML or JSON"):
        content = path.read_bytes()
    try:
        text = content.decode()
        if path.suffix == ".toml":
            return dict(importlib.import_module("tomllib").loads(text))
        settings = json.loads(text)
    except ImportError as error:
        raise ValueError(f"{path}: TOML needs Python 3.11; write the settings as JSON") from error
    except (ValueError, RecursionError) as error:
        remedy = (
            ""
            if path.suffix in {".toml", ".json"}
            else "; TOML is read from files that end in .toml, and JSON from all others"
        )
        raise ValueError(f"{path}: {error}{remedy}") from error
    if not isinstance(settings, dict):
        raise ValueError(f"{path}: the file holds no table of settings")  # noqa: TRY004
    return settings
