"""The fuzzer finds injected faults, says how to repeat them, and finds no others quickly."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pulsora
from conftest import ROOT, repetitions
from tests.fuzz import TARGETS
from tests.fuzz.injected_faults import KINDS
from tests.fuzz.random_source import Draws

FEW = {
    "sharded": 100, "layers": 20, "allocations": 60, "calls": 100, "bits": 60, "adapters": 150,
    "late_errors": 40, "interrupted_steps": 20, "written_files": 12, "parameter_order": 40,
    "hostile_calls": 50, "copies": 12, "conductances": 60,
}  # fmt: skip
"""Inputs by day; ten times as many in `make nightly`."""
WITHOUT_TORCH = {"configurations", "states", "calls", "allocations", "adapters", "bits"}


def _fuzz(*arguments: str) -> subprocess.CompletedProcess[str]:
    # A build folder holds links to the sources beside the extension itself.
    package = Path(pulsora._core.__file__).resolve().parents[1]
    return subprocess.run(  # noqa: S603
        [sys.executable, "-m", "tests.fuzz", *arguments], cwd=ROOT, check=False,
        env={**os.environ, "PYTHONPATH": str(package)}, capture_output=True, text=True,
    )  # fmt: skip


def _first_seed(kind: str) -> int:
    """The first seed at which the injected fault is of this kind."""
    return next(seed for seed in range(1000) if Draws("injected_faults", seed).pick(KINDS) == kind)


@pytest.mark.parametrize("target", TARGETS)
def test_a_few_inputs_of_every_target_find_nothing(target: str) -> None:
    if target not in WITHOUT_TORCH:
        pytest.importorskip("torch")
    count = repetitions(10 * FEW.get(target, 300))
    done = _fuzz("--target", target, "--count", str(count))
    assert f"{target}: {count} inputs" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_sort_of_fault_is_found_and_the_next_inputs_are_tried() -> None:
    count = max(_first_seed(kind) for kind in KINDS) + 1
    done = _fuzz("--target", "injected_faults", "--count", str(count), "--limit", "3")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"injected_faults: {count} inputs" in done.stdout
    for kind, words in {
        "broken": "Broken at require: an invariant",
        "undocumented": "ZeroDivisionError at run: number _",
        "crash": "process ended: SIGSEGV",
        "hang": "no end within 3 s",
        "exit": "process ended: exit status 7",
    }.items():
        seed = _first_seed(kind)
        assert re.search(
            rf"times: {words}\n.*--target injected_faults --seed {seed}\n", done.stdout
        ), kind
    assert "Fatal Python error: Segmentation fault" in done.stdout
    assert "about to be broken" in done.stdout


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("fine", "nothing is wrong with this input"),
        ("broken", "Broken: an invariant"),
        ("crash", "process ended: SIGSEGV"),
    ],
)
def test_one_input_is_tried_again_by_its_seed(kind: str, words: str) -> None:
    done = _fuzz("--target", "injected_faults", "--seed", str(_first_seed(kind)))
    assert f"about to be {kind}" in done.stderr
    assert words in done.stdout
    assert done.returncode == (kind != "fine")
