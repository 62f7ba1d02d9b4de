"""Version of the package, and the added dependencies of a CUDA wheel, for the build backend.

A wheel with the CUDA backend has the same name as one without, so that either replaces the other
and nothing can hold files of both. It is told apart by a local version, such as 0.1.0+cu13: `pip
install pulsora==0.1.0` accepts both.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["dynamic_metadata"]


def dynamic_metadata(_settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, Any]:
    """The dynamic fields of [project]; dependencies are added to those that pyproject.toml lists.

    Raises:
        ValueError: If PULSORA_WHEEL in the environment is not a kind of wheel.
    """
    cmake = Path("CMakeLists.txt").read_text(encoding="utf-8")
    found = re.search(r"project\(pulsora VERSION ([0-9.]+)", cmake)
    if not found:
        raise ValueError("CMakeLists.txt has no project(pulsora VERSION ...)")
    version = found[1]
    kind = os.environ.get("PULSORA_WHEEL", "")
    if kind not in {"", "cpu", "cuda"}:
        raise ValueError(f"PULSORA_WHEEL = {kind!r}: give 'cpu' or 'cuda', or leave it unset")
    if kind != "cuda":
        return {"version": version, "dependencies": []}
    libraries = project["optional-dependencies"]["cuda"]
    major = re.search(r">=(\d+)", libraries[0])
    if not major:
        raise ValueError(f"{libraries[0]!r} does not begin at a version of CUDA")
    return {"version": f"{version}+cu{major[1]}", "dependencies": libraries}
