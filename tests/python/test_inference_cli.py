"""Programmed arrays on the command line: hardware-aware training, evaluations, curves of drift."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import pulsora as pl
from pulsora.cli import app
from pulsora.drift_curves import drift_curves
from pulsora.training.data import digits
from pulsora.training.experiment import Experiment
from pulsora.training.run import Run
from pulsora.training.saved import (
    digital_model,
    inference_config,
    programmable_model,
    saved_experiment,
    trained_model,
)

if TYPE_CHECKING:
    from pathlib import Path

TINY = ["train", "--hidden", "16", "--epochs", "1", "--threads", "1"]


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, " ".join(result.output.split())


def test_hardware_aware_training_is_a_run_as_any_other(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    hwa = [*TINY, "--hwa", "--modifier", "noise_model", "--noise-model", "Hermes"]
    assert run(*hwa, "--epochs", 2, "--out", whole)[0] == 0
    assert run(*hwa, "--out", parts)[0] == 0
    code, output = run(*hwa, "--epochs", 2, "--resume", "--out", parts)
    assert code == 0, output
    assert "warning" not in output
    reports = [json.loads((folder / "metrics.json").read_text()) for folder in (whole, parts)]
    for report in reports:
        for epoch in report["epochs"]:
            del epoch["seconds"]
            assert "pulses" not in epoch
    assert reports[0] == reports[1]
    assert reports[0]["experiment"]["algorithm"] == "hwa"
    assert reports[0]["experiment"]["modifier"] == "noise_model"
    assert reports[0]["experiment"]["modifier_std"] is None


def test_the_experiment_describes_the_arrays() -> None:
    config = Experiment(algorithm="hwa", modifier_std=0.1, noise_model="hermes").tile_config()
    assert isinstance(config, pl.InferenceConfig)
    assert config.noise_model == pl.noise_models.Hermes()
    assert (config.modifier, config.compensation) == ("add_normal", "global")
    assert config.modifier_std == pytest.approx(0.1)


def test_training_with_modifiers_differs_from_training_without() -> None:
    data = digits()
    losses = [
        Run(Experiment(epochs=1, hidden=(8,), **settings), data=data).train()[0]["loss"]
        for settings in (
            {"algorithm": "hwa", "modifier_std": 0.3},
            {"algorithm": "hwa", "modifier": "none"},
        )
    ]
    assert losses[0] != losses[1]


@pytest.mark.parametrize("algorithm", ["hwa", "digital", "pulsed", "lrtt"])
def test_evaluate_is_evaluate_of_the_saved_weights(algorithm: str, tmp_path: Path) -> None:
    settings = ["--rank", "4", "--transfer-every", "10"] if algorithm == "lrtt" else []
    assert run(*TINY, "--algorithm", algorithm, *settings, "--out", tmp_path)[0] == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    code, output = run(
        "evaluate", tmp_path, "--times", "1 s,1 year", "--programmings", 2, "--chips", 2,
        "--threads", 1,
    )  # fmt: skip
    assert code == 0, output
    assert "1 year" in output
    assert "4 programmings of 2 chips" in output
    assert (tmp_path / "evaluation.png").read_bytes().startswith(b"\x89PNG")
    for name, content in before.items():
        assert (tmp_path / name).read_bytes() == content

    # The same by hand, from the weights of the run.
    found = pl.inference.InferenceReport.load(tmp_path / "evaluation.json")
    experiment = saved_experiment(tmp_path)
    data = digits()
    digital = digital_model(tmp_path, experiment, data)
    config = pl.InferenceConfig(
        noise_model=pl.noise_models.PCMLike(), compensation="global", modifier="none"
    )
    assert inference_config(experiment).replace(modifier="none") == config
    model = pl.convert_to_analog(digital, config, exclude=["2"], seed=experiment.seed).eval()
    batch = torch.from_numpy(data.test_x), torch.from_numpy(data.test_y)
    report = pl.inference.evaluate(model, [batch], times=["1 s", "1 year"], programmings=2, chips=2)
    np.testing.assert_array_equal(found.values, report.values)
    assert found.times == (1.0, 31536000.0)


def test_evaluate_takes_other_memories_and_their_last_time(tmp_path: Path) -> None:
    run_of, out = tmp_path / "run", tmp_path / "out"
    assert run(*TINY, "--algorithm", "digital", "--out", run_of)[0] == 0
    file = tmp_path / "memory.json"
    file.write_text(json.dumps(pl.noise_models.ReRamWan2022(prog_noise_scale=3.0).to_dict()))
    code, output = run(
        "evaluate", run_of, "--noise-model", file, "--compensation", "none", "--out", out,
        "--programmings", 2,
    )  # fmt: skip
    assert code == 0, output
    times = json.loads((out / "evaluation.json").read_text())["times"]
    assert times == [1.0, 3600.0, 86400.0]  # the model ends after two days
    assert not (run_of / "evaluation.json").exists()


def test_arrays_with_input_ranges_are_calibrated() -> None:
    data = digits()
    model = Run(Experiment(algorithm="digital", hidden=(8,)), data=data).model
    made = programmable_model(model, pl.presets.StandardHWA(), data, seed=0)
    ranges = [value.item() for name, value in made.named_parameters() if "input_range" in name]
    assert len(ranges) == 1
    assert 0.0 < ranges[0] <= data.train_x.max() * 1.01


@pytest.mark.parametrize("algorithm", ["pulsed", "lrtt"])
def test_evaluate_reads_the_arrays_that_pulses_have_trained(algorithm: str, tmp_path: Path) -> None:
    fast = ["--retention-fast", "Exponential"] if algorithm == "lrtt" else []
    code, output = run(
        *TINY, "--algorithm", algorithm, "--retention", "PCMLike", *fast,
        "--retention-compensation", "per_output", "--out", tmp_path,
    )  # fmt: skip
    assert code == 0, output
    code, output = run(
        "evaluate", tmp_path, "--arrays", "--times", "1 h,1 year", "--programmings", 2,
        "--threads", 1,
    )  # fmt: skip
    assert code == 0, output
    found = pl.inference.InferenceReport.load(tmp_path / "evaluation.json")
    experiment, data = saved_experiment(tmp_path), digits()
    config: Any = experiment.tile_config()
    assert config.retention == pl.noise_models.PCMLike()
    assert config.retention_compensation == "per_output"
    model = trained_model(tmp_path, experiment, data)
    x, y = torch.from_numpy(data.test_x), torch.from_numpy(data.test_y)
    for row, time in enumerate((3600.0, 31536000.0)):
        for number in range(2):
            pl.drift(model, time, redraw=number)
            hits = (model(x).argmax(-1) == y).double().mean().item()
            assert found.values[row, number] == pytest.approx(hits, abs=1e-12)


def test_a_retention_does_not_change_training(tmp_path: Path) -> None:
    pulsed = [*TINY, "--algorithm", "pulsed"]
    assert run(*pulsed, "--out", tmp_path / "a")[0] == 0
    assert run(*pulsed, "--retention", "Hermes", "--out", tmp_path / "b")[0] == 0
    a, b = (json.loads((tmp_path / name / "metrics.json").read_text()) for name in "ab")
    assert a["epochs"][0]["loss"] == b["epochs"][0]["loss"]
    assert run("evaluate", tmp_path / "b", "--programmings", 1)[0] == 0
    code, output = run("evaluate", tmp_path / "a", "--arrays")
    assert code == 2
    assert "the arrays of the run keep their weights; train it with --retention" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "none"], "there is no none/checkpoint.pt; name a folder of 'pulsora train'"),
        (["evaluate", "x", "--times", "1 eon"], "time is '1 eon'; write seconds, or a number and"),
        (["evaluate", "x", "--times", "-1 s"], "finite and >= 0"),
        (["evaluate", "x", "--programmings", "0"], "--programmings must be at least 1 (got 0)"),
        (["evaluate", "x", "--chips", "0"], "--chips must be at least 1 (got 0)"),
        (["evaluate", "x", "--noise-model", "PCMLik"], "no noise model 'PCMLik'"),
        (["evaluate", "x", "--noise-model", "a.json"], "--noise-model = 'a.json' cannot be read"),
        (["evaluate", "x", "--device", "cuba"], "cuba"),
        (["plot-drift", "PCMLik"], "did you mean 'PCMLike'"),
        (["plot-drift", "no.toml"], "cannot be read (No such file"),
        (["plot-drift", "PCMLike", "--out", "a.txt"], "must end in .png"),
        (["plot-drift", "PCMLike", "--levels", "1,x"], "--levels must be numbers, such as 0.5,1"),
        (["plot-drift", "PCMLike", "--levels", "2"], "give shares of the range, from 0 to 1"),
        (["plot-drift", "PCMLike", "--cells", "1"], "--cells must be at least 2 (got 1)"),
        (["plot-drift", "ReRamWan2022", "--times", "1 year"], "has numbers up to 172800 s"),
        (["train", "--hwa", "--algorithm", "lrtt"], "two algorithms; choose one"),
        (["evaluate", "x", "--arrays", "--chips", "2"], "leave out either --arrays or --chips"),
        (
            ["evaluate", "x", "--arrays", "--compensation", "none"],
            "--compensation: --arrays reads the trained arrays of the run",
        ),
        (["train", "--hwa", "--retention", "PCMLike"], "retention is for pulsed and lrtt"),
        (["train", "--retention", "PCM"], "no noise model 'PCM'"),
        (["train", "--retention-compensation", "global"], "retention is None, so that nothing"),
        (
            ["train", "--retention", "PCMLike", "--retention-compensation", "some"],
            "retention_compensation is 'some'",
        ),
        (["train", "--hwa", "--rank", "4"], "rank is for lrtt, and has no effect"),
        (["train", "--modifier", "none"], "modifier is for hwa, and has no effect"),
        (["train", "--hwa", "--modifier", "nothing"], "modifier"),
        (["train", "--hwa", "--modifier", "discretize"], "modifier_res is 0"),
        (["train", "--hwa", "--modifier-std", "-1"], "--modifier-std is -1; it must be >= 0"),
        (["train", "--hwa", "--noise-model", "PCM"], "no noise model 'PCM'"),
        (
            ["train", "--hwa", "--modifier", "noise_model", "--modifier-std", "0.1"],
            "modifier_std has no effect with modifier = 'noise_model'; leave modifier_std out",
        ),
    ],
)
def test_errors_are_one_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2, result.output
    assert list(tmp_path.iterdir()) == []
    line = result.output.strip().splitlines()[-1]
    assert line.startswith("error: ")
    assert message in line


def test_a_damaged_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.pt").write_bytes(b"none")
    code, output = run("evaluate", tmp_path)
    assert code == 2
    assert "is no checkpoint of a run, or is damaged" in output
    assert "train it anew" in output


def test_plot_drift_shows_a_table_and_writes_a_picture(tmp_path: Path) -> None:
    picture = tmp_path / "drift.png"
    code, output = run("plot-drift", "hermes", "--out", picture, "--times", "1 s,1 day")
    assert code == 0, output
    assert picture.read_bytes().startswith(b"\x89PNG")
    curves = drift_curves(pl.noise_models.Hermes(), times=["1 s", "1 day"])
    assert " ".join(str(curves).split()) in output


def test_curves_of_drift_are_those_of_the_law() -> None:
    """Without errors and spread, G(t) = G ((t + t_0) / t_0)^-nu."""
    exact = pl.noise_models.CustomDrift(
        prog_noise_scale=0.0, read_noise_scale=0.0, nu_mean=[0.05, 0.05], nu_std=[0.0, 0.0]
    )
    times, levels = [1.0, 3600.0, 3.15e7], [0.0, 0.5, 1.0]
    curves = drift_curves(exact, times=times, levels=levels, devices=3)
    factor = ((np.array(times) + exact.t_0) / exact.t_0) ** -0.05
    wanted = 25.0 * np.array(levels)[None, :] * factor[:, None]
    np.testing.assert_allclose(curves.mean, wanted, rtol=1e-5)
    np.testing.assert_allclose(curves.std, 0.0, atol=1e-5)
    np.testing.assert_allclose(curves.targets, [0.0, 12.5, 25.0])


def test_curves_end_where_a_model_has_no_numbers() -> None:
    times = drift_curves(pl.noise_models.ReRamWan2022(), devices=2).times
    np.testing.assert_array_equal(times, [1.0, 60.0, 3600.0, 86400.0, 172800.0])
    figure = pl.plot.plot_drift(pl.noise_models.ReRamCMO(), devices=2, levels=[0.5])
    (axes,) = figure.axes
    assert axes.get_title() == "ReRamCMO"
    with pytest.raises(ValueError, match="times is empty"):
        drift_curves(pl.noise_models.PCMLike(), times=[])
