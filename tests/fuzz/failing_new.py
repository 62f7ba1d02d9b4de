"""Tells the operator new of cpp/failing_new.cpp, with which a worker is started, to fail."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

from tests.fuzz.build import FAILING_NEW

if TYPE_CHECKING:
    from typing_extensions import Self


class Failing:
    """Within it, an allocation of this thread fails: with lasting=True, all from then on.

    Attributes:
        made: How many allocations there were, once it is over.
    """

    def __init__(self, number: int, *, lasting: bool = False) -> None:
        libraries = os.environ["LD_PRELOAD"].split(":")
        self._library = ctypes.CDLL(next(path for path in libraries if path.endswith(FAILING_NEW)))
        self._number, self._lasting = number, lasting
        self.made = 0

    def __enter__(self) -> Self:
        self._library.pulsoraFailAt(ctypes.c_long(self._number), int(self._lasting))
        return self

    def __exit__(self, *_: object) -> None:
        self.made = self._library.pulsoraDisarm()
