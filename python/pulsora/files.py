"""How everything that Pulsora saves gets to the disk."""

from __future__ import annotations

import os

from pulsora import _core

__all__ = ["replace_file"]


def replace_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Makes `data` the content of a file.

    Whoever opens the path sees the old content or the whole new one, also if this process is killed or the machine fails,
    and whoever else writes it meanwhile. Of a symbolic link, the file behind it is replaced. An existing file keeps its
    mode; a new one has the usual mode.

    Args:
        path: The file; its folder exists.
        data: The new content.

    Raises:
        OSError: If the file cannot be written; a previous one is then as it was.
    """
    _core.replace_file(os.fsencode(path), data)
