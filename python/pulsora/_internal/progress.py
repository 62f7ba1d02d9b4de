"""Progress of a long operation, on stderr or by a function of the caller."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Shown"]


class Shown:
    """Shows how much of an operation is done.

    Args:
        progress: Whether a line on stderr shows it; or a function that is called with the number of
            parts that are done, and of all.
        of: Number of all parts.
        what: The name of the parts.
    """

    def __init__(self, progress: bool | Callable[[int, int], object], of: int, what: str) -> None:
        self._progress = progress
        self._of = of
        self._what = what
        self._done = 0

    def add(self, more: int) -> None:
        """Shows that more parts are done."""
        self._done += more
        if callable(self._progress):
            self._progress(self._done, self._of)
        elif self._progress:
            end = "\n" if self._done == self._of else ""
            sys.stderr.write(f"\r{self._done} of {self._of} {self._what}{end}")
            sys.stderr.flush()
