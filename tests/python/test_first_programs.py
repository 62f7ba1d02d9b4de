"""First programs of README and guide, pasted into an empty folder and run by a new process.

`pytest -s` shows the seconds of each run, imports included.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from conftest import ROOT
from test_documents import BLOCK, has_documents

if TYPE_CHECKING:
    from pathlib import Path

README = ROOT / "README.md"
FIRST_PAGE = ROOT / "docs/start/first_network.md"

pytestmark = has_documents


def pasted(page: Path) -> str:
    """The Python that a reader sees on a page; hidden code is left out."""
    return "\n".join(block["code"] for block in BLOCK.finditer(page.read_text(encoding="utf-8")))


def output_of(program: str, folder: Path, name: str) -> str:
    """Output of a program in a new process, which begins in an empty folder."""
    folder.mkdir()
    start = time.perf_counter()
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program],
        cwd=folder,
        env=os.environ | {"OMP_WAIT_POLICY": "passive"},  # for a machine with other work
        capture_output=True,
        text=True,
        check=False,
    )
    print(f"{name}: {time.perf_counter() - start:.1f} s")  # noqa: T201 - the clock of `pytest -s`
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def accuracy_in(output: str) -> float:
    """The first percentage of a text."""
    found = re.search(r"([0-9.]+) ?%", output)
    assert found, output
    return float(found[1])


def test_the_program_of_the_readme_prints_what_the_readme_says(tmp_path: Path) -> None:
    """Accuracies to 2.5 points, because the last bits of torch's layers depend on the machine."""
    program = pasted(README)
    said = " ".join(README.read_text(encoding="utf-8").partition("The program takes")[2].split())
    of_adapter, of_pulses = map(float, re.findall(r"about ([0-9.]+) %", said))
    printed = output_of(program, tmp_path / "adapter", "README.md")
    assert accuracy_in(printed) == pytest.approx(of_adapter, abs=2.5)
    transfers = re.search(r"(\d+) transfers", said)
    assert transfers
    assert printed.rstrip().endswith(f", {transfers[0]}")
    assert (tmp_path / "adapter/model.pt").is_file()

    other = re.search(r"`(config = [^`]*)`", said)
    assert other
    changed, count = re.subn(r"config = .*", other[1], program)
    assert count == 1
    changed = re.sub(r", \{model\[0\].*transfers", "", changed)  # one array has none
    printed = output_of(changed, tmp_path / "pulses", "README.md, plain pulses")
    assert accuracy_in(printed) == pytest.approx(of_pulses, abs=2.5)


def test_the_first_page_of_the_guide_runs_as_it_stands(tmp_path: Path) -> None:
    printed = output_of(pasted(FIRST_PAGE), tmp_path / "page", FIRST_PAGE.name)
    assert accuracy_in(printed) > 80.0
    assert re.search(r"\d+ pulses, [1-9]\d* transfers", printed)
