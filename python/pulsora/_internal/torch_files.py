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


def read_checkpoint(
    data: bytes, content: AbstractSet[str], more: AbstractSet[str] = frozenset()
) -> dict[str, Any]:
    """Returns the dict that was saved, its tensors on the CPU.

    A damaged file raises errors of many types. A dict raises ValueError if it lacks a key of
    `content`, or has a key that is in neither `content` nor `more`.
    """
    # torch verifies no checksum, and of a damaged archive it may read other bytes than
    # ZipFile.testzip() checks. So torch gets a copy of the verified content.
    verified = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(verified, "w") as copied:
        for name in dict.fromkeys(archive.namelist()):
            copied.writestr(name, archive.read(name))
    verified.seek(0)
    saved = torch.load(verified, weights_only=True, map_location="cpu")
    if not isinstance(saved, dict) or not content <= saved.keys() <= content | more:
        raise ValueError("it holds something else")
    return saved


def short_line(error: Exception) -> str:
    """Text of an error, as one short line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _MOST_SAID else f"{text[:_MOST_SAID]}..."
