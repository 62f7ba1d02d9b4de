"""Tries inputs of one target, one after another, and writes down which one it is at.

The parent (parent.py) starts it: python -m tests.fuzz.worker TARGET FIRST [COUNT SECONDS FOLDER]
"""

from __future__ import annotations

import faulthandler
import json
import mmap
import os
import re
import resource
import signal
import struct
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from tests.fuzz.random_source import Draws, describe

if TYPE_CHECKING:
    from types import ModuleType

PROGRESS = struct.Struct("<qq")
"""The seed that is being tried, and how many have been."""
MEMORY = 4 << 30
"""Bytes that a worker may take beyond its start; larger requests fail."""


class Finding(TypedDict):
    seed: int
    kind: str
    """What is alike of findings with one cause."""
    report: str


def attempt(module: ModuleType, target: str, seed: int, *, echo: bool = False) -> Finding | None:
    """The fault that this input shows, if any."""
    draws = Draws(target, seed, echo=echo)
    try:
        module.run(draws)
    except Exception as error:  # noqa: BLE001 - whatever escapes is a finding
        where = traceback.extract_tb(error.__traceback__)[-1]
        # Names of parameters, numbers, quoted text and addresses differ from input to input.
        varying = r"^[\w.]+(?= is )|'[^']*'|0x[0-9a-f]+|[-+0-9.e]*\d[-+0-9.e]*"
        what = re.sub(varying, "_", str(error))[:150]
        report = [
            *traceback.format_exception(error, limit=-8),
            *(f"  {describe(note)}\n" for note in draws.notes[-30:]),
        ]
        kind = f"{type(error).__name__} at {where.name}: {what}"
        return {"seed": seed, "kind": kind, "report": "".join(report)}
    return None


def _limit_memory() -> None:
    if "san" in os.environ.get("LD_PRELOAD", ""):
        return  # a sanitizer reserves terabytes of addresses
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * mmap.PAGESIZE + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


def main() -> None:
    target, first, *rest = sys.argv[1:]
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    module = import_module(f"tests.fuzz.{target}")
    _limit_memory()
    if not rest:  # one input alone
        finding = attempt(module, target, int(first), echo=True)
        print(finding["report"] if finding else "nothing is wrong with this input", flush=True)
        os._exit(finding is not None)
    count, seconds, folder = rest
    end = time.monotonic() + float(seconds)
    with (
        (Path(folder) / "findings").open("a", encoding="ascii") as findings,
        (Path(folder) / "progress").open("r+b") as file,
        mmap.mmap(file.fileno(), PROGRESS.size) as progress,
    ):
        for done in range(int(count) + 1):
            seed = int(first) + done
            PROGRESS.pack_into(progress, 0, seed, done)
            if done == int(count) or time.monotonic() >= end:
                break
            finding = attempt(module, target, seed)
            if finding:
                print(json.dumps(finding), file=findings, flush=True)
    # No destructors: an input may have left threads behind.
    os._exit(0)


if __name__ == "__main__":
    main()
