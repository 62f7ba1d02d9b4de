"""Kills processes at random moments of their work, and looks at what they leave behind.

kills.py MODULE WORK CHECK FOLDER TIMES: TIMES times, WORK(folder, begun) of the module runs in a
forked process, without end, and calls begun() when it may be killed; a moment later it is, and
CHECK(folder) looks at the folder.
"""

from __future__ import annotations

import importlib
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def start(work: Callable[[Path, Callable[[], object]], object], folder: Path) -> int:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work(folder, lambda: os.write(write, b"."))
        finally:
            os._exit(1)
    os.close(write)
    if os.read(read, 1) != b".":
        raise RuntimeError("the process that was to be killed ended by itself")
    os.close(read)
    return child


def main(module: str, work: str, check: str, folder: str, times: str) -> None:
    functions = importlib.import_module(module)
    rng = random.Random(times)  # noqa: S311
    for _ in range(int(times)):
        child = start(getattr(functions, work), Path(folder))
        time.sleep(rng.uniform(0.0, 0.03))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        getattr(functions, check)(Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
