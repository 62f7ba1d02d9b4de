"""The command line: what it writes, and one clear line for everything a user gets wrong."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from typer.testing import CliRunner

import pulsora as pl
from conftest import ROOT
from pulsora.bench.cases import Case
from pulsora.cli import app
from pulsora.training.experiment import Experiment
from pulsora.training.run import Run

if TYPE_CHECKING:
    from pathlib import Path

# The program, which hears Ctrl-C in a background job of a shell too, whose children ignore it.
HEARING = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("pulsora", run_name="__main__")
"""

TINY = ["train", "--hidden", "16", "--epochs", "1", "--threads", "1"]
ADAPTER = ["--rank", "4", "--transfer-every", "10"]
SMALL = [*TINY, *ADAPTER]


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.output


@pytest.mark.parametrize("algorithm", ["digital", "pulsed", "lrtt"])
def test_train_writes_metrics_checkpoint_and_picture(algorithm: str, tmp_path: Path) -> None:
    settings = ADAPTER if algorithm == "lrtt" else []
    code, output = run(*TINY, *settings, "--algorithm", algorithm, "--out", tmp_path)
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--data", "no/folder"], "--data = 'no/folder' is neither 'digits' nor a folder"),
        (["train", "--device-preset", "EcRom"], "no device preset or model 'EcRom'"),
        (["train", "--algorithm", "magic"], "--algorithm must be one of digital, pulsed, lrtt"),
        (["train", "--hidden", "64,x"], "--hidden must be whole numbers, such as 256,128 (got '64"),
        (["train", "--hidden", "0"], "--hidden must be at least 1 (got 0)"),
        (["train", "--epochs", "0"], "--epochs must be at least 1 (got 0)"),
        (["train", "--lr", "-1"], "--lr must be a positive number (got -1.0)"),
        (["train", "--transfer-every", "-1"], "--transfer-every must be at least 0 (got -1)"),
        (["train", "--threads", "0"], "--threads is 0; it must be >= 1"),
        (["train", "--rank", "65"], "rank is 65"),
        (["train", "--batch", "100000"], "--batch = 100000"),
        (["train", "--resume"], "there is no runs/train/checkpoint.pt"),
        (["train", "--resume", "--overwrite"], "continued or begun anew, choose one"),
        (["train", "--config", "no.toml"], "--config = 'no.toml' cannot be read (No such file"),
        (["compile", "no.h"], "error: source = 'no.h' cannot be read (No such file"),
        (["fit", "no.csv"], "error: path = 'no.csv' cannot be read (No such file"),
        (["forecast", "no.json"], "error: metrics = 'no.json' cannot be read (No such file"),
        (["explain", "8", "8", "--algorithm", "digital"], "has no tiles"),
        (["explain", "8", "8", "--device-preset", "EcRom"], "no device preset or model 'EcRom'"),
        (["explain", "0", "8"], "d_size is 0"),
        (["plot-device", "EcRom"], "did you mean 'EcRam'"),
        (
            ["plot-device", "ReRam"],
            "did you mean 'ReRamES' or 'ReRamSB' or 'ReRamArrayOM' or 'ReRam",
        ),
        (["bench", "--no-lrtt", "--rank", "4"], "--rank is for adapters, which --no-lrtt leaves"),
        (["plot-device", "EcRom"], "presets: Idealized, "),
        (["plot-device", "EcRom"], "models: ConstantStep, "),
        (["plot-device", "EcRam", "--pulses", "0"], "--pulses must be at least 1 (got 0)"),
        (["plot-device", "EcRam", "--cells", "0"], "--cells must be at least 1 (got 0)"),
        (["plot-device", "EcRam", "--out", "absent/a.png"], "there is no folder 'absent'"),
        (["demo", "--epochs", "0"], "--epochs must be at least 1 (got 0)"),
    ],
)
def test_errors_are_one_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # nothing is written, and if it is, not here
    code, output = run(*arguments)
    assert code == 2
    assert list(tmp_path.iterdir()) == []
    line = output.strip().splitlines()[-1]
    assert line.startswith("error: ")
    assert message in line
    assert "Traceback" not in output


