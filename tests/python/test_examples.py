"""Every numbered example runs, and says something."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(
    path
    for where in ("", "from_aihwkit/")
    for path in (ROOT / "examples").glob(f"{where}[0-9]*.py")
)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5
    numbers = [path.name[:2] for path in EXAMPLES if path.parent.name == "from_aihwkit"]
    assert numbers == [f"{number:02}" for number in range(1, 37)]


# Runs given examples one after another, and prints their results as JSON.
RUNNER = """
import contextlib, io, json, os, runpy, sys, tempfile, traceback, warnings
results = {}
for path in sys.argv[1:]:
    said, failure = io.StringIO(), None
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.argv = [path]
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("default")
                    runpy.run_path(path, run_name="__main__")
            except BaseException:
                failure = traceback.format_exc()
        os.chdir("/")
    results[path] = [said.getvalue(), failure]
print(json.dumps(results))
"""
# These start processes, which import them.
IN_PROCESSES_OF_THEIR_OWN = ("15_distributed", "20_mnist_ddp")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str | None]]:
    """Return output and failure of each example. One process runs a folder: torch loads slowly."""
    folder = tmp_path_factory.mktemp("examples")
    outcomes = {}
    alone = [path for path in EXAMPLES if path.stem in IN_PROCESSES_OF_THEIR_OWN]
    together = [
        [path for path in EXAMPLES if path not in alone and path.parent == place]
        for place in sorted({path.parent for path in EXAMPLES})
    ]

    def run(command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603
            [sys.executable, *command],
            cwd=folder, capture_output=True, text=True, timeout=600, check=False,
            env=os.environ | {"OMP_NUM_THREADS": "1"},  # as other tests run beside
        )  # fmt: skip

    for path in alone:
        done = run([str(path)])
        failed = done.stderr if done.returncode else None
        outcomes[str(path)] = (done.stdout + done.stderr, failed)
    for paths in together:
        done = run(["-c", RUNNER, *map(str, paths)])
        assert done.returncode == 0, done.stderr
        outcomes |= json.loads(done.stdout.splitlines()[-1])
    return outcomes


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path: Path, outcomes: dict[str, tuple[str, str | None]]) -> None:
    said, failure = outcomes[str(path)]
    assert failure is None, failure
    assert said.strip()
    assert "warning" not in said.lower()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 60
