"""Files that torch.save wrote, read with their checksums and without executing anything."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

__all__ = ["read_checkpoint", "short_line"]

_MOST_SAID = 200  # characters of another library's message


def read_checkpoint(data: bytes, content: AbstractSet[str]) -> dict[str, Any]:
    """The table that was saved. Raises whatever a damaged file brings about, and a ValueError for another table."""
    # torch does not look at the checksums that its files have.
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise ValueError(f"the checksum of {damaged} is wrong")
    saved = torch.load(io.BytesIO(data), weights_only=True)
    if not isinstance(saved, dict) or saved.keys() != content:
        raise ValueError("it holds something else")
    return saved


def short_line(error: Exception) -> str:
    """What an error says, in one short line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _MOST_SAID else f"{text[:_MOST_SAID]}..."
