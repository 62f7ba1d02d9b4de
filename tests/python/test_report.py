"""`pulsora report`: the page, what it shows, and runs that it refuses."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from pulsora.cli import app
from pulsora.records import files
from pulsora.report.page import page
from pulsora.report.runs import differing, load
from pulsora.report.series import array_rows, last_transfers, per_epoch, saturated

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HOSTILE = "<script>alert(1)</script> & $x^{ \"'"
VOID = {"meta", "br", "path", "use", "line"}


class Page(HTMLParser):
    """Reads a page: elements in balance, identifiers, text, and addresses."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.count: dict[str, int] = {}
        self.identifiers: list[str] = []
        self.addresses: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] = self.count.get(tag, 0) + 1
        for name, value in attrs:
            if name == "id":
                self.identifiers.append(str(value))
            if name in {"href", "src", "xlink:href", "style", "clip-path"}:
                self.addresses.append(str(value))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.output


def distribution(width: float) -> dict[str, Any]:
    return {"mean": 0.0, "std": width / 3, "low": -width, "high": width, "counts": [1, 2, 1]}


def epoch(number: int, loss: float) -> dict[str, Any]:
    statistics = {
        "pulses": 100 * number,
        "pulses_visible": 40 * number,
        "pulses_a": 50 * number,
        "transfers": number - 1,
        "last_transfer": {"gain": 0.9 + number / 10, "undelivered": 0.01 * number},
    }
    arrays = {
        name: {"cells": 20, "saturated": number, "distribution": distribution(number)}
        for name in ("visible", "fast_a")
    }
    tile = {"layer": "0", "tile": 0, "kind": "lrtt", "shape": [4, 5]}
    metrics = {
        "epoch": number,
        "loss": loss,
        "accuracy": 1 - loss / 4,
        "pulses_per_cell": 5.0 * number,
        "transfers": number - 1,
    }
    parameters = [{"name": "2.weight", "distribution": distribution(1.0)}]
    return files.epoch_line(
        number, metrics, [{**tile, "statistics": statistics, "arrays": arrays}], parameters
    )


def write(folder: Path, settings: dict[str, Any] | None = None, epochs: int = 3) -> Path:
    folder.mkdir(parents=True)
    lines = [epoch(number, 2.0 / number) for number in range(1, epochs + 1)]
    head = files.run_line("lrtt", settings or {"data": "digits", "lr": 0.1, "tile": {"rank": 4}})
    (folder / files.FILE).write_bytes(files.to_lines([head, *lines]))
    return folder


def test_the_page_is_whole_and_needs_nothing_else(tmp_path: Path) -> None:
    runs = load([write(tmp_path / "a"), write(tmp_path / "b", {"data": "digits", "lr": 0.2})])
    read = Page(page(runs))
    assert len(set(read.identifiers)) == len(read.identifiers) > 100
    known = set(read.identifiers)
    for address in read.addresses:
        for target in re.findall(r"url\(([^)]*)\)|^(#.*)$", address):
            name = "".join(target)
            assert name.startswith("#"), address
            assert name[1:] in known
        assert "//" not in address
    assert not {"script", "link", "img", "iframe", "object"} & read.count.keys()
    assert "@import" not in read.text
    assert read.count["figure"] == 2 + 3 + 3 + 3
    for title in ("Training", "Pulses and saturation", "Transfers", "Distribution of weights"):
        assert title in read.text
    assert "Settings that differ" in read.text


def test_equal_runs_have_equal_pages(tmp_path: Path) -> None:
    folder = write(tmp_path / "a")
    assert page(load([folder])) == page(load([folder]))


def test_the_numbers_of_the_page(tmp_path: Path) -> None:
    (shown,) = load([write(tmp_path / "a")])
    assert saturated(shown, "visible") == [5.0, 10.0, 15.0]
    assert per_epoch(shown, "pulses_per_cell") == [5.0, 5.0, 5.0]
    assert last_transfers(shown, "gain") == [None, pytest.approx(1.1), pytest.approx(1.2)]
    rows = {row.array: row for row in array_rows(shown)}
    assert list(rows) == ["W (visible)", "A (fast_a)", "digital"]
    assert rows["W (visible)"].pulses == 3 * 40 / 20
    assert rows["A (fast_a)"].pulses == 3 * 50 / 20
    assert rows["A (fast_a)"].saturated == 3 / 20
    assert rows["W (visible)"].first == distribution(1.0)
    assert rows["W (visible)"].last == distribution(3.0)
    text = Page(page([shown])).text
    assert "83.3 %" in text  # accuracy of the last epoch
    assert "0.6667" in text  # its loss


