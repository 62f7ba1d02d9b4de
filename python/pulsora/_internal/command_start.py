"""Threads and Ctrl-C of the program `pulsora`, from before its modules are loaded."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["begin", "loaded"]

_IMPORTS = "<frozen importlib._bootstrap>"
_SECONDS_BETWEEN_LOOKS = 0.01


def begin() -> None:
    """Prepares a process that is the program; does nothing in one that imports the package.

    Threads are to sleep while they wait: an OpenMP library reads OMP_WAIT_POLICY once, when it is
    loaded. Ctrl-C ends the process with one line and status 130 until `loaded()` is called.
    """
    if not _is_program():
        return
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def loaded() -> None:
    """Makes Ctrl-C raise KeyboardInterrupt again, because a command begins.

    Commands load further modules. An exception in the middle of an import may become another one
    (NumPy makes it an ImportError), or change the exit status; so Ctrl-C waits for the end of an
    import, and a second one ends the process.
    """
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, _interrupt)
        signal.signal(signal.SIGALRM, _interrupt)


def _is_program() -> bool:
    """Whether the process was started as `pulsora` or as `python -m pulsora`."""
    if sys.argv[:1] == ["-m"]:  # until Python has found the module, which stands before the rest
        return sys.orig_argv[-len(sys.argv)] in {"pulsora", "-mpulsora"}
    script = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    return script.rpartition(os.sep)[2] == "pulsora"


def _end(*_: object) -> None:
    os.write(2, b"stopped; nothing was begun\n")
    os._exit(130)


def _interrupt(number: int, frame: FrameType | None) -> None:
    while frame is not None and frame.f_code.co_filename != _IMPORTS:
        frame = frame.f_back
    if frame is None:
        raise KeyboardInterrupt
    if number == signal.SIGINT and signal.getitimer(signal.ITIMER_REAL)[0] > 0:
        os.write(2, b"stopped\n")
        os._exit(130)
    signal.setitimer(signal.ITIMER_REAL, _SECONDS_BETWEEN_LOOKS)