def test_a_checkpoint_of_other_settings_is_refused(tmp_path: Path) -> None:
    assert run(*SMALL, "--out", tmp_path)[0] == 0
    code, output = run(*SMALL, "--lr", "0.5", "--resume", "--out", tmp_path)
    assert code == 2
    assert "another experiment" in output


def test_a_run_is_replaced_only_on_request(tmp_path: Path) -> None:
    assert run(*SMALL, "--out", tmp_path)[0] == 0
    before = (tmp_path / "checkpoint.pt").read_bytes()
    for settings in ([], ["--lr", "0.5"]):
        code, output = run(*SMALL, *settings, "--out", tmp_path)
        assert code == 2
        assert str(tmp_path) in output
        assert "--resume" in output
        assert "--overwrite" in output
        assert (tmp_path / "checkpoint.pt").read_bytes() == before
    code, output = run(*SMALL, "--lr", "0.5", "--overwrite", "--out", tmp_path)
    assert code == 0, output
    report = json.loads((tmp_path / "metrics.json").read_text())
    assert report["experiment"]["lr"] == 0.5
    assert len(report["epochs"]) == 1
    with pytest.raises(
        ValueError, match=r"holds the checkpoint of a run.*resume=True.*overwrite=True"
    ):
        Run(Experiment(), tmp_path)


def test_a_finished_run_says_so(tmp_path: Path) -> None:
    assert run(*SMALL, "--epochs", "2", "--out", tmp_path)[0] == 0
    code, output = run(*SMALL, "--epochs", "2", "--resume", "--out", tmp_path)
    assert code == 0, output
    assert "already has 2 epochs; raise --epochs to go on" in " ".join(output.split())
    code, output = run(*SMALL, "--epochs", "1", "--resume", "--out", tmp_path)
    assert code == 2
    assert "--epochs must be at least 2 (got 1)" in output
    assert "already has 2 epochs" in output


