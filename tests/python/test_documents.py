"""Links between the documents lead somewhere, and readers find what they asked for."""

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

PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*.md")]
    if path.is_file()
)


def anchors(page: Path) -> set[str]:
    """What links to headings of a page are called, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead_links(page: Path) -> list[str]:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    dead = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    return dead


@has_documents
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
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


# What a first reader of README and guide did not find, and where it is answered.
QUESTIONS = [
    "When is the low-rank adapter (LRTT) worth it?",
    "Which paper defines LRTT?",
    "What do clipping, mixed precision, weight averages and several GPUs do?",
    "How many threads does it use, and why is it slow here?",
    "Which converters and which noise does a layer have by default?",
    "How do I scale weights into the range of the cells?",
    "How do I initialise a layer?",
    "Is the bias analog?",
    "Which defaults and parameters differ from AIHWKit?",
    "How do I use it from C++?",
    "`explain` says that 16 of 16 samples need more pulses than their trains hold: is that bad?",
    "What do the lines of `explain()` and `statistics()` mean?",
]

# Riddles to that reader, who has put each of them in plain words; and what was wrong.
RIDDLES = [
    "are errors and inputs as in gradient descent",
    "A ledger counts them",
    "Scales that set themselves",
    "uses up what backward passes left",
    "do not act on analog layers",
    "Say which train lengths, scales and limits",
    "The example is normal inputs of deviation 1",
    "what this build and machine can do",
    "choose a number from 1 up",
    "goes on to the bit, wherever it was made",
    "replaces every `Linear` and `Conv2d`",
    "reaches the accuracy of full-rank pulses and of floating point",
    "`IdealConfig(is_perfect=True)`",
]


@has_documents
def test_a_reader_s_questions_have_answers() -> None:
    text = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
    answers = dict(zip(*[iter(re.split(r"(?m)^## (.+)$", text)[1:])] * 2, strict=True))
    for question in QUESTIONS:
        assert len(answers[question].split()) > 15, question


@has_documents
def test_riddles_stay_out_of_pages_and_docstrings() -> None:
    texts = [*PAGES, *ROOT.glob("python/pulsora/**/*.py"), *ROOT.glob("examples/**/*.py")]
    for path in texts:
        text = " ".join(path.read_text(encoding="utf-8").split())
        assert [riddle for riddle in RIDDLES if riddle in text] == [], path
