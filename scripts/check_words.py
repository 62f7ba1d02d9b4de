#!/usr/bin/env python3
"""Check the words of docstrings, comments and pages (CONTRIBUTING.md, "Words").

    python scripts/check_words.py [PATH ...]

The first sentence of a docstring or of a `///` comment names its subject, so it does not begin
with a word that hides it. Lines of code have at most 100 columns, lines of pages 120, and cells of
tables 160 characters. Without paths, all files that git knows are read. Exit status 1 if anything
was found.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
CPP = {".h", ".cpp", ".cu", ".cuh"}
PYTHON = {".py", ".pyi"}
CODE_COLUMNS, PAGE_COLUMNS, CELL = 100, 120, 160
# Tables that programs wrote, data of tests, and the log of changes.
SKIPPED = ("benchmarks/results/", "tests/data/", "tests/golden/", "CHANGELOG.md")

HIDING = re.compile(
    r"(What|Of|As|Where|Which|Who|Whoever|Whose|Those|These|That|The same|The rest|Is|Are)\b"
)
LINK = re.compile(r"\]\(|https?:")  # a line that cannot be broken


def first_lines(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of the first line of each docstring or `///` comment."""
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(
                node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
            ) and (docstring := ast.get_docstring(node)):
                yield node.body[0].lineno, docstring.splitlines()[0]
    elif path.suffix in CPP:
        inside = False
        for number, line in enumerate(text.splitlines(), 1):
            comment = re.match(r"\s*///<?\s?(.*)", line)
            if comment and not inside:
                yield number, comment[1]
            inside = bool(comment)


def long_lines(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """Yield the number of each line or table cell that is too long, and its length."""
    page = path.suffix == ".md"
    in_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if page and line.lstrip().startswith("```"):
            in_code = not in_code
        if page and not in_code and line.lstrip().startswith("|"):
            longest = max(len(cell.strip()) for cell in line.split("|"))
            if longest > CELL:
                yield number, f"a table cell has {longest} characters; at most {CELL}"
        elif len(line) > (PAGE_COLUMNS if page else CODE_COLUMNS) and not LINK.search(line):
            limit = PAGE_COLUMNS if page else CODE_COLUMNS
            yield number, f"{len(line)} columns; at most {limit}"


def complaints(path: Path) -> Iterator[str]:
    """Yield a line for each thing that is wrong with a file."""
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    for number, line in first_lines(path, text):
        if HIDING.match(line):
            yield f"{name}:{number}: begins with a word that hides its subject: {line[:60]!r}"
    for number, reason in long_lines(path, text):
        yield f"{name}:{number}: {reason}"


def main() -> int:
    """Print what was found, and return 1 if there was anything."""
    if sys.argv[1:]:
        paths = [Path(name).resolve() for name in sys.argv[1:]]
    else:
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        paths = [ROOT / name for name in listed.stdout.splitlines() if not name.startswith(SKIPPED)]
    found = [
        line
        for path in paths
        if path.suffix in CPP | PYTHON | {".md"} and path.is_file()
        for line in complaints(path)
    ]
    print("\n".join(found) or f"the words of {len(paths)} files are in order")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
