"""Modules of the package import one another in one direction, and at the top of their files."""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "pulsora"

ROOMS = [
    "_core",
    "_internal",
    "state",
    "runtime",
    "devices",
    "noise_models",
    "config",
    "preset_io",
    "tiki_taka",
    "transfer_presets",
    "crosssim_presets",
    "inference_presets",
    "mixed_precision_presets",
    "presets",
    "tile",
    "accounting",
    "prototype",
    "drift_curves",
    "lowrank",
    "nn.tiles",
    "nn.autograd",
    "nn",
    "optim",
    "convert",
    "inference",
    "distributed",
    "graphs",
    "training_step",
    "loops",
    "peft",
    "fit",
    "forecast",
    "bench",
    "verification",
    "plot",
    "records",
    "training",
    "report",
    "trackers",
    "sweep",
    "pulsora",
    "cli",
    "__main__",
]
"""Modules and packages; each imports earlier ones alone. `pulsora` is the package's `__init__`."""


@dataclass
class Imports:
    """Imports of a module, by full names: at its top, inside functions, and for type checkers."""

    top: set[str] = field(default_factory=set)
    inside: set[str] = field(default_factory=set)
    types: set[str] = field(default_factory=set)

    @property
    def all(self) -> set[str]:
        return self.top | self.inside | self.types


class Collector(ast.NodeVisitor):
    """Gathers imports."""

    def __init__(self) -> None:
        self.found = Imports()
        self.functions = 0
        self.for_types = False

    def visit_Import(self, node: ast.Import) -> None:
        self.add(*(alias.name for alias in node.names))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        assert node.level == 0, "imports name the package"
        self.add(*(f"{node.module}.{alias.name}" for alias in node.names))

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.functions += 1
        self.generic_visit(node)
        self.functions -= 1

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - as NodeVisitor asks

    def visit_If(self, node: ast.If) -> None:
        before = self.for_types
        self.for_types = before or ast.unparse(node.test) == "TYPE_CHECKING"
        for child in node.body:
            self.visit(child)
        self.for_types = before
        for child in node.orelse:
            self.visit(child)

    def add(self, *names: str) -> None:
        if self.for_types:
            self.found.types.update(names)
        else:
            (self.found.inside if self.functions else self.found.top).update(names)


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(root: Path) -> dict[str, Imports]:
    """Imports of each module of a package: own modules by their full names, and other packages."""
    trees = {module_name(path, root): ast.parse(path.read_text()) for path in root.rglob("*.py")}
    modules = {
        *trees,
        *(module_name(path, root) for path in root.rglob("*.pyi")),
    }  # compiled ones too

    def module_of(name: str) -> str:
        """The module that has a name, unless the name is a module itself."""
        while name not in modules and "." in name:
            name = name.rpartition(".")[0]
        return name

    graph = {}
    for module, tree in trees.items():
        collector = Collector()
        collector.visit(tree)
        found = collector.found
        graph[module] = Imports(
            *(set(map(module_of, each)) for each in (found.top, found.inside, found.types))
        )
    return graph


def cycle_of(graph: dict[str, Imports]) -> list[str] | None:
    """A cycle of imports, those inside functions and for type checkers included; or None."""
    return cycle_in({name: one.all & set(graph) for name, one in graph.items()})


def cycle_in(edges: Mapping[str, Collection[str]]) -> list[str] | None:
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return list(error.args[1])
    return None


@pytest.fixture(scope="module")
def package() -> dict[str, Imports]:
    return imports_of(PACKAGE)


def test_imports_have_no_cycle(package: dict[str, Imports]) -> None:
    assert len(package) > 25
    assert "pulsora._internal.parameters" in package["pulsora.config"].top
    assert cycle_of(package) is None


def room_of(module: str) -> str:
    name = module.removeprefix("pulsora.")
    while name not in ROOMS and "." in name:
        name = name.rpartition(".")[0]
    return name


def test_rooms_import_earlier_ones_alone(package: dict[str, Imports]) -> None:
    assert {room_of(module) for module in package} <= set(ROOMS)
    own = {
        (room_of(module), room_of(name))
        for module, found in package.items()
        for name in found.all
        if name.partition(".")[0] == "pulsora"
    }
    assert ("nn", "tile") in own
    upward = {pair for pair in own if ROOMS.index(pair[0]) < ROOMS.index(pair[1])}
    assert upward == set()


def test_only_what_takes_long_is_imported_inside_functions(package: dict[str, Imports]) -> None:
    @functools.cache
    def takes_long(name: str) -> bool:
        own = package[name].top
        slow = {"torch", "matplotlib"} & {one.partition(".")[0] for one in own}
        return bool(slow) or any(takes_long(one) for one in own & set(package))

    assert takes_long("pulsora.training.run")
    assert takes_long("pulsora.plot")
    assert not takes_long("pulsora")
    assert not takes_long("pulsora.cli")
    late = {(name, one) for name, found in package.items() for one in found.inside & set(package)}
    assert ("pulsora.cli.main", "pulsora.training.run") in late
    # The program sets how threads wait before it imports what computes.
    late -= {("pulsora.__main__", "pulsora.cli")}
    assert {pair for pair in late if not takes_long(pair[1])} == set()


@pytest.mark.parametrize(
    ("first", "found"),
    [
        ("from pack.b import B", True),
        ("import pack.b", True),
        ("from pack import b", True),
        ("def f():\n    try:\n        pass\n    except OSError:\n        from pack import b", True),
        ("class A:\n    if A:\n        from pack.b import B", True),
        ("if TYPE_CHECKING:\n    from pack.b import B\nelse:\n    import os", True),
        ("from pack import other\nfrom elsewhere.pack.b import B", False),
    ],
)
def test_a_cycle_is_found(first: str, found: bool, tmp_path: Path) -> None:
    root = tmp_path / "pack"
    root.mkdir()
    (root / "__init__.py").write_text("")
    (root / "a.py").write_text(first)
    (root / "b.py").write_text("from pack.a import A")
    (root / "other.py").write_text("")
    assert (cycle_of(imports_of(root)) is not None) == found


def test_files_stay_short() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    assert {path.name: lines for path, lines in lengths.items() if lines > 400} == {}
