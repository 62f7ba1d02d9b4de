"""The command line: what it writes, and one clear line for everything a user gets wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

import pulsora as pl
from pulsora.cli import app

if TYPE_CHECKING:
    from pathlib import Path

SMALL = ["train", "--hidden", "16", "--epochs", "1", "--rank", "4", "--threads", "1"]


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.output


@pytest.mark.parametrize("algorithm", ["digital", "pulsed", "lrtt"])
def test_train_writes_metrics_checkpoint_and_picture(algorithm: str, tmp_path: Path) -> None:
    code, output = run(*SMALL, "--algorithm", algorithm, "--out", tmp_path)
    assert code == 0, output
    report = json.loads((tmp_path / "metrics.json").read_text())
    assert report["experiment"]["algorithm"] == algorithm
    (epoch,) = report["epochs"]
    assert 0.0 < epoch["accuracy"] <= 1.0
    assert ("pulses_per_cell" in epoch) == (algorithm != "digital")
    assert ("gain" in epoch) == (algorithm == "lrtt")
    assert (tmp_path / "checkpoint.pt").is_file()
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")


def test_property_38_resume_equals_an_uninterrupted_run(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert run(*SMALL, "--epochs", "2", "--out", whole)[0] == 0
    assert run(*SMALL, "--out", parts)[0] == 0
    assert run(*SMALL, "--epochs", "2", "--resume", "--out", parts)[0] == 0
    reports = [json.loads((folder / "metrics.json").read_text()) for folder in (whole, parts)]
    for report in reports:
        for epoch in report["epochs"]:
            del epoch["seconds"]
    assert reports[0]["epochs"] == reports[1]["epochs"]


def test_settings_come_from_a_file_and_options_override_them(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('algorithm = "pulsed"\nhidden = [8]\nlr = 0.2\nepochs = 7\n')
    code, output = run("train", "--config", file, "--epochs", 1, "--out", tmp_path)
    assert code == 0, output
    experiment = json.loads((tmp_path / "metrics.json").read_text())["experiment"]
    assert (experiment["algorithm"], experiment["hidden"]) == ("pulsed", [8])
    assert (experiment["lr"], experiment["epochs"]) == (0.2, 1)


def test_a_file_may_hold_a_complete_tile(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    tile = pl.LRTTConfig(rank=3, transfer_every=0).to_dict()
    file.write_text(json.dumps({"tile": tile, "hidden": [8], "epochs": 1}))
    code, output = run("train", "--config", file, "--out", tmp_path)
    assert code == 0, output
    (epoch,) = json.loads((tmp_path / "metrics.json").read_text())["epochs"]
    assert epoch["cells"] == 64 * 8 + 3 * (64 + 8)
    assert "gain" not in epoch


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--data", "no/folder"], "neither 'digits' nor a folder"),
        (["train", "--device-preset", "EcRom"], "no device preset 'EcRom'"),
        (["train", "--algorithm", "magic"], "algorithm = 'magic'"),
        (["train", "--hidden", "64,x"], "hidden = '64,x'"),
        (["train", "--hidden", "0"], "hidden = [0]"),
        (["train", "--lr", "-1"], "lr = -1"),
        (["train", "--rank", "65"], "rank is 65"),
        (["train", "--batch", "100000"], "batch = 100000"),
        (["train", "--resume", "--out", "no/folder"], "there is no no/folder/checkpoint.pt"),
        (["train", "--config", "no.toml"], "No such file"),
        (["explain", "8", "8", "--algorithm", "digital"], "has no tiles"),
        (["explain", "0", "8"], "d_size is 0"),
        (["plot-device", "EcRom"], "no device preset 'EcRom'"),
        (["plot-device", "EcRam", "--pulses", "0"], "pulses = 0"),
    ],
)
def test_errors_are_one_line(arguments: list[str], message: str) -> None:
    code, output = run(*arguments)
    assert code == 2
    line = output.strip().splitlines()[-1]
    assert line.startswith("error: ")
    assert message in line
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("text", "message"),
    [("[1, 2]", "no table of settings"), ("{", "settings.json: "), ('{"rnak": 2}', "['rnak']")],
)
def test_bad_settings_files_are_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(text)
    code, output = run("train", "--config", file)
    assert code == 2
    assert message in output


def test_a_checkpoint_of_other_settings_is_refused(tmp_path: Path) -> None:
    assert run(*SMALL, "--out", tmp_path)[0] == 0
    code, output = run(*SMALL, "--lr", "0.5", "--resume", "--out", tmp_path)
    assert code == 2
    assert "another experiment" in output


def test_plot_device_explain_and_info(tmp_path: Path) -> None:
    picture = tmp_path / "device.png"
    code, output = run("plot-device", "EcRam", "--out", picture, "--pulses", 100)
    assert code == 0, output
    assert picture.read_bytes().startswith(b"\x89PNG")
    code, output = run("explain", 32, 64, "--rank", 4)
    assert code == 0, output
    assert "alpha" in output
    code, output = run("info")
    assert code == 0, output
    assert pl.__version__ in output
    assert "SixT1C" in output


def test_demo_shows_all_three(tmp_path: Path) -> None:
    code, output = run("demo", "--epochs", 1, "--out", tmp_path, "--threads", 1)
    assert code == 0, output
    for name in ("floating point", "full-rank pulses", "LRTT"):
        assert name in output
    assert (tmp_path / "demo.png").is_file()
    assert len(json.loads((tmp_path / "demo.json").read_text())) == 3


def test_the_package_is_a_program() -> None:
    command = [sys.executable, "-m", "pulsora", "info"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    assert pl.__version__ in done.stdout
