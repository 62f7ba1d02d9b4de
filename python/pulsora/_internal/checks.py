"""Checks of user input; every message says what is allowed and what was given."""

from __future__ import annotations

import math
import os
import tempfile
from contextlib import contextmanager
from numbers import Integral, Real
from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = [
    "is_whole",
    "numbers",
    "reading",
    "require_at_least",
    "require_boolean",
    "require_file",
    "require_finite",
    "require_folder",
    "require_picture",
    "require_positive",
    "require_positive_real",
    "require_share",
    "whole_numbers",
]

_PICTURES = (".png", ".jpg", ".jpeg", ".pdf", ".svg")


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a value is a whole number, of any type but bool."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def require_at_least(name: str, value: object, least: int) -> None:
    """Raises ValueError unless the value is a whole number from `least` up."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ValueError(f"{name} must be a whole number (got {value!r})")  # noqa: TRY004
    if int(value) < least:
        raise ValueError(f"{name} must be at least {least} (got {value})")


def require_positive(name: str, value: object) -> None:
    """Raises ValueError unless the value is a finite number above 0."""
    if not isinstance(value, int | float) or not 0.0 < value < float("inf"):
        raise ValueError(f"{name} must be a positive number (got {value!r})")


def require_positive_real(name: str, value: object) -> None:
    """Raises ValueError unless the value is a finite number above 0, of any type but bool."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0.0 < float(value) < math.inf:
        raise ValueError(f"{name} = {value!r}: give a positive number")


def require_share(name: str, value: object) -> None:
    """Raises ValueError unless the value is a number above 0 and at most 1."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0.0 < float(value) <= 1.0:
        raise ValueError(f"{name} = {value!r}: give a share above 0 and at most 1")


def require_finite(name: str, value: float) -> None:
    """Raises ValueError unless the value is a finite number."""
    if not math.isfinite(value):
        raise ValueError(f"{name} = {value!r}: give a finite number")


def require_boolean(name: str, value: object, meaning: str = "") -> None:
    """Raises TypeError unless the value is a bool; `meaning` explains True in the message."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} = {value!r}: write True{meaning} or False")


def whole_numbers(name: str, text: str) -> tuple[int, ...]:
    """Parses whole numbers such as "256,128"; ValueError for any other text."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise ValueError(f"{name} must be whole numbers, such as 256,128 (got {text!r})") from error


def numbers(name: str, text: str) -> tuple[float, ...]:
    """Reads numbers with commas between them; ValueError, naming `name`, for other text."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise ValueError(f"{name} must be numbers, such as 0.5,1 (got {text!r})") from error


def require_folder(name: str, folder: Path) -> None:
    """Makes a folder if there is none. OSError unless files can be written into it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(
            f"{name} = '{folder}': nothing can be written there ({error.strerror}); choose another "
            "folder"
        ) from error


def require_file(name: str, path: Path | None) -> None:
    """Raises OSError unless the file can be written; an existing file stays as it is."""
    if path is None:
        return
    if path.is_dir():
        raise OSError(f"{name} = '{path}' is a folder; name a file in it")
    if not path.parent.is_dir():
        raise OSError(f"{name} = '{path}': there is no folder '{path.parent}'; make it first")
    if not path.exists():
        require_folder(name, path.parent)
    elif not os.access(path, os.W_OK):
        raise OSError(f"{name} = '{path}' must not be overwritten; choose another name")


def require_picture(name: str, path: Path | None) -> None:
    """Raises OSError unless the file can be written, ValueError for a suffix of no picture."""
    require_file(name, path)
    if path is not None and path.suffix.lower() not in _PICTURES:
        raise ValueError(f"{name} = '{path}' must end in {', '.join(_PICTURES)}")


@contextmanager
def reading(name: str, path: Path, remedy: str) -> Iterator[None]:
    """Makes an OSError raised in the block name the parameter and the remedy."""
    try:
        yield
    except OSError as error:
        raise type(error)(
            f"{name} = '{path}' cannot be read ({error.strerror}); {remedy}"
        ) from error
