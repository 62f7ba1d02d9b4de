"""Pages: links lead somewhere, and blocks of Python run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

has_documents = pytest.mark.skipif(
    not (ROOT / "docs").is_dir(), reason="the source archive has no documents"
)

PARTS = ("start", "howto", "reference", "explain")
# docs/ also holds what `make docs` writes.
PAGES = sorted(
    path
    for path in [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *(path for part in PARTS for path in ROOT.glob(f"docs/{part}/**/*.md")),
        *ROOT.glob("examples/**/*.md"),
    ]
    if path.is_file()
)

# A block of Python, and the comment before it: hidden code, or why the block cannot run.
BLOCK = re.compile(
    r"(?:^ *<!-- test: (?P<kind>setup|skip)(?P<text>.*?)-->\s*)?"
    r"^(?P<indent> *)```python\n(?P<code>.*?)^ *```",
    re.MULTILINE | re.DOTALL,
)


def pages(*, code: bool = False) -> pytest.MarkDecorator:
    chosen = [page for page in PAGES if not code or "```python" in page.read_text(encoding="utf-8")]
    return pytest.mark.parametrize("page", chosen, ids=lambda page: str(page.relative_to(ROOT)))


def prose(page: Path) -> str:
    """The text of a page without its blocks of code."""
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Anchors of the headings of a page, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead_links(page: Path) -> list[str]:
    dead = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    return dead


@has_documents
@pages()
def test_links_lead_somewhere(page: Path) -> None:
    assert dead_links(page) == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("# A title: of `two`\n", encoding="utf-8")
    page = tmp_path / "a.md"
    page.write_text(
        "[a](b.md#a-title-of-two) [b](c.md) [c](b.md#other) [d](#own)\n```\n[e](f)\n```\n## Own\n",
        encoding="utf-8",
    )
    assert dead_links(page) == ["c.md", "b.md#other"]


def program(page: Path) -> str:
    """The Python of a page in order, hidden setup included."""
    parts = []
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        kind, text, code = block["kind"], block["text"], block["code"]
        if kind == "skip":
            assert text.strip(", \n"), f"{page.name}: a block is skipped without a reason"
            continue
        code = re.sub(f"^{block['indent']}", "", code, flags=re.MULTILINE)
        parts.append(f"{text if kind else ''}\n{code}")
    return "\n".join(parts)


@has_documents
@pages(code=True)
@pytest.mark.filterwarnings("ignore:.*lie outside the bounds:UserWarning")
def test_the_python_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(program(page), page.name, "exec"), {"__name__": page.stem})  # noqa: S102


def test_setup_is_run_and_skipped_blocks_are_not(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- test: setup\na = 1\n-->\n\n```python\nb = a\n```\n\n"
        "- item\n\n  <!-- test: skip, needs a GPU -->\n\n  ```python\n  raise\n  ```\n\n"
        "  ```python\n  if b:\n      c = b\n  ```\n",
        encoding="utf-8",
    )
    names: dict[str, int] = {}
    exec(program(page), names)  # noqa: S102
    assert (names["a"], names["b"], names["c"]) == (1, 1, 1)