def test_settings_that_differ(tmp_path: Path) -> None:
    first = write(tmp_path / "a")
    second = write(tmp_path / "b", {"data": "digits", "lr": 0.1, "tile": {"rank": 8}, "seed": 2})
    other, same = differing(load([first, second]))
    assert other == {"tile.rank": ["4", "8"], "seed": ["", "2"]}
    assert same == {"data": "digits", "lr": "0.1"}


def test_text_of_users_is_escaped(tmp_path: Path) -> None:
    folder = write(tmp_path / HOSTILE.replace("/", ""), {HOSTILE: HOSTILE, "data": "x"})
    path = folder / files.FILE
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines[1:]:
        line["tiles"][0]["layer"] = HOSTILE
        line["parameters"][0]["name"] = HOSTILE
        line["metrics"][HOSTILE] = 1.0
    path.write_bytes(files.to_lines(lines))
    made = page(load([folder, write(tmp_path / "b")]))
    assert "<script" not in made
    read = Page(made)
    assert read.text.count(HOSTILE) >= 5  # setting, its value, layer, parameter, metric


def test_a_folder_of_runs_is_all_of_them(tmp_path: Path) -> None:
    write(tmp_path / "runs" / "a")
    write(tmp_path / "runs" / "b")
    (tmp_path / "runs" / "notes").mkdir()
    code, output = run("report", tmp_path / "runs")
    assert code == 0, output
    made = (tmp_path / "runs" / "report.html").read_text()
    assert "<h1>a, b</h1>" in made


def test_runs_of_equal_names_have_their_paths(tmp_path: Path) -> None:
    folders = [write(tmp_path / "1" / "a"), write(tmp_path / "2" / "a")]
    assert [one.label for one in load(folders)] == [str(folder) for folder in folders]


def test_an_older_run_has_its_curves(tmp_path: Path) -> None:
    epochs = [{"epoch": 1.0, "loss": 1.5, "accuracy": 0.5, "seconds": 1.0}]
    saved = {"experiment": {"algorithm": "digital", "data": "digits"}, "epochs": epochs}
    (tmp_path / "metrics.json").write_text(json.dumps(saved))
    made = page(load([tmp_path]))
    assert "Records of arrays are missing" in made
    assert Page(made).count["figure"] == 2


def test_different_data_are_remarked(tmp_path: Path) -> None:
    runs = load([write(tmp_path / "a"), write(tmp_path / "b", {"data": "book.txt"})])
    assert "different data (digits, book.txt)" in page(runs)
    assert "different data" not in page(runs[:1])


def damage(folder: Path) -> Path:
    path = folder / files.FILE
    path.write_bytes(path.read_bytes()[:-40])
    return folder


def of_other_kind(folder: Path) -> Path:
    lines = [files.run_line("other", {}), files.epoch_line(1, {"perplexity": 3.0})]
    (folder / files.FILE).write_bytes(files.to_lines(lines))
    return folder


def older_damaged(folder: Path) -> Path:
    (folder / files.FILE).unlink()
    (folder / "metrics.json").write_text('{"epochs": [1]}')
    return folder


def empty(folder: Path) -> Path:
    (folder / files.FILE).write_bytes(files.to_lines([files.run_line("a", {})]))
    return folder


def bare(folder: Path) -> Path:
    (folder / files.FILE).unlink()
    return folder


def gone(folder: Path) -> Path:
    shutil.rmtree(folder)
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (damage, "records.jsonl, line 4: this is no record"),
        (of_other_kind, "runs of different kinds have no curve in common"),
        (older_damaged, "metrics.json is damaged, or no metrics"),
        (empty, "has no epoch yet"),
        (bare, "is no run: neither it nor a folder in it has records.jsonl"),
        (gone, "there is no such folder"),
        (lambda folder: folder.with_name("a"), "is named twice"),
    ],
)
def test_bad_runs_are_refused(change: Callable[[Path], Path], message: str, tmp_path: Path) -> None:
    first, second = write(tmp_path / "a"), write(tmp_path / "b")
    code, output = run("report", first, change(second), "--out", tmp_path / "r.html")
    assert code == 2
    (line,) = output.strip().splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert not (tmp_path / "r.html").exists()


@pytest.mark.filterwarnings("ignore")
def test_a_run_of_train_has_a_report(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    small = ["--hidden", 8, "--epochs", 2, "--threads", 1, "--device-preset", "ReRamSB"]
    code, output = run("train", *small, "--rank", 2, "--transfer-every", 20, "--out", tmp_path)
    assert code == 0, output
    assert run("report", tmp_path)[0] == 0
    read = Page((tmp_path / "report.html").read_text())
    assert "A (fast_a)" in read.text
    assert read.count["figure"] == 2 + 4 + 5 + 4
