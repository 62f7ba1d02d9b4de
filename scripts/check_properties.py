#!/usr/bin/env python3
"""Checks docs/explain/properties.md against the names of the tests, or with --write updates it.

Each property is a section of the page; the list behind "Shown by:" names its tests. A test says in
its name which properties it shows: `TEST(Suite, Property20_21_...)` in C++,
`def test_property_38_...` in Python. Prints which properties no test names; their list must be "not
built yet". Exits with 1 if the page is out of date, such a list says something else, a test names a
property that the page does not have, or a name is spelled otherwise.
"""

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "explain" / "properties.md"
CPP = ROOT / "tests" / "cpp"
PYTHON = ROOT / "tests" / "python"

NOT_BUILT = "not built yet"

HEADING = re.compile(r"^## (\d+)\. (.+)$", re.MULTILINE)
SHOWN = "\n\nShown by:"
CPP_TEST = re.compile(r"^\s*(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)", re.MULTILINE)
PYTHON_TEST = re.compile(r"^\s*(?:async )?def (test_\w+)\(", re.MULTILINE)
CPP_NUMBERS = re.compile(r"Property((?:\d\d_)+)(?=[A-Z])")
PYTHON_NUMBERS = re.compile(r"test_property_((?:\d\d_)+)(?=[a-z])")
ANY_NUMBER = re.compile(r"propert(?:y|ies)_?\d", re.IGNORECASE)

Tests = dict[int, list[str]]


def collect(cpp: Path, python: Path) -> tuple[Tests, list[str]]:
    """The tests of each property in two folders, and what is wrong with their names."""
    tests: Tests = {}
    faults = []

    def add(numbers: re.Match[str] | None, name: str, shown: str, file: Path) -> None:
        if numbers is not None:
            for number in numbers[1].rstrip("_").split("_"):
                tests.setdefault(int(number), []).append(f"`{shown}`")
        elif ANY_NUMBER.search(name):
            faults.append(f"{file.name}: {shown}: spell it Property20_... or test_property_20_...")

    for file in sorted(cpp.rglob("*")):
        if file.suffix in {".cpp", ".cu"}:
            for suite, name in CPP_TEST.findall(file.read_text(encoding="utf-8")):
                add(CPP_NUMBERS.match(name), suite + name, f"{suite}.{name}", file)
    for file in sorted(python.glob("test_*.py")):
        for name in PYTHON_TEST.findall(file.read_text(encoding="utf-8")):
            add(PYTHON_NUMBERS.match(name), name, f"{file.name}::{name}", file)
    return tests, faults


def updated(page: str, tests: Tests) -> tuple[str, dict[int, str], list[str]]:
    """Return the page with its lists of tests, the properties without tests, and faults."""
    opening, *parts = HEADING.split(page)
    made = [opening]
    known = set()
    without = {}
    faults = []
    for text, name, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        number = int(text)
        formula, mark, listed = body.partition(SHOWN)
        if number in known or not mark:
            faults.append(f"property {number}: it stands twice or has no line 'Shown by:'")
        known.add(number)
        if number in tests:
            shown = "".join(f"\n- {test}" for test in sorted(tests[number]))
            listed = f"\n{shown}\n\n"
        else:
            without[number] = name
            if listed.strip() != NOT_BUILT:
                faults.append(f'property {number} ({name}) has no test: write "{NOT_BUILT}"')
        made.append(f"## {number}. {name}{formula}{SHOWN}{listed}")
    faults += [
        f"property {number} of {', '.join(tests[number])} is not on the page"
        for number in sorted(tests.keys() - known)
    ]
    return "".join(made).rstrip() + "\n", without, faults


def main() -> int:
    """Checks or writes the page; returns the exit status."""
    parser = argparse.ArgumentParser(description="Checks which tests show which property.")
    parser.add_argument("--write", action="store_true", help="write the page instead")
    write = parser.parse_args().write
    tests, faults = collect(CPP, PYTHON)
    old = PAGE.read_text(encoding="utf-8")
    new, without, more = updated(old, tests)
    faults += more
    if write:
        PAGE.write_text(new, encoding="utf-8")
    elif new != old:
        faults.append(f"{PAGE.relative_to(ROOT)} is out of date: {Path(__file__).name} --write")
    for fault in faults:
        print(fault)
    missing = ", ".join(f"{number} ({name})" for number, name in without.items()) or "none"
    print(f"properties without a test: {missing}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
