"""C++ programs driven by libFuzzer, which mutates inputs that reach new code."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fuzz.parent import ROOT, Outcome

if TYPE_CHECKING:
    from tests.fuzz.build import Build

PROGRAMS = ("json_text", "config_text", "state_bytes", "state_values")


def fuzz_program(build: Build, name: str, *, first: int, seconds: float, limit: float) -> Outcome:
    """Runs the program `name` for some time; what it starts from is made anew.

    An input that it ends with is kept in the build folder, and `fuzz_<name> <file>` tries it again.
    """
    outcome = Outcome(name)
    start = time.monotonic()
    program = build.folder / f"fuzz_{name}"
    found = build.folder / "found"
    found.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as given:
        folder = Path(given)
        command = [*build.python, "-m", "tests.fuzz.examples", folder]
        subprocess.run(command, cwd=ROOT, env=build.environment(folder), check=True)  # noqa: S603
        left = max(1, int(seconds - (time.monotonic() - start)))
        options = [f"-max_total_time={left}", f"-seed={first + 1}", f"-dict={folder / 'words'}"]
        options += [f"-timeout={int(limit)}", "-rss_limit_mb=4096", "-verbosity=0"]
        options += ["-print_final_stats=1", f"-artifact_prefix={found}/{name}_"]
        done = subprocess.run(  # noqa: S603
            [program, *options, folder / name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, "ASAN_OPTIONS": "detect_stack_use_after_return=1"}, check=False,
        )  # fmt: skip
    outcome.seconds = time.monotonic() - start
    said = done.stdout.decode(errors="replace")
    tried = re.search(r"number_of_executed_units: *(\d+)", said)
    outcome.inputs = int(tried.group(1)) if tried else 0
    if done.returncode != 0:
        kind = "the program ended; its last words name the file of the input"
        outcome.add({"seed": first, "kind": kind, "report": said[-12000:]})
    return outcome
