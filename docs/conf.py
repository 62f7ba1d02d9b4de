"""Sphinx configuration of the site: `make docs` builds it into docs/_build/html."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
BUILD = DOCS / "_build"

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
sys.path[:0] = [str(DOCS)]

from site_pages import relinked, write_pages  # noqa: E402

import pulsora as pl  # noqa: E402

project = "Pulsora"
author = "The authors of Pulsora"
copyright = author  # noqa: A001
version = release = pl.__version__

extensions = [
    "breathe",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "gallery/*.ipynb", "gallery/*.py", "gallery/*.zip", "gallery/*.json"]
html_theme = "furo"
html_title = "Pulsora"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "monokai"

# Headings get the anchors that GitHub gives them, so that one link serves both.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
myst_links_external_new_tab = False

# Docstrings are plain text with code in backticks, and sections as Google writes them.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_class_signature = "mixed"
html_theme_options = {"sidebar_hide_name": False}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = []
toc_object_entries_show_parents = "hide"

sphinx_gallery_conf: dict[str, Any] = {
    "examples_dirs": "_build/root/examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/\d\d_",
    "ignore_pattern": r"train\.py$",
    "image_scrapers": ("site_gallery.saved_figures",),
    "default_thumb_file": str(DOCS / "_static" / "tile.png"),
    "reset_modules": ("site_gallery.reset",),
    "remove_config_comments": True,
    "download_all_examples": False,
    "show_signature": False,
    "show_memory": False,
    "min_reported_time": 1e6,
    "abort_on_example_error": True,
    "within_subsection_order": "FileNameSortKey",
    "nested_sections": False,
}

breathe_projects = {"pulsora": str(BUILD / "doxygen" / "xml")}
breathe_default_project = "pulsora"
breathe_default_members = ("members",)
breathe_show_include = False
cpp_id_attributes = ["PULSORA_HD", "PULSORA_HOST_DEVICE"]

smartquotes = False
# Every public header opens namespace pulsora.
suppress_warnings = ["config.cache", "duplicate_declaration.cpp"]


GALLERY = """
Gallery
=======

The numbered examples of ``examples/``, run when this site was built. Other examples there are a
device model, a compound and C++ programs. :doc:`/start/from_aihwkit_examples` lists the scripts of
``examples/from_aihwkit``.
"""


def public_headers() -> Iterator[Path]:
    """Yield the headers in src/rpucuda that the public headers forward to."""
    for header in sorted((ROOT / "include" / "pulsora").rglob("*.h")):
        for name in re.findall(r'#include "pulsora/detail/(.+?)"', header.read_text("utf-8")):
            yield ROOT / "src" / "rpucuda" / name


def run_doxygen() -> None:
    """Write Doxygen's XML of exactly the public headers."""
    folder = BUILD / "doxygen"
    folder.mkdir(parents=True, exist_ok=True)
    headers = " ".join(str(path) for path in dict.fromkeys(public_headers()))
    settings = (DOCS / "Doxyfile").read_text("utf-8")
    settings += f"""
INPUT = {headers}
OUTPUT_DIRECTORY = {folder}
STRIP_FROM_PATH = {ROOT}/src/rpucuda
INCLUDE_PATH = {ROOT}/src/rpucuda
"""
    subprocess.run(["doxygen", "-"], input=settings, text=True, check=True)


def copy_examples() -> None:
    """Copy the examples, beside links to the files that they read: they write where they are."""
    root = BUILD / "root"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    folder = root / "examples"
    folder.mkdir()
    (folder / "GALLERY_HEADER.rst").write_text(GALLERY, encoding="utf-8")
    for example in (ROOT / "examples").glob("[0-9]*.py"):
        text = example.read_text(encoding="utf-8")
        # The first sentence becomes the title, and a numbered comment begins a cell.
        opening = re.match(r'"""(.+?)\.?(?:"""|\n)', text)
        if opening is None:
            raise ValueError(f"{example} does not begin with a docstring")
        rest = '"""' if opening[0].endswith('"""') else ""
        title = opening[1]
        text = f'"""{title}\n{"=" * len(title)}\n{rest}{text[opening.end() :]}'
        text = re.sub(r"(?m)^# (\d+\. .*(?:\n#  .*)*)", r"# %%\n# \1", text)
        (folder / example.name).write_text(text, encoding="utf-8")
    for settings in (ROOT / "examples").glob("*.toml"):
        shutil.copy(settings, folder)
    for name in ("docs", "tests"):
        (root / name).symlink_to(ROOT / name)


def plain_docstring(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Escape the characters of plain text that reStructuredText would take for markup.

    Indented paragraphs are shown as code.
    """
    del app, what, name, obj, options
    made: list[str] = []
    literal = field = False
    for line in lines:
        if line.strip() and not line.startswith(" "):
            literal, field = False, line.startswith((":", ".. ", "- ", "* "))
        if line.startswith("    ") and not literal and not field and made and not made[-1].strip():
            literal = True
            made += ["::", ""]
        if literal:
            made.append(line)
            continue
        parts = re.split(r"(`[^`]*`|^\s*:\w+(?: [\w\\*]+)?:|^\.\. .*)", line)
        parts[::2] = [
            re.sub(r"(?<=\w)_(?=\W|$)|[*|]", lambda found: "\\" + found[0], part)
            for part in parts[::2]
        ]
        made.append("".join(parts))
    lines[:] = made


def relink(app: Sphinx, name: str, source: list[str]) -> None:
    """Point links that leave docs/ to the pages that stand for their targets."""
    path = Path(app.env.doc2path(name))
    if path.suffix == ".md" and not name.startswith("more/"):
        source[0] = relinked(source[0], path.parent, path.parent, set())


def setup(app: Sphinx) -> None:
    """Prepare the inputs of the site that are no pages."""
    run_doxygen()
    copy_examples()
    write_pages()
    app.connect("source-read", relink)
    app.connect("autodoc-process-docstring", plain_docstring)
