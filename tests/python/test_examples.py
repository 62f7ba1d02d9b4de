"""Every numbered example runs, and says something."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5


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
# This one starts processes, which import it.
IN_A_PROCESS_OF_ITS_OWN = "15_distributed"


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str | None]]:
    """Return output and failure of each example. One process runs them: importing torch is slow."""
    folder = tmp_path_factory.mktemp("examples")
    outcomes = {}
    for own in (False, True):
        paths = [str(path) for path in EXAMPLES if (path.stem == IN_A_PROCESS_OF_ITS_OWN) == own]
        command = [sys.executable, *paths] if own else [sys.executable, "-c", RUNNER, *paths]
        done = subprocess.run(  # noqa: S603
            command, cwd=folder, capture_output=True, text=True, timeout=600, check=False
        )
        if own:
            failed = done.stderr if done.returncode else None
            outcomes[paths[0]] = (done.stdout + done.stderr, failed)
        else:
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
