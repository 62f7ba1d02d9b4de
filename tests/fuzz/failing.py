"""Makes memory and files fail: the library of cpp/failing_*.cpp, with which a worker is started."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import TYPE_CHECKING

from tests.fuzz.build import FAILING

if TYPE_CHECKING:
    from typing_extensions import Self

KILLED = 9
"""Exit status of a process that `FailingFiles` ends."""


@cache
def _library() -> ctypes.CDLL:
    libraries = os.environ["LD_PRELOAD"].split(":")
    return ctypes.CDLL(next(path for path in libraries if path.endswith(FAILING)))


class Failing:
    """Within it, an allocation of this thread fails: with lasting=True, all from then on.

    Attributes:
        made: How many allocations there were, once it is over.
    """

    def __init__(self, number: int, *, lasting: bool = False) -> None:
        self._library = _library()
        self._number, self._lasting = number, lasting
        self.made = 0

    def __enter__(self) -> Self:
        self._library.pulsoraFailAt(ctypes.c_long(self._number), int(self._lasting))
        return self

    def __exit__(self, *_: object) -> None:
        self.made = self._library.pulsoraDisarm()


class FailingFiles:
    """Within it, a call of this thread that writes files fails; with lasting=True, all later ones.

    Calls are counted that open a file to be written to, write, sync and rename. A write that fails
    has written half of its bytes.

    Args:
        number: The call that fails; a negative one lets all succeed.
        error: Its errno; 0 ends the process instead, with the exit status KILLED.
        lasting: Whether all later calls fail too.

    Attributes:
        made: How many calls there were, once it is over.
    """

    def __init__(self, number: int, error: int, *, lasting: bool = False) -> None:
        self._library = _library()
        self._number, self._error, self._lasting = number, error, lasting
        self.made = 0

    def __enter__(self) -> Self:
        self._library.pulsoraFailFileAt(
            ctypes.c_long(self._number), self._error, int(self._lasting)
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.made = self._library.pulsoraDisarmFiles()
