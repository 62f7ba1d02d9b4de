"""Threads of the command line: how many there are, and how they wait."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import torch
from typer.testing import CliRunner

import pulsora as pl
from pulsora.bench.machine import Place
from pulsora.cli import app
from pulsora.training.run import Run

if TYPE_CHECKING:
    from pathlib import Path


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({}, False), ({"OMP_WAIT_POLICY": "active"}, True)],
)
@pytest.mark.parametrize("how", ["module", "script"])
def test_threads_wait_without_spinning_unless_asked_to(
    how: str, environment: dict[str, str], expected: bool
) -> None:
    """Read from the settings that the OpenMP library prints when it starts in the command."""
    command = {
        "module": ["-m", "pulsora", "--version"],
        "script": ["-c", "from pulsora.__main__ import main; main()", "--version"],
    }[how]
    clean = {name: value for name, value in os.environ.items() if "OMP_" not in name}
    done = subprocess.run(  # noqa: S603
        [sys.executable, *command],
        env=clean | {"OMP_DISPLAY_ENV": "verbose"} | environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"pulsora {pl.__version__}\n"
    spins = re.findall(r"GOMP_SPINCOUNT ?= ?'(\d+)'", done.stderr)  # 0 with a passive policy alone
    assert spins
    assert (int(spins[-1]) > 0) == expected


@pytest.mark.parametrize("command", ["train", "demo"])
def test_threads_are_those_of_torch_too(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = torch.get_num_threads()
    seen = []

    def train(self: Run, **_: object) -> None:
        tiles = [tile for layer in self.model if hasattr(layer, "tiles") for tile in layer.tiles]
        seen.append((torch.get_num_threads(), {tile.threads for tile in tiles}))
        raise ValueError("enough was seen")

    monkeypatch.setattr(Run, "train", train)
    try:
        for threads in (2, 1):
            run(command, "--threads", threads, "--out", tmp_path)
    finally:
        torch.set_num_threads(before)
    assert [count for count, _ in seen] == [2, 1]
    assert all(tiles <= {count} for count, tiles in seen)
    assert command == "demo" or all(tiles for _, tiles in seen)


@pytest.mark.parametrize(
    ("variable", "expected"),
    [(None, "all"), ("1", 1), ("1,2", 1), ("100000", "all"), ("none", "all"), ("0", "all")],
)
def test_the_default_number_of_threads(
    variable: str | None, expected: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if variable is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    cores = len(os.sched_getaffinity(0))
    threads = cores if expected == "all" else expected
    assert pl.Tile(2, 2).threads == threads
    assert Place().threads == threads
    assert f", {threads} thread" in Place().name
