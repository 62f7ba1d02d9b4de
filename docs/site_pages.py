"""Pages of the site, in docs/more, for the files and folders outside docs/ that pages link to."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
MORE = DOCS / "more"
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]+)(#[^)\s]*)?\)")
LANGUAGES = {
    ".py": "python",
    ".cpp": "cpp",
    ".h": "cpp",
    ".cu": "cuda",
    ".txt": "cmake",
    ".sh": "sh",
}
MOST_LINES = 400  # of a file that is shown; of longer ones the name is enough


def page_of(target: Path) -> Path:
    """Return the path, without suffix, of the page for a file or folder of the repository."""
    if target.is_relative_to(DOCS):
        return target.with_suffix("")
    if target.parent == ROOT / "examples" and target.suffix == ".py":
        return DOCS / "gallery" / target.stem
    if target == ROOT / "examples":
        return DOCS / "gallery" / "index"
    return MORE / "__".join(target.relative_to(ROOT).parts).replace(".", "_")


def relinked(text: str, folder: Path, page_folder: Path, wanted: set[Path]) -> str:
    """Return the text with links, relative to `folder`, made relative to the folder of its page.

    Files and folders outside docs/ that are linked to are added to `wanted`.
    """

    def replaced(link: re.Match[str]) -> str:
        if re.match(r"[a-z]+:", link[2]):
            return link[0]
        target = (folder / link[2]).resolve()
        if not target.exists():
            return link[0]
        if link[0].startswith("!") or target.suffix == ".svg":
            return f"{link[1]}{os.path.relpath(target, page_folder)})"
        if not target.is_relative_to(DOCS):
            wanted.add(target)
        suffix = ".rst" if page_of(target).is_relative_to(DOCS / "gallery") else ".md"
        return f"{link[1]}{os.path.relpath(page_of(target), page_folder)}{suffix}{link[3] or ''})"

    parts = re.split(r"(```.*?```)", text, flags=re.DOTALL)
    parts[::2] = [LINK.sub(replaced, part) for part in parts[::2]]
    return "".join(parts)


def shown(path: Path) -> str:
    """Return a file as a block of code."""
    text = path.read_text(encoding="utf-8")
    if len(text.splitlines()) > MOST_LINES:
        return f"{len(text)} bytes in the repository.\n"
    return f"````{LANGUAGES.get(path.suffix, 'text')}\n{text.rstrip()}\n````\n"


def content(target: Path) -> str:
    """Return the Markdown that shows a file or folder."""
    if target.suffix == ".md":
        return target.read_text(encoding="utf-8")
    name = target.relative_to(ROOT)
    if target.is_file():
        return f"# {name}\n\n{shown(target)}"
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", target],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    files = [ROOT / line for line in listed.stdout.splitlines()]
    readme = target / "README.md"
    text = content(readme) if readme in files else f"# {name}\n"
    return text + "".join(f"\n## {path.name}\n\n{shown(path)}" for path in files if path != readme)


def write_pages() -> None:
    """Write docs/more anew, for the links of all pages and of the pages written for them."""
    shutil.rmtree(MORE, ignore_errors=True)
    MORE.mkdir()
    wanted: set[Path] = set()
    for page in DOCS.rglob("*.md"):
        if not page.is_relative_to(DOCS / "_build"):
            relinked(page.read_text(encoding="utf-8"), page.parent, page.parent, wanted)
    done: set[Path] = set()
    while wanted - done:
        target = min(wanted - done)
        done.add(target)
        page = page_of(target)
        if page.is_relative_to(MORE):
            folder = target if target.is_dir() else target.parent
            text = relinked(content(target), folder, MORE, wanted)
            page.with_suffix(".md").write_text(
                f"---\norphan: true\n---\n\n{text}", encoding="utf-8"
            )
