"""The benchmark of fits to published files, with files of its own."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import numpy as np
import pytest

from conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

K = np.arange(40)


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "fit_public", ROOT / "benchmarks" / "fit_public.py"
    )
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def traces(seed: int, count: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Soft bounds: exponentials of the pulse number, with read noise of 1 %, of two lengths."""
    rng = np.random.default_rng(seed)
    up = [1e-6 * (2 - 1.5 * np.exp(-K / 12) + 0.01 * rng.standard_normal(40)) for _ in range(count)]
    down = [1e-6 * (0.5 + 1.44 * np.exp(-K / 9) + 0.01 * rng.standard_normal(40)) for _ in up]
    return up, [one[:35] for one in down]


def written(path: Path, columns: list[np.ndarray], separator: str, header: str = "") -> Path:
    """A table whose shorter columns end with empty cells."""
    rows = [
        separator.join(f"{column[i]:.6g}" if i < len(column) else "" for column in columns)
        for i in range(max(map(len, columns)))
    ]
    path.write_text("\n".join(([header] if header else []) + rows))
    return path


def printed(text: str) -> dict[str, list[float]]:
    return {row.split()[0]: [*map(float, row.split()[1:])] for row in text.splitlines()[1:]}


def test_ramps_in_columns(
    benchmark: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    up, down = traces(1, 3)
    files = ["--up", str(written(tmp_path / "set.csv", up, ","))]
    files += ["--down", str(written(tmp_path / "reset.csv", [*down, up[0]][:3], ","))]
    benchmark.main([*files, "--traces", "2", "--models", "SoftBounds", "ConstantStep"])
    found = printed(capsys.readouterr().out)
    assert [*found] == ["SoftBounds", "ConstantStep", "exponentials"]
    assert max(found["SoftBounds"][1:]) < 0.02
    assert max(found["exponentials"][1:]) < 0.01
    assert min(found["ConstantStep"][1:]) > 0.05


def test_a_time_in_front_tabs_a_header_and_a_direction_listed_backwards(
    benchmark: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (up,), (down,) = traces(2, 1)
    time = 1e-9 * K
    files = ["--up", str(written(tmp_path / "up.tsv", [time, up], "\t", "time\tG"))]
    files += ["--down", str(written(tmp_path / "down.tsv", [time[:35], down[::-1]], "\t"))]
    benchmark.main([*files, "--skip", "1", "--reverse", "down", "--models", "SoftBounds"])
    assert max(printed(capsys.readouterr().out)["SoftBounds"][1:]) < 0.03


def test_two_columns_of_weights(
    benchmark: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (up,), (down,) = traces(3, 1)
    path = written(tmp_path / "pair.csv", [1e6 * up - 1.2, 1e6 * down - 1.2], ",")
    benchmark.main(["--pair", str(path), "--unit", "weight", "--models", "SoftBounds"])
    assert max(printed(capsys.readouterr().out)["SoftBounds"][1:]) < 0.03
    with pytest.raises(SystemExit):
        benchmark.main(["--pair", str(written(tmp_path / "one.csv", [up], ","))])
    with pytest.raises(SystemExit):
        benchmark.main(["--up", str(path)])
    with pytest.raises(SystemExit, match="has no column of numbers"):
        benchmark.main(["--pair", str(path), "--skip", "2"])
