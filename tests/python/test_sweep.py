"""`pulsora sweep`: its trials, however it is stopped, and settings that it refuses."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from conftest import ROOT
from pulsora._internal.files import read_settings
from pulsora.cli import app
from pulsora.sweep.settings import Sweep

optuna = pytest.importorskip("optuna", reason="optuna is not installed")
pytest.importorskip("torch")

from pulsora.sweep.run import run_sweep  # noqa: E402 - needs optuna and torch
from pulsora.sweep.study import open_study  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

TINY: dict[str, Any] = {"data": "digits", "hidden": [2], "epochs": 2, "batch": 256}
SEARCH: dict[str, Any] = {
    "lr": {"low": 0.01, "high": 4.0, "log": True},
    "rank": {"low": 1, "high": 2},
    "tile.update.desired_bl": [3, 31],
}
FORTY: dict[str, Any] = {
    "trials": 40,
    "parallel": 2,
    "settings": TINY,
    "search": SEARCH,
    "pruning": {"startup_trials": 4, "warmup_epochs": 0},
}


def trials_of(table: dict[str, Any], folder: Path) -> list[tuple[Any, ...]]:
    study = open_study(Sweep.from_dict(table), folder)
    return [
        (one.number, one.state.name, one.value, one.params, one.intermediate_values)
        for one in study.trials
    ]


def kill_sweep(command: list[str], marker: Path) -> None:
    """Runs a sweep until a file is there, and kills it without a warning."""
    process = subprocess.Popen(  # noqa: S603
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        end = time.monotonic() + 240
        while not marker.exists() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        assert process.poll() is None, process.communicate()[0]
        assert marker.exists()
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


@pytest.mark.slow
def test_a_sweep_that_is_killed_twice_has_the_trials_of_one_that_was_not(tmp_path: Path) -> None:
    whole, parts, file = tmp_path / "whole", tmp_path / "parts", tmp_path / "settings.json"
    file.write_text(json.dumps(FORTY))
    command = [sys.executable, "-m", "pulsora", "sweep", str(file), "--out", str(parts)]
    kill_sweep(command, parts / "trial-0009" / "records.jsonl")
    kill_sweep([*command, "--resume", "--processes", "2"], parts / "trial-0023" / "checkpoint.pt")
    before = [one for one in trials_of(FORTY, parts) if one[1] in {"COMPLETE", "PRUNED"}]
    assert 20 <= len(before) < 40
    run_sweep(FORTY, parts, resume=True)
    run_sweep(FORTY, whole)
    expected = trials_of(FORTY, whole)
    assert trials_of(FORTY, parts) == expected
    assert len(expected) == 40
    assert {state for _, state, *_ in expected} == {"COMPLETE", "PRUNED"}
    assert (parts / "trials.csv").read_text() == (whole / "trials.csv").read_text()


def test_two_processes_have_the_trials_of_one(tmp_path: Path) -> None:
    table = {"trials": 4, "sampler": "random", "settings": TINY, "search": SEARCH}
    run_sweep(table, tmp_path / "one")
    run_sweep(table, tmp_path / "two", processes=2)
    expected = trials_of(table, tmp_path / "one")
    assert trials_of(table, tmp_path / "two") == expected
    assert len({str(params) for *_, params, _ in expected}) == 4


def test_a_trial_is_a_run_of_train_with_these_settings(tmp_path: Path) -> None:
    table = {"trials": 2, "sampler": "random", "settings": TINY, "search": SEARCH}
    study = run_sweep(table, tmp_path)
    for trial in study.trials:
        saved = json.loads((tmp_path / f"trial-{trial.number:04d}" / "metrics.json").read_text())
        assert saved["experiment"]["lr"] == trial.params["lr"]
        assert saved["experiment"]["tile"]["rank"] == trial.params["rank"]
        update = saved["experiment"]["tile"]["update"]
        assert update["desired_bl"] == trial.params["tile.update.desired_bl"]
        assert saved["epochs"][-1]["accuracy"] == trial.value
    rows = list(csv.DictReader((tmp_path / "trials.csv").read_text().splitlines()))
    assert [float(row["accuracy"]) for row in rows] == [trial.value for trial in study.trials]


def test_a_grid_has_each_combination_once(tmp_path: Path) -> None:
    search = {"algorithm": ["digital", "lrtt"], "rank": [1, 2], "hidden": [[2], [2, 2]]}
    table = {
        "sampler": "grid",
        "settings": {"epochs": 1, "batch": 512, "device_preset": "EcRam"},
        "search": search,
    }
    study = run_sweep(table, tmp_path)
    seen = [
        (one.params["algorithm"], one.params["rank"], one.params["hidden"]) for one in study.trials
    ]
    assert len(set(seen)) == len(seen) == 8
    assert {one.state.name for one in study.trials} == {"COMPLETE"}
    sweep = Sweep.from_dict(table)
    made = sweep.experiment({"algorithm": "digital", "rank": 1, "hidden": [2, 2]})
    assert (made.rank, made.device_preset, made.hidden) == (None, None, (2, 2))


def test_the_grid_of_the_example() -> None:
    sweep = Sweep.from_dict(read_settings("settings", ROOT / "examples" / "sweep.toml"))
    assert sweep.total == 32
    assert sweep.maximizes


def test_a_preset_names_all_of_the_tiles() -> None:
    sweep = Sweep.from_dict({"search": {"preset": ["EcRamAGAD", "EcRamMixedPrecision"]}})
    kinds = [sweep.experiment({"preset": name}).name for name in ("EcRamAGAD", "EcRamPair")]
    assert kinds == ["transfer", "vector"]


def test_a_trial_that_fails_has_a_reason(tmp_path: Path) -> None:
    settings = {name: value for name, value in TINY.items() if name != "batch"}
    table = {"sampler": "grid", "settings": settings, "search": {"batch": [256, 100_000]}}
    study = run_sweep(table, tmp_path)
    assert [one.state.name for one in study.trials] == ["COMPLETE", "FAIL"]
    assert "batch" in study.trials[1].user_attrs["reason"]


def test_a_finished_sweep_goes_on_with_more_trials(tmp_path: Path) -> None:
    table = {"trials": 2, "sampler": "random", "settings": TINY, "search": SEARCH}
    run_sweep(table, tmp_path)
    first = trials_of(table, tmp_path)
    with pytest.raises(ValueError, match=r"holds a sweep: continue it \(--resume"):
        run_sweep(table, tmp_path)
    with pytest.raises(ValueError, match="has other settings \\(seed\\)"):
        run_sweep({**table, "seed": 5}, tmp_path, resume=True)
    with pytest.raises(ValueError, match="trials must be at least 2"):
        run_sweep({**table, "trials": 1}, tmp_path, resume=True)
    run_sweep({**table, "trials": 3}, tmp_path, resume=True)
    assert trials_of(table, tmp_path)[:2] == first
    assert len(trials_of(table, tmp_path)) == 3


LR = {"lr": [0.1, 0.2]}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "search is missing"),
        ({"search": LR, "trails": 3}, "unknown setting ['trails'] of a sweep"),
        ({"search": {"lrr": [1]}}, "unknown setting ['lrr']; there are"),
        ({"search": {"lr": []}}, "search.lr must be a list"),
        ({"search": {"lr": {"low": 1, "high": 0}}}, "search.lr must be a list"),
        ({"search": {"lr": {"low": 0, "high": 1, "log": True}}}, "of positive ones"),
        ({"search": {"lr": {"low": -1.0, "high": 1.0}}}, "lr must be a positive number (got -1.0)"),
        ({"search": {"lr": [0.1, 0.1]}}, "search.lr lists a value twice"),
        ({"search": LR, "settings": {"lr": 1.0}}, "lr: in search and in settings"),
        ({"search": LR, "settings": 3}, "settings must be a table"),
        ({"search": {"tile.dw": [1]}}, "tile.dw: the tiles have no such parameter; there are"),
        ({"search": {"tile.update.bl": [1]}}, "tile.update.bl: the tiles have no such"),
        ({"search": {"tile.update.desired_bl": [-1]}}, "desired_bl"),
        ({"search": {"preset": ["EcRamNone"]}}, "preset = 'EcRamNone'"),
        ({"search": LR, "trials": 0}, "trials must be at least 1"),
        ({"search": LR, "sampler": "best"}, "sampler must be one of tpe, random, grid"),
        ({"search": LR, "sampler": "grid", "trials": 3}, "the grid has 2 combinations"),
        ({"search": {"lr": {"low": 1, "high": 2}}, "sampler": "grid"}, "'grid' needs lists"),
        ({"search": LR, "objective": "gain"}, "direction is missing"),
        ({"search": LR, "direction": "up"}, "direction must be one of maximize, minimize"),
        ({"search": LR, "pruning": {"warmup_epochs": -1}}, "pruning.warmup_epochs must be at"),
        ({"search": LR, "pruning": {"epochs": 1}}, "unknown setting ['epochs'] of pruning"),
    ],
)
def test_bad_settings_are_refused(table: dict[str, Any], message: str, tmp_path: Path) -> None:
    file, out = tmp_path / "settings.json", tmp_path / "out"
    file.write_text(json.dumps(table))
    result = CliRunner().invoke(app, ["sweep", str(file), "--out", str(out)])
    assert result.exit_code == 2
    line = result.output.strip().splitlines()[-1]
    assert line.startswith("error: ")
    assert message in line
    assert not out.exists()


def test_more_processes_than_trials_chosen_together_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="raise parallel, or lower processes"):
        run_sweep({"search": LR}, tmp_path / "out", processes=3)
    with pytest.raises(ValueError, match="there is no sweep"):
        run_sweep({"search": LR}, tmp_path / "out", resume=True)
    assert not (tmp_path / "out").exists()
