"""The library of failing_new.cpp: compiled by the parent, used by the worker that was started with it."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

SOURCE = Path(__file__).parent / "cpp" / "failing_new.cpp"
_NAME = "libfailing_new.so"


def build(folder: Path) -> Path:
    """Compiles the library into a folder, which takes a second."""
    library = folder / _NAME
    compiler = os.environ.get("CXX", "c++")
    command = [compiler, "-std=c++17", "-O1", "-g", "-shared", "-fPIC", "-o", library, SOURCE]
    subprocess.run(command, check=True)  # noqa: S603
    return library


class Failing:
    """Within it, an allocation of this thread fails: with lasting=True, all from then on.

    Attributes:
        made: How many allocations there were, once it is over.
    """

    def __init__(self, number: int, *, lasting: bool = False) -> None:
        library = next(p for p in os.environ["LD_PRELOAD"].split(":") if p.endswith(_NAME))
        self._library = ctypes.CDLL(library)
        self._number, self._lasting = number, lasting
        self.made = 0

    def __enter__(self) -> Failing:
        self._library.pulsoraFailAt(ctypes.c_long(self._number), int(self._lasting))
        return self

    def __exit__(self, *_: object) -> None:
        self.made = self._library.pulsoraDisarm()
