"""The page of properties names the tests that show them, and its check finds faults."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check_properties.py"
_SPEC = importlib.util.spec_from_file_location("check_properties", SCRIPT)
assert _SPEC is not None
assert _SPEC.loader is not None
check_properties = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(check_properties)

PAGE = """# Properties

## 1. One

a = b.

Shown by:

- `old`

## 2. Two

c = d.

Shown by: not built yet
"""


def test_the_page_is_up_to_date() -> None:
    check = subprocess.run(  # noqa: S603
        [sys.executable, SCRIPT], capture_output=True, text=True, check=False
    )
    assert check.returncode == 0, check.stdout + check.stderr


def test_tests_are_found_by_the_numbers_in_their_names(tmp_path: Path) -> None:
    (tmp_path / "a_test.cpp").write_text(
        "TEST(A, Property01_02_Both) {\nTEST_P(B,\n       Property02_One) {\nTEST(A, None) {\n"
        "TEST(A, Property3Short) {\n"
    )
    (tmp_path / "test_a.py").write_text(
        "def test_property_01_it() -> None:\ndef test_x() -> None:\n"
    )
    tests, faults = check_properties.collect(tmp_path, tmp_path)
    assert tests == {
        1: ["`A.Property01_02_Both`", "`test_a.py::test_property_01_it`"],
        2: ["`A.Property01_02_Both`", "`B.Property02_One`"],
    }
    assert len(faults) == 1
    assert "Property3Short" in faults[0]


def test_the_lists_are_written_and_faults_are_named() -> None:
    page, without, faults = check_properties.updated(PAGE, {1: ["`A.Property01_X`"]})
    assert page == PAGE.replace("`old`", "`A.Property01_X`")
    assert without == {2: "Two"}
    assert faults == []
    page, without, faults = check_properties.updated(PAGE, {2: ["`B`", "`A`"], 3: ["`C`"]})
    assert page.endswith("## 2. Two\n\nc = d.\n\nShown by:\n\n- `A`\n- `B`\n")
    assert without == {1: "One"}
    assert len(faults) == 2
    assert "property 1 (One) has no test" in faults[0]
    assert "property 3 of `C` is not on the page" in faults[1]
