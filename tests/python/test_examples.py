"""Every numbered example runs, and says something."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import pulsora as pl

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
    """Output and failure of each example, run in one process, because torch imports slowly."""
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


def code_of(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_the_code_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = code_of("README.md")
    names = {"batches": [(torch.randn(4, 784), torch.arange(4))]}
    exec(code, names)  # noqa: S102
    assert (tmp_path / "model.pt").is_file()


@pytest.mark.filterwarnings("ignore:.*lie outside the bounds:UserWarning")
def test_the_code_of_the_questions_runs() -> None:
    blocks = code_of("docs/faq.md")
    assert len(blocks) >= 4
    for code in blocks:
        names = {"pl": pl, "torch": torch, "x": torch.rand(4, 784), "config": pl.SingleConfig()}
        names["linear"] = torch.nn.Linear(784, 256)
        names["layer"] = pl.nn.AnalogLinear(784, 256, config=pl.SingleConfig())
        exec(code, names)  # noqa: S102


def test_the_code_of_the_page_on_adapters_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"pl": pl, "torch": torch}
    for code in code_of("docs/adapters.md"):
        exec(code, names)  # noqa: S102
    assert (tmp_path / "lora" / "adapter_config.json").is_file()


def test_the_code_of_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    torch.manual_seed(0)  # cells would confine other weights, with a warning
    model = torch.nn.Linear(3, 2)
    names = {
        "pl": pl,
        "torch": torch,
        "model": model,
        "batches": [(torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64))],
        "x": rng.standard_normal((4, 784)).astype(np.float32),
        "d": rng.standard_normal((4, 256)).astype(np.float32),
    }
    for code in code_of("docs/guide.md"):
        exec(code, names)  # noqa: S102
    assert pl.Tile.load("tile.safetensors").d_size == 256
