"""Output of the command line: help, versions and tables, whole in 80 columns."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console
from typer.testing import CliRunner

import pulsora as pl
from pulsora.bench import report
from pulsora.bench.machine import Ceilings, Place
from pulsora.cli import app
from pulsora.cli.progress import metrics_table, progress_bar


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.output


@pytest.mark.parametrize(
    "command",
    ["train", "evaluate", "forecast", "plot-device", "plot-drift", "explain", "bench", "demo"],
)
def test_help_names_every_default_in_80_columns(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, output = run(command, "-h")
    assert code == 0, output
    assert max(map(len, output.splitlines())) <= 80
    assert "…" not in output
    options = re.split(r"(?m)^│ (?=--)", output.partition("─ Options ")[2])[1:-1]  # but --help
    assert options
    assert [text for text in options if "[default:" not in text] == []


@pytest.mark.parametrize("command", ["", "train", "bench", "explain", "fit"])
def test_help_pages_are_plain(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Switches name no type, and lines of a paragraph end where the terminal ends."""
    monkeypatch.setenv("COLUMNS", "200")
    code, output = run(*command.split(), "--help")
    assert code == 0, output
    assert "bool" not in output.lower()
    if command == "explain":
        assert "standard deviation 1 and normal errors with standard deviation" in output


def test_the_table_of_a_benchmark_is_explained_in_words() -> None:
    table = report.table([], Place("cpu", 1), Ceilings(1.0, 1.0))
    console = Console(width=80, file=io.StringIO())
    console.print(report.legend(Place("cpu", 1)))
    explained = {line.split()[0] for line in console.file.getvalue().splitlines() if line[0] != " "}
    heads = {str(column.header).split()[0] for column in table.columns}
    assert explained == heads - {"tile", "operation", "size"}


def test_commands_are_listed_as_a_newcomer_needs_them() -> None:
    commands = re.findall(r"(?m)^│ ([a-z-]+) ", run("--help")[1].partition("─ Commands ")[2])
    assert commands[:3] == ["demo", "train", "report"]
    assert commands[-3:] == ["info", "bench", "selftest"]
    assert len(commands) == 14


def test_version_and_short_help() -> None:
    assert run("--version") == (0, f"pulsora {pl.__version__}\n")
    code, output = run("-h")
    assert code == 0
    assert "plot-device" in output
    assert run("demo", "-h")[1].count("default") == 3
    assert "all that there are" not in run("demo", "-h")[1]  # its default is 1


def metrics(epoch: int, *, adapter: bool) -> dict[str, float]:
    made = {"epoch": epoch, "loss": 12.345678, "accuracy": 0.98765, "seconds": 1234.5678}
    if adapter:
        made |= {"cells": 5120.0, "pulses": 1e9, "pulses_per_cell": 123456.7}
        made |= {"transfers": 99999.0, "gain": 0.98765, "undelivered": 0.01234}
    return made


def test_tables_are_whole_in_80_columns() -> None:
    console = Console(width=80, file=io.StringIO())
    rows = {"1": metrics(1, adapter=False), "1000": metrics(1000, adapter=True)}
    console.print(metrics_table("epoch", rows, right=True))
    last = {"floating point": rows["1"], "full-rank pulses": rows["1000"]}
    console.print(metrics_table("first layer", last, "loss", "seconds"))
    shown = console.file.getvalue()
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    for text in ("1000", "12.346", "98.8%", "1234.57", "123457", "0.988", "1.2%", "full-rank puls"):
        assert text in shown
    assert shown.count(" - ") == 3 * 2  # floating point has no pulses and no transfers
    assert "12.346" not in shown.partition("first layer")[2]


def test_what_is_shown_while_training_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulsora.cli.progress.console", Console(width=80, file=io.StringIO()))
    with progress_bar() as progress:
        status = "loss 0.123, accuracy 100.0%"
        progress.add_task("full-rank pulses", total=1000, completed=999, status=status)
        console = Console(width=80, file=io.StringIO())
        console.print(progress.get_renderable())
    (line,) = console.file.getvalue().splitlines()
    assert "full-rank pulses" in line
    assert "999/1000" in line
    assert line.rstrip().endswith(status)