def test_ctrl_c_says_where_a_run_stopped_and_how_it_goes_on(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HEARING, *TINY, "--epochs", "100000", "--out", "a"]
    process = subprocess.Popen(  # noqa: S603
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    metrics = tmp_path / "a/metrics.json"
    try:
        for _ in range(600):
            if metrics.is_file() or process.poll() is not None:
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    # Between its two files a checkpoint may be an epoch ahead of the metrics.
    saved = int(told.partition("go on after epoch ")[2].split()[0])
    assert saved - len(json.loads(metrics.read_text())["epochs"]) in {0, 1}
    further = f"go on after epoch {saved} by --resume (epoch {saved} is saved in a/checkpoint.pt)"
    assert f"stopped in epoch {saved + 1}; {further}" in told
    assert len(told.splitlines()) == 1
    code, output = run(*TINY, "--epochs", saved + 1, "--resume", "--out", tmp_path / "a")
    assert code == 0, output


@pytest.mark.parametrize(
    ("where", "command", "told"),
    [
        ("pulsora.cli.demo.train_with_bar", ("demo",), "epoch 1 of 'floating point'; nothing was"),
        ("pulsora.cli.main.train_with_bar", TINY, "stopped in epoch 1; nothing was saved"),
        ("pulsora.plot.plot_training", TINY, "stopped after the last epoch; epoch 1 is saved in"),
    ],
)
def test_ctrl_c_says_what_was_saved(
    where: str,
    command: tuple[object, ...],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(where, interrupted)
    code, output = run(*command, "--epochs", 1, "--out", tmp_path)
    assert code == 130
    last = output.splitlines()[-1]
    assert told in last
    assert (tmp_path / "checkpoint.pt").is_file() == ("is saved" in last)


def test_ctrl_c_before_a_checkpoint_is_written_does_not_claim_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pulsora.training.run.replace_file", interrupted)
    code, output = run(*TINY, "--out", tmp_path)
    assert code == 130
    assert "stopped in epoch 1; nothing was saved" in output.splitlines()[-1]
    assert not (tmp_path / "checkpoint.pt").exists()


def test_ctrl_c_ends_any_command_with_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pulsora.cli.main.Tile", interrupted)
    assert run("explain", 8, 8) == (130, "stopped\n")


def test_what_cannot_be_written_is_found_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def worked(*_: object, **__: object) -> None:
        raise AssertionError("it went to work")

    monkeypatch.setattr(Run, "train", worked)
    monkeypatch.setattr("pulsora.plot.plot_device", worked)
    file = tmp_path / "file"
    file.touch()
    below = file / "below"
    for arguments in (["train"], ["demo"]):
        code, output = run(*arguments, "--out", below)
        assert code == 2, output
        assert f"out = '{below}': nothing can be written there" in output
    code, output = run("plot-device", "EcRam", "--out", tmp_path)
    assert code == 2
    assert "is a folder; name a file in it" in output


def test_the_defaults_learn(tmp_path: Path) -> None:
    code, output = run("train", "--epochs", 3, "--out", tmp_path)
    assert code == 0, output
    epochs = json.loads((tmp_path / "metrics.json").read_text())["epochs"]
    assert epochs[0]["accuracy"] > 0.5
    assert epochs[2]["accuracy"] > 0.8


def test_transfer_every_counts_mini_batches_everywhere() -> None:
    for config in (
        Experiment(transfer_every=3).tile_config(),
        Case("step", "EcRam", 8, 4, rank=2, transfer_every=3).config(),
    ):
        assert config is not None
        tile = pl.Tile(8, 8, config, threads=1)
        rng = np.random.default_rng(0)
        for batch in (1, 5, 2, 7, 3, 4):  # of any size
            x, d = rng.standard_normal((2, batch, 8)).astype(np.float32)
            tile.update(x, d, 0.01)
        assert tile.statistics()["transfers"] == 2
    for command in ("train", "explain", "bench"):
        _, output = run(command, "--help")
        assert "Mini-batches per transfer" in " ".join(output.replace("│", " ").split())


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


@pytest.mark.parametrize("algorithm", ["pulsed", "lrtt"])
@pytest.mark.parametrize("size", [(32, 64), (256, 784)])
def test_the_defaults_explain_themselves_without_a_warning(
    algorithm: str, size: tuple[int, int]
) -> None:
    code, output = run("explain", *size, "--algorithm", algorithm)
    assert code == 0, output
    assert "undelivered" in output
    assert "warning" not in output
    # and where it matters, it is said how much:
    _, output = run("explain", *size, "--algorithm", algorithm, "--lr", 100)
    assert re.search(r"\d\d % of this update is lost", " ".join(output.split()))


def test_demo_shows_all_three(tmp_path: Path) -> None:
    code, output = run("demo", "--epochs", 1, "--out", tmp_path, "--threads", 1)
    assert code == 0, output
    for name in ("floating point", "full-rank pulses", "LRTT"):
        assert name in output
    assert (tmp_path / "demo.png").is_file()
    assert len(json.loads((tmp_path / "demo.json").read_text())) == 3


@pytest.mark.slow
def test_the_readme_says_what_the_demo_shows(tmp_path: Path) -> None:
    """To the accuracy to which the last bits of torch's products may change a run."""
    code, output = run("demo", "--out", tmp_path)
    assert code == 0, output
    last = [epochs[-1] for epochs in json.loads((tmp_path / "demo.json").read_text()).values()]
    caption = (ROOT / "README.md").read_text().partition("*`make demo`")[2].partition("\n\n")[0]
    said = [float(number) for number in re.findall(r"([0-9.]+) %", caption)]
    np.testing.assert_allclose(said, [100.0 * metrics["accuracy"] for metrics in last], atol=1.0)
    pulses = re.findall(r"(\d+) pulses per cell, full rank (\d+)", " ".join(caption.split()))
    expected = [last[2]["pulses_per_cell"], last[1]["pulses_per_cell"]]
    np.testing.assert_allclose([float(number) for number in pulses[0]], expected, rtol=0.1)


def test_the_package_is_a_program() -> None:
    command = [sys.executable, "-m", "pulsora", "info"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    assert pl.__version__ in done.stdout
