"""The Fashion-MNIST benchmark on a small data set: what it stores, shows, and takes up again."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import fashion_mnist
import fashion_mnist_report as report
from fashion_mnist_rows import MARGIN, ROWS
from pulsora.plot import plot_comparison

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

FROZEN = next(row for row in ROWS if row.frozen)


def write_idx(path: Path, array: NDArray[np.uint8]) -> None:
    header = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    path.write_bytes(header + array.tobytes())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    for part, count in (("train", 300), ("t10k", 40)):
        labels = (np.arange(count) % 3).astype(np.uint8)
        images = rng.integers(0, 80, (count, 4, 5), dtype=np.uint8)
        images[:, 0] += (80 * labels[:, None]).astype(np.uint8)
        write_idx(tmp_path / f"{part}-images-idx3-ubyte", images)
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte", labels)
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    command = ["fashion_mnist.py", "--threads", "1", *map(str, arguments)]
    monkeypatch.setattr("sys.argv", command)
    fashion_mnist.main()


def test_runs_are_stored_reported_and_not_repeated(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = folder / "out"
    options = ("--data", folder, "--out", out, "--rows", "frozen", "K=4, dw 2e-4")
    run(monkeypatch, *options)
    assert "layer 1 frozen, seed 0" in capsys.readouterr().out
    numbers = json.loads((out / "fashion_mnist.json").read_text())
    assert [one["row"] for one in numbers["runs"]] == [FROZEN.name, "LRTT pulsed K=4, dw 2e-4"]
    assert set(numbers["machines"]) == {"cpu"}
    for one in numbers["runs"]:
        assert len(one["epochs"]) == fashion_mnist.EPOCHS
        assert one["epochs"][-1]["loss"] < one["epochs"][0]["loss"]
    page = (out / "results.md").read_text()
    assert "CPU s per epoch" in page
    assert "GPU accuracy" not in page
    assert (out / "fashion_mnist.png").read_bytes().startswith(b"\x89PNG")
    before = {path: path.stat().st_mtime_ns for path in (out / "cpu").iterdir()}
    run(monkeypatch, *options)
    assert {path: path.stat().st_mtime_ns for path in (out / "cpu").iterdir()} == before
    assert "seed 0:" not in capsys.readouterr().out


def test_results_of_other_settings_are_passed_over(tmp_path: Path) -> None:
    path = fashion_mnist.stored_path(FROZEN, 0, "cpu", tmp_path)
    path.parent.mkdir()
    path.write_text(json.dumps({"settings": FROZEN.settings()}))
    assert fashion_mnist.stored_results(tmp_path)["cpu"] == {
        FROZEN.name: {0: {"settings": FROZEN.settings()}}
    }
    path.write_text(json.dumps({"settings": ["another"]}))
    assert fashion_mnist.stored_results(tmp_path)["cpu"] == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rows", "nothing"], "no row contains ['nothing']"),
        (["--data", "no/folder"], "no file train-images-idx3-ubyte"),
        (["--device", "gpu"], "device is 'gpu'"),
        (["--part", "0/2"], "part = 0/2"),
        (["--part", "x"], "part = x"),
    ],
)
def test_mistakes_are_named(
    arguments: list[str],
    message: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, "--data", folder, *arguments)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def result(accuracy: float, seconds: float) -> dict[str, Any]:
    epoch = {"loss": 0.5, "accuracy": accuracy, "seconds": seconds}
    pulses = {"pulses_per_cell": 12.0, "gain": 0.99}
    return {"settings": [], "machine": "M", "epochs": [epoch, epoch], "report": pulses}


def test_the_table_shows_both_places_and_who_fails_the_gate() -> None:
    row = ROWS[0]
    assert row.reference is not None
    assert row.gate == row.reference - MARGIN
    results: report.Results = {
        "cpu": {row.name: {0: result(row.gate, 1.0), 1: result(row.gate + 1.0, 2.0)}},
        "cuda": {row.name: {0: result(row.gate - 0.01, 0.25)}},
    }
    text = report.table(results)
    assert "CPU accuracy % | GPU accuracy %" in text
    assert f"{row.gate + 0.5:.2f} ({row.gate:.2f} ... {row.gate + 1.0:.2f})" in text
    assert "| FAILED on GPU |" in text
    assert text.splitlines()[-1].endswith("| 1.50 | 0.25 |")
    passing = copy.deepcopy(results)
    passing["cuda"][row.name][0] = result(row.gate, 0.25)
    assert "| passed |" in report.table(passing)


def test_curves_of_both_places_are_drawn_side_by_side() -> None:
    with pytest.raises(ValueError, match="groups is empty"):
        plot_comparison({})
    name = ROWS[0].name
    figure = plot_comparison(
        report.histories({"cpu": {name: {0: result(80, 1)}}, "cuda": {name: {0: result(81, 1)}}})
    )
    panels = figure.get_axes()
    assert [axes.get_title() for axes in panels[:2]] == ["CPU", "GPU"]
    assert [len(axes.get_lines()) for axes in panels] == [1, 2, 1, 2]
    np.testing.assert_allclose(panels[3].get_lines()[0].get_ydata(), 80.0)
    np.testing.assert_allclose(panels[3].get_lines()[1].get_ydata(), 81.0)
