"""Helpers for tests of device models from source: a compiler, a cache folder, processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLE = ROOT / "examples" / "05_custom_device" / "quadratic_step.h"

SETTINGS: dict[str, Any] = {"dw_min": 0.004, "corrupt_devices_prob": 0.05, "w_max_dtod": 0.2}
"""Of cells that differ, and of which some are stuck."""

KINDS_OF_PULSES = [
    *(("stochastic_compressed", length) for length in (1, 3, 8, 31, 40)),
    ("stochastic", 31), ("mean_count", 31), ("deterministic_implicit", 31),
    ("none", 31), ("none_with_device", 31),
]  # fmt: skip
"""Types of pulses, and the longest train."""

# A compiler that does not optimise, for tests of all but bits and speed; it tells how often it was
# asked.
COMPILER = """#!/bin/sh
case "$*" in *--version* | *" -v "*) exec c++ "$@";; esac
echo compiled >> "${PULSORA_TEST_LOG:-/dev/null}"
for option; do shift; [ "$option" = -O3 ] || set -- "$@" "$option"; done
exec c++ -O0 "$@"
"""

# Makes a device and prints what came of it.
CHILD = """
import json, sys, warnings
import pulsora as pl
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    try:
        made = pl.devices.from_source(sys.argv[1])
        tile = pl.Tile(2, 3, pl.SingleConfig(device=made()))
        error = ""
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"
warned = [str(w.message) for w in seen]
print(json.dumps({"error": error, "warnings": warned, **pl.devices.compile_counts()}))
"""


class Workshop:
    """A cache folder, a compiler, and processes that use them."""

    def __init__(self, folder: Path) -> None:
        self.cache = folder / "cache"
        self.log = folder / "log"
        self.compiler = folder / "compiler"
        self.compiler.write_text(COMPILER)
        self.compiler.chmod(0o700)

    def environment(self, **changes: str) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
            "PULSORA_CACHE_DIR": str(self.cache),
            "PULSORA_TEST_LOG": str(self.log),
            "CXX": str(self.compiler),
            **changes,
        }

    def start(self, source: Path, program: str = CHILD, **changes: str) -> subprocess.Popen[str]:
        return subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", program, str(source)],
            env=self.environment(**changes), stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, source: Path, program: str = CHILD, **changes: str) -> dict[str, Any]:
        return finished(self.start(source, program, **changes))

    def compilations(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


def finished(child: subprocess.Popen[str]) -> dict[str, Any]:
    output, _ = child.communicate(timeout=300)
    assert child.returncode == 0
    return dict(json.loads(output))
