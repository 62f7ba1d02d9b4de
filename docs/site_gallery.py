"""Figures of the gallery: every figure that an example saves is shown on its page."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst

_saved: list[Figure] = []
_savefig = Figure.savefig


def _record(self: Figure, *args: Any, **options: Any) -> None:
    _saved.append(self)
    _savefig(self, *args, **options)


def saved_figures(block: object, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Write the figures that the block has saved where the gallery looks for images."""
    del block
    paths = []
    for figure in _saved:
        paths.append(str(next(block_vars["image_path_iterator"])))
        _savefig(figure, paths[-1], dpi=110)
    _saved.clear()
    return figure_rst(paths, gallery_conf["src_dir"])


def reset(gallery_conf: dict[str, Any], name: str) -> None:
    """Record the figures of the next example alone, and tell it where its file is."""
    del gallery_conf
    _saved.clear()
    examples = Path(__file__).resolve().parent / "_build" / "root" / "examples"
    builtins.__file__ = str(examples / Path(name).name)  # type: ignore[attr-defined]
    Figure.savefig = _record  # type: ignore[method-assign]
