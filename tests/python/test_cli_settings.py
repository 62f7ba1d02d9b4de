"""Settings of the command line: files, options that no run would use, and devices in files."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import torch

import pulsora as pl
from pulsora.training.experiment import Experiment
from pulsora.training.run import Run
from test_cli import TINY, run

if TYPE_CHECKING:
    from pathlib import Path


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
    ("text", "message"),
    [
        ("[1, 2]", "no table of settings"),
        ("{", "settings.json: "),
        ('{"rnak": 2}', "['rnak']"),
        ('{"epochs": "x"}', "epochs must be a whole number (got 'x')"),
        ('{"epochs": 2.5}', "epochs must be a whole number (got 2.5)"),
        ('{"batch": true}', "batch must be a whole number (got True)"),
        ('{"rank": "8"}', "rank must be a whole number (got '8')"),
        ('{"lr": "0.1"}', "lr must be a positive number (got '0.1')"),
        ('{"lr": Infinity}', "lr must be a positive number (got inf)"),
        ('{"data": 3}', "data must be text (got 3)"),
        ('{"device_preset": 3}', "device_preset must be text (got 3)"),
        ('{"algorithm": ["lrtt"]}', "algorithm must be text (got ['lrtt'])"),
        ('{"hidden": "256;128"}', "hidden must be whole numbers, such as 256,128 (got '256;128')"),
        ('{"hidden": [8, "x"]}', "hidden must be a whole number (got 'x')"),
        ('{"hidden": []}', "hidden must be sizes of layers"),
        ('{"hidden": 8}', "hidden must be sizes of layers, such as [256, 128] (got 8)"),
        ('{"tile": "lrtt"}', "tile must be a table of settings (got 'lrtt')"),
        ('{"tile": {"kind": "single"}, "rank": 4}', "nothing for rank to say"),
    ],
)
def test_bad_settings_files_are_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(text)
    code, output = run("train", "--config", file, "--out", tmp_path / "out")
    assert code == 2
    assert message in output
    assert "error: --" not in output  # no option was given
    assert not (tmp_path / "out").exists()


def test_a_settings_file_of_another_format_says_which_there_are(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("algorithm: pulsed\n")
    code, output = run("train", "--config", file, "--out", tmp_path / "out")
    assert code == 2
    assert "TOML is read from files that end in .toml, and JSON from all others" in output


def test_lists_of_a_settings_file_may_be_text_as_on_the_command_line() -> None:
    experiment = Experiment.from_dict({"hidden": "256,128"})
    assert experiment == Experiment(hidden=(256, 128))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--device-preset", "EcRam"),
        ("--algorithm", "pulsed"),
        ("--rank", "8"),
        ("--transfer-every", "100"),
    ],
)
@pytest.mark.parametrize("command", [("train",), ("explain", "8", "8")])
def test_options_that_a_whole_tile_would_silence_are_refused(
    command: tuple[str, ...], option: str, value: str, tmp_path: Path
) -> None:
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"tile": pl.SingleConfig().to_dict()}))
    out = () if command[0] == "explain" else ("--out", tmp_path / "out")
    code, output = run(*command, "--config", file, *out, option, value)
    assert code == 2
    name = option[2:].replace("-", "_")
    assert f"leave out either tile or {name}" in " ".join(output.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("algorithm", "option", "value", "users"),
    [
        ("digital", "--device-preset", "ReRamSB", "pulsed and lrtt"),
        ("digital", "--rank", "4", "lrtt"),
        ("digital", "--transfer-every", "10", "lrtt"),
        ("pulsed", "--rank", "4", "lrtt"),
        ("pulsed", "--transfer-every", "10", "lrtt"),
    ],
)
@pytest.mark.parametrize("command", [("train",), ("explain", "8", "8")])
def test_options_that_an_algorithm_does_not_use_are_refused(
    command: tuple[str, ...], algorithm: str, option: str, value: str, users: str
) -> None:
    code, output = run(*command, "--algorithm", algorithm, option, value)
    assert code == 2
    assert f"error: {option} is for {users}, and has no effect" in output
    assert f"leave {option[2:].replace('-', '_')} out" in " ".join(output.split())
    assert Experiment(algorithm="digital").device_preset is None


def test_an_older_checkpoint_that_names_unused_settings_goes_on(tmp_path: Path) -> None:
    settings = {"algorithm": "digital", "hidden": (4,), "epochs": 1}
    Run(Experiment(**settings), tmp_path, threads=1).train()
    path = tmp_path / "checkpoint.pt"
    saved = torch.load(path, weights_only=True)
    unused = {"device_preset": "EcRam", "rank": "auto", "transfer_every": 100}
    saved["experiment"] = json.dumps(json.loads(saved["experiment"]) | unused)
    torch.save(saved, path)
    again = Run(Experiment(**(settings | {"epochs": 2})), tmp_path, resume=True, threads=1)
    assert len(again.train()) == 2


def test_a_file_of_a_device_is_taken_wherever_a_device_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    device = pl.devices.LinearStep(dw_min=0.003, gamma_up=0.2)
    pl.devices.save(device, "mine.toml")
    code, output = run("plot-device", "mine.toml", "--pulses", 50, "--cells", 4)
    assert code == 0, output
    assert (tmp_path / "mine.png").is_file()
    code, output = run("explain", 8, 8, "--algorithm", "pulsed", "--device-preset", "mine.toml")
    assert code == 0, output
    assert "LinearStep" in output
    (tmp_path / "settings.toml").write_text('device_preset = "mine.toml"\nalgorithm = "pulsed"\n')
    code, output = run(*TINY, "--config", "settings.toml", "--out", "a")
    assert code == 0, output
    written = json.loads((tmp_path / "a/metrics.json").read_text())["experiment"]
    assert pl.devices.Device.from_dict(written["device_preset"]) == device
    bench = ["bench", "--models", "mine.toml", "--sizes", 8, "--batch", 2, "--seconds", 0]
    code, output = run(*bench, "--no-lrtt", "--operations", "forward")
    assert code == 0, output
    assert "mine.toml" in output
    assert pl.presets.single("mine.toml").device == pl.presets.device(device) == device
    assert pl.presets.lrtt(tmp_path / "mine.toml", 2).visible == device

    # A run keeps the device itself: a changed file is another experiment.
    again = [*TINY, "--config", "settings.toml", "--out", "a", "--resume", "--epochs", 2]
    pl.devices.save(device.replace(dw_min=0.004), "mine.toml")
    code, output = run(*again)
    assert code == 2
    assert "another experiment (device_preset = " in output
    pl.devices.save(device, "mine.toml")
    assert run(*again)[0] == 0


def test_a_file_that_is_no_device_is_refused_by_name(tmp_path: Path) -> None:
    for name, text, message in (
        ("absent.toml", None, "cannot be read (No such file"),
        ("broken.json", "{", "broken.json: Expecting"),
        ("other.toml", 'model = "LinearStop"\n', "LinearStop"),
        ("device.txt", "", "a file of a device ends in .toml or .json"),
    ):
        if text is not None:
            (tmp_path / name).write_text(text)
        code, output = run("plot-device", tmp_path / name, "--out", tmp_path / "a.png")
        assert code == 2
        assert message in " ".join(output.split())
        assert output.count("ReRamSB") <= 1  # lists are printed once


def test_an_experiment_goes_through_plain_values() -> None:
    for experiment in (Experiment(rank=3), Experiment(tile=pl.SingleConfig().to_dict())):
        assert Experiment.from_dict(dataclasses.asdict(experiment)) == experiment
    assert Experiment().name == "lrtt"
    assert Experiment(tile=pl.SingleConfig().to_dict()).name == "single"


def test_device_models_are_accepted_wherever_presets_are(tmp_path: Path) -> None:
    for algorithm in ("pulsed", "lrtt"):
        options = ["--device-preset", "softbounds", "--algorithm", algorithm]
        out = tmp_path / algorithm
        code, output = run(*TINY, *options, "--out", out)
        assert code == 0, output
        code, output = run("explain", 8, 8, *options)
        assert code == 0, output
        assert "=SoftBounds" in output
    assert pl.presets.single("SoftBounds").device == pl.devices.SoftBounds()
    made = pl.presets.lrtt("SoftBounds", 4)
    assert (made.rank, made.visible, made.fast) == (4, pl.devices.SoftBounds(), pl.devices.SixT1C())
    assert made.forward == pl.presets.io()


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "--lr", "nan"],
        ["train", "--data", "no/folder"],
        ["train", "--resume"],
        ["train", "--threads", "0"],
        ["demo", "--epochs", "0"],
        ["explain", "8", "8", "--rank", "0"],
        ["plot-device", "EcRom"],
        ["--help"],
    ],
)
def test_mistakes_are_found_before_torch_is_imported(arguments: list[str], tmp_path: Path) -> None:
    program = (
        "import atexit, sys; from pulsora.cli import app; "
        "slow = {'torch', 'sklearn', 'matplotlib', 'scipy'}; "
        "atexit.register(lambda: print('imported:', sorted(slow & set(sys.modules)))); "
        f"app({arguments!r})"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == (0 if arguments == ["--help"] else 2), done.stderr
    assert done.stdout.splitlines()[-1] == "imported: []"
