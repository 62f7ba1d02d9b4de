"""Studies of algorithms in benchmarks/: which runs they make, and that they run."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import pulsora as pl
from pulsora.training.data import Dataset

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    Importer = Callable[[str], ModuleType]

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Importer:
    monkeypatch.syspath_prepend(str(FOLDER))

    def imported(name: str) -> ModuleType:
        sys.modules.pop(name, None)
        return importlib.import_module(name)

    return imported


def test_rates_follow_the_best(module: Importer) -> None:
    grid = module("compounds_study_grid")
    assert grid.first_rates("TTv2") == [0.05, 0.1, 0.2, 0.4]
    assert grid.next_rate({0.1: 90.0, 0.2: 80.0}) == 0.05
    assert grid.next_rate({0.1: 70.0, 0.2: 80.0}) == 0.4
    assert grid.next_rate({0.1: 70.0, 0.2: 90.0, 0.4: 80.0}) == pytest.approx(0.2828, rel=1e-4)


def test_each_algorithm_gets_the_same_number_of_runs(module: Importer, tmp_path: Path) -> None:
    made = module("compounds_study")
    args = argparse.Namespace(
        out=tmp_path, network="small", epochs=1, images=64,
        algorithms=list(made.STUDIED), cells=["EcRam"], rate=None,
    )  # fmt: skip
    study = made.Study(args)
    for pair in study.pairs:
        for _ in range(20):
            for setting in study.wanted(pair):
                score = 50.0 - abs(setting["lr"] - 0.1)
                study.add({"setting": setting, "accuracy": [score], "pulses_per_cell": {}})
        assert study.wanted(pair) == []
    assert len(study.done) == study.runs() == 10 * 8
    again = made.Study(args)  # a stopped study goes on
    assert again.done == study.done
    assert all(again.wanted(pair) == [] for pair in again.pairs)


def test_table_and_figure_have_the_seeds_of_the_best_rate(
    module: Importer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = module("compounds_study")
    args = argparse.Namespace(
        out=tmp_path, network="small", epochs=1, images=64,
        algorithms=["floating point", "LRTT", "AGAD"], cells=["EcRam", "ReRamSB"],
        rate=None,
    )  # fmt: skip
    study = made.Study(args)
    runs = [(0.1, 1, 80.0), (0.2, 1, 84.0), (0.4, 1, 83.0), (0.2, 2, 85.0), (0.4, 2, 90.0)]
    for lr, seed, score in runs:
        setting = study.setting(("LRTT", "EcRam"), lr, seed)
        study.add({"setting": setting, "accuracy": [score], "pulses_per_cell": {"pulses_a": 7.0}})
    setting = study.setting(("AGAD", "ReRamSB"), 0.1)
    study.add({"setting": setting, "accuracy": [70.0], "pulses_per_cell": {"pulses": 3.0}})
    assert study.scores() == {("LRTT", "EcRam"): [84.0, 85.0], ("AGAD", "ReRamSB"): [70.0]}
    study.table()
    lines = capsys.readouterr().out.splitlines()[2:]
    assert lines == [
        "| LRTT | EcRam | 0.2 (3) | 2 | 84.5 (84.0 ... 85.0) | a 7 | 0 |",
        "| AGAD | ReRamSB | 0.1 (edge) (1) | 1 | 70.0 | pulses 3 | 12 |",
    ]
    made.draw(study.scores(), tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").read_text().count('id="axes_') == 2


def test_merged_noise_is_compared_at_one_rate(
    module: Importer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, grid = module("compounds_study"), module("compounds_study_grid")
    names = ["plain pulses", grid.MERGED]
    args = argparse.Namespace(
        out=tmp_path, network="small", epochs=1, images=64,
        algorithms=names, cells=["EcRam", "ReRamES"], rate=0.1414,
    )  # fmt: skip
    study = made.Study(args)
    steps_at_once = (grid.MERGED, "EcRam")  # steps of ReRamES are not linear in the weight
    assert study.pairs == [("plain pulses", "EcRam"), ("plain pulses", "ReRamES"), steps_at_once]
    wanted = study.wanted(steps_at_once)
    assert [(each["lr"], each["seed"]) for each in wanted] == [(0.1414, n) for n in (1, 2, 3)]
    assert study.runs() == 9
    for setting in wanted:
        score = 80.0 + setting["seed"]
        study.add({"setting": setting, "accuracy": [score], "pulses_per_cell": {"pulses": 5.0}})
    assert study.wanted(steps_at_once) == []
    study.table()
    line = f"| {grid.MERGED} | EcRam | 0.1414 (1) | 3 | 82.0 (81.0 ... 83.0) | pulses 5 | 0 |"
    assert line in capsys.readouterr().out.splitlines()
    device = grid.ALGORITHMS[grid.MERGED].config("EcRam").device
    assert device == pl.devices.EcRam(noise_merge="batch")


def test_the_order_of_the_correlation_experiment(module: Importer, tmp_path: Path) -> None:
    errors = module("offset_cells").correlation(seeds=2, steps=3000, folder=tmp_path)
    assert errors["AGAD"] < errors["c-TTv2"] < errors["mixed precision"]
    assert errors["mixed precision"] < min(errors["plain pulses"], errors["TTv2"])
    assert (tmp_path / "correlation.png").stat().st_size > 10_000


def test_the_order_of_the_map_of_weight_errors(
    module: Importer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = module("offset_cells")
    monkeypatch.setattr(made, "STATES", (50, 300))
    monkeypatch.setattr(made, "SPREADS", (0.0, 0.3))
    errors = made.weight_error_map(seeds=2, steps=3000, folder=tmp_path)
    worse = {name: values[:, 1] / values[:, 0] for name, values in errors.items()}
    assert (worse["TTv2"] > 10.0).all()
    assert (worse["AGAD"] < 2.0).all()
    assert (worse["c-TTv2"] < worse["TTv2"]).all()
    for name in ("plain pulses", "TTv2"):
        assert (errors["AGAD"][:, 1] < errors[name][:, 1] / 5.0).all()
    assert (tmp_path / "weight_error_map.png").stat().st_size > 10_000


@pytest.mark.parametrize("network", ["small", "lenet", "transformer"])
def test_each_algorithm_trains_each_network(
    module: Importer, monkeypatch: pytest.MonkeyPatch, network: str
) -> None:
    made = module("compounds_study")
    rng = np.random.default_rng(0)
    images = rng.uniform(0, 1, (8, 28 * 28)).astype(np.float32)
    classes = rng.integers(0, 10, 8)
    few = Dataset("few", images, classes, images, classes, 10, (28, 28))
    monkeypatch.setattr(made.datasets, "load", lambda _folder: few)
    monkeypatch.setattr(made, "BATCH", 4)
    for algorithm, cells in made.pairs(made.ALGORITHMS, ["EcRam"]):
        setting = {
            "network": network, "epochs": 1, "images": 0, "algorithm": algorithm, "cells": cells,
            "lr": 20 * made.ALGORITHMS[algorithm].start, "seed": 1,
        }  # fmt: skip
        result = made.train(setting, Path(), "cpu")
        assert 0.0 <= result["accuracy"][-1] <= 100.0
        pulses = result["pulses_per_cell"]
        assert (sum(pulses.values()) > 0.0) == bool(cells), algorithm
