"""The check of words finds what breaks the rules."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def check(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "scripts" / "check_words.py", path]
    return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("a.py", 'def f():\n    """What a caller needs."""\n', "a.py:2: begins with a word that"),
        ("a.h", "int a;\n/// Of the array.\n/// It is.\n", "a.h:2: begins with a word that hides"),
        ("a.cpp", "// " + "x" * 98 + "\n", "a.cpp:1: 101 columns; at most 100"),
        ("a.md", "x" * 121 + "\n", "a.md:1: 121 columns; at most 120"),
        ("a.md", "| " + "x" * 161 + " |\n", "a.md:1: a table cell has 161 characters"),
    ],
)
def test_what_breaks_a_rule_is_named(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    done = check(path)
    assert done.returncode == 1
    assert complaint in done.stdout


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", 'def f():\n    """Whether the array is empty."""\n'),
        ("a.h", "/// The array.\n/// Of it, one is used.\n"),
        ("a.md", "```\n" + "x" * 120 + "\n```\n[a link](" + "x" * 120 + ")\n"),
    ],
)
def test_what_keeps_the_rules_is_passed(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert check(path).returncode == 0
