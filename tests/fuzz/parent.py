"""Starts workers, watches them, and starts them again behind an input that ended or stopped one."""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fuzz.worker import PROGRESS

if TYPE_CHECKING:
    from tests.fuzz.build import Build
    from tests.fuzz.worker import Finding

ROOT = Path(__file__).resolve().parents[2]
MOST_RESTARTS = 20
"""A target that ends its worker more often is given up."""
STARTING = -1
"""Tried inputs of a worker that has not begun."""
START_LIMIT = 600.0
"""Seconds that a worker may take to import torch, under a sanitizer and on a busy machine."""


@dataclass
class Outcome:
    """The outcome of one target."""

    target: str
    inputs: int = 0
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)

    def add(self, finding: Finding) -> None:
        self.findings.append(finding)

    def by_kind(self) -> dict[str, list[Finding]]:
        kinds: dict[str, list[Finding]] = {}
        for finding in self.findings:
            kinds.setdefault(finding["kind"], []).append(finding)
        return kinds


def fuzz(
    build: Build, target: str, *, first: int, count: int, seconds: float, limit: float
) -> Outcome:
    """Tries the inputs first, first + 1, ... until `count` were tried or `seconds` are over.

    Args:
        build: What is fuzzed.
        target: A module of this package.
        first: The first seed.
        count: Number of inputs.
        seconds: Time for all of them.
        limit: Seconds that one input may take.
    """
    outcome = Outcome(target)
    start = time.monotonic()
    for _ in range(MOST_RESTARTS + 1):
        left = seconds - (time.monotonic() - start)
        if left <= 0.0 or count <= 0:
            break
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            tried = _one_worker(build, outcome, first, count, left, limit, Path(folder))
        if tried == STARTING:
            break
        first += tried
        count -= tried
        outcome.inputs += tried
    outcome.seconds = time.monotonic() - start
    return outcome


def reproduce(build: Build, target: str, seed: int) -> int:
    """Tries one input, and says what it does while it does it; 1 if something is wrong."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        command = [*build.python, "-m", "tests.fuzz.worker", target, str(seed)]
        done = subprocess.run(  # noqa: S603
            command, cwd=ROOT, env=build.environment(Path(folder)), check=False
        )
    if done.returncode != 0:
        print(f"process ended: {_status(done.returncode)}")
    return int(done.returncode != 0)


def _one_worker(
    build: Build,
    outcome: Outcome,
    first: int,
    count: int,
    seconds: float,
    limit: float,
    folder: Path,
) -> int:
    """How many inputs a worker has tried before it was through or died, or STARTING."""
    progress = folder / "progress"
    progress.write_bytes(PROGRESS.pack(first, STARTING))
    command = [*build.python, "-m", "tests.fuzz.worker", outcome.target]
    command += [str(first), str(count), str(seconds), str(folder)]
    with (folder / "output").open("w+b") as output:
        worker = subprocess.Popen(  # noqa: S603
            command, cwd=ROOT, env=build.environment(folder),
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        stuck = _watch(worker, progress, limit)
        said = (folder / "output").read_text(encoding="utf-8", errors="replace")
    if (folder / "findings").exists():
        for line in (folder / "findings").read_text(encoding="ascii").splitlines():
            outcome.add(json.loads(line))
    seed, tried = PROGRESS.unpack(progress.read_bytes())
    if worker.returncode == 0:
        return int(tried)
    kind = f"no end within {limit:g} s" if stuck else f"process ended: {_status(worker.returncode)}"
    if tried == STARTING:
        kind = f"the worker does not start: {_status(worker.returncode)}"
    # The last words are those of a sanitizer or of faulthandler; the first ones say what was done.
    report = said if len(said) < 12000 else f"{said[:6000]}\n...\n{said[-6000:]}"
    outcome.add({"seed": int(seed), "kind": kind, "report": report})
    return STARTING if tried == STARTING else int(tried) + 1


def _watch(worker: subprocess.Popen[bytes], progress: Path, limit: float) -> bool:
    """Waits for the worker's end; True if the worker was ended, at one input for too long."""
    seen = b""
    since = time.monotonic()
    while worker.poll() is None:
        now = progress.read_bytes()
        if now != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > (START_LIMIT if _is_starting(now) else limit):
            worker.send_signal(signal.SIGUSR1)  # faulthandler writes where every thread is
            time.sleep(0.5)
            worker.kill()
            worker.wait()
            return True
        time.sleep(0.05)
    return False


def _is_starting(progress: bytes) -> bool:
    return bool(PROGRESS.unpack(progress)[1] == STARTING)


def _status(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit status {code}"
