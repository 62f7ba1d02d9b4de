"""Faults of every sort, to see that they are found: what the tests of the fuzzer itself try."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from tests.fuzz.checks import require

if TYPE_CHECKING:
    from tests.fuzz.random_source import Draws

KINDS = ("fine", "broken", "undocumented", "crash", "hang", "exit")


def run(draws: Draws) -> None:
    kind = draws.pick(KINDS)
    draws.note("about to be", kind)
    require(kind != "broken", "an invariant")
    if kind == "undocumented":
        raise ZeroDivisionError(f"number {draws.integer(0, 10**6)}")
    if kind == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == "hang":
        time.sleep(3600)
    if kind == "exit":
        os._exit(7)
