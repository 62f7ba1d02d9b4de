"""Modules of the package import one another in one direction, and where a reader looks for imports: at the top."""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "pulsora"


@dataclass
class Imports:
    """What a module imports, by full names: when it is imported itself, and inside functions."""

    top: set[str] = field(default_factory=set)
    inside: set[str] = field(default_factory=set)


def is_for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def collect(nodes: list[ast.stmt], found: Imports, *, inside: bool = False) -> Imports:
    names = found.inside if inside else found.top
    for node in nodes:
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the package"
            # The name may be a module, and then it is what is imported.
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        if is_for_types(node):
            assert isinstance(node, ast.If)
            collect(node.orelse, found, inside=inside)
            continue
        deeper = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        children = [child for child in ast.walk(node) if isinstance(child, ast.stmt)][1:]
        direct = [child for child in children if child in list(ast.iter_child_nodes(node))]
        for handler in ast.iter_child_nodes(node):
            if isinstance(handler, ast.ExceptHandler | ast.match_case):
                direct += handler.body
        collect(direct, found, inside=deeper)
    return found


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(root: Path) -> dict[str, Imports]:
    """Each module of a package; imported names that are no modules stand for the module that has them."""
    trees = {module_name(path, root): ast.parse(path.read_text()) for path in root.rglob("*.py")}

    def modules(names: set[str]) -> set[str]:
        """Modules among the names: whole, or but for their last part; foreign ones by their first."""
        ours = {name if name in trees else name.rpartition(".")[0] for name in names}
        return {name if name in trees else name.partition(".")[0] for name in ours if name} | {
            name.partition(".")[0] for name in names if not name.startswith(f"{root.name}.")
        }

    found = {name: collect(tree.body, Imports()) for name, tree in trees.items()}
    return {name: Imports(modules(one.top), modules(one.inside)) for name, one in found.items()}


def cycle_of(graph: dict[str, Imports]) -> list[str] | None:
    """A cycle of imports, those inside functions included; or None."""
    edges = {name: (one.top | one.inside) & set(graph) for name, one in graph.items()}
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
    assert "pulsora._parameters" in package["pulsora.config"].top
    assert cycle_of(package) is None


def test_only_what_needs_torch_is_imported_inside_functions(package: dict[str, Imports]) -> None:
    @functools.cache
    def needs_torch(name: str) -> bool:
        own = package[name].top
        return "torch" in own or any(needs_torch(one) for one in own & set(package))

    assert needs_torch("pulsora.training.run")
    assert not needs_torch("pulsora.cli")
    late = {(name, one) for name, found in package.items() for one in found.inside & set(package)}
    assert ("pulsora.cli.main", "pulsora.training.run") in late
    assert {pair for pair in late if not needs_torch(pair[1])} == set()


@pytest.mark.parametrize(
    ("first", "found"),
    [
        ("from pack.b import B", True),
        ("import pack.b", True),
        ("from pack import b", True),
        ("def f():\n    try:\n        pass\n    except OSError:\n        from pack import b", True),
        ("class A:\n    if A:\n        from pack.b import B", True),
        ("if TYPE_CHECKING:\n    from pack.b import B\nelse:\n    import os", False),
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
