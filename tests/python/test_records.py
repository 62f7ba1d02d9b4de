"""Records of runs: the numbers in them, their file, and what they leave alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pulsora.records import files
from pulsora.training.data import Dataset
from pulsora.training.experiment import Experiment

torch = pytest.importorskip("torch")

from pulsora import ConfigError, config, nn, presets  # noqa: E402 - needs torch
from pulsora.records.collect import distribution, epoch_record  # noqa: E402
from pulsora.training import run as runs  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS: dict[str, Any] = {"hidden": (4,), "batch": 8, "rank": 2, "transfer_every": 2}


def make(out: Path | None = None, **options: Any) -> runs.Run:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(32, 6)).astype(np.float32)
    y = rng.integers(0, 3, size=32)
    data = Dataset("random", x, y, x, y, 3)
    resume = options.pop("resume", False)
    settings = {"device_preset": "ReRamSB", "epochs": 2, **SETTINGS, **options}
    return runs.Run(Experiment(**settings), out, threads=1, data=data, resume=resume)


def test_the_numbers_of_a_record_are_those_of_the_arrays() -> None:
    run = make()
    run.train()
    tile = next(iter(run.model[0].tiles))
    tile.visible = np.where(np.arange(24).reshape(4, 6) < 5, 9.0, tile.visible)  # at their bounds
    tile.arrays["fast_a"] = np.full((4, 2), -9.0, np.float32)
    record = epoch_record(run.model, 1, {"loss": 1.0})
    assert record["metrics"] == {"loss": 1.0}
    (made,) = record["tiles"]
    assert (made["layer"], made["tile"], made["kind"], made["shape"]) == ("0", 0, "lrtt", [4, 6])
    assert made["statistics"] == tile.statistics()
    assert list(made["arrays"]) == ["visible", "fast_a", "fast_b"]
    assert made["arrays"]["visible"]["saturated"] == tile.statistics()["saturated_cells"] >= 5
    assert made["arrays"]["fast_a"]["saturated"] == tile.saturated_cells("fast_a") == 8
    with pytest.raises(ConfigError, match="fast_c"):
        tile.saturated_cells("fast_c")
    for name, array in made["arrays"].items():
        weights = tile.arrays[name]
        one = array["distribution"]
        assert array["cells"] == weights.size
        assert one["mean"] == pytest.approx(weights.mean(), rel=1e-5, abs=1e-7)
        assert one["std"] == pytest.approx(weights.std(), rel=1e-5)
        assert (one["low"], one["high"]) == (weights.min(), weights.max())
        inside = (weights.astype(float) - one["low"]) / (one["high"] - one["low"])
        bins = np.minimum((inside * len(one["counts"])).astype(int), len(one["counts"]) - 1)
        assert np.abs(np.bincount(bins.ravel(), minlength=48) - one["counts"]).sum() <= 2  # edges
        assert sum(one["counts"]) == weights.size
    (parameter,) = record["parameters"]
    assert parameter["name"] == "2.weight"
    json.loads(files.to_lines([record]))


def test_equal_weights_and_infinite_ones_have_a_distribution() -> None:
    assert distribution(np.zeros(3))["counts"] == [3]
    assert distribution(np.array([np.nan, np.inf]))["low"] is None
    one = distribution(np.array([np.nan, 1.0, 3.0]))
    assert (one["mean"], sum(one["counts"])) == (2.0, 2)


@pytest.mark.parametrize(
    "tiles",
    [
        config.IdealConfig(),
        config.InferenceConfig(),
        presets.EcRamAGAD(),
        presets.EcRamMixedPrecision(),
        presets.EcRamPair(),
        presets.PCMPair(),
    ],
    ids=lambda tiles: f"{tiles.kind}",
)
def test_every_kind_of_tile_has_a_record(tiles: config.TileConfig) -> None:
    layer = nn.AnalogLinear(6, 4, config=tiles, seed=1)
    record = epoch_record(layer, 1, {})
    parsed = files.parse(
        files.to_lines([files.run_line("a", {"tile": tiles.to_dict()}), record]), files.FILE
    )
    (tile,) = parsed.epochs[0]["tiles"]
    assert tile["layer"] == "model"
    assert tile["arrays"]
    assert all("/" in name for name in files.scalars(record))


def test_records_change_no_bit_of_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded, bare = make(), make()
    recorded.train()
    monkeypatch.setattr(runs, "epoch_record", lambda *_: {})
    bare.train()
    assert [len(run.records[0]) for run in (recorded, bare)] == [5, 0]
    states = [run.model.state_dict() for run in (recorded, bare)]
    assert states[0].keys() == states[1].keys()
    for name, value in states[0].items():
        assert torch.equal(value, states[1][name]), name


def lines_without_times(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / files.FILE).read_text().splitlines()]
    for line in lines[1:]:
        del line["metrics"]["seconds"]
    return lines


def test_a_resumed_run_has_the_records_of_one_that_was_not(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    make(whole, epochs=3).train()
    make(parts, epochs=1).train()
    (parts / files.FILE).write_text("damaged")
    make(parts, epochs=3, resume=True).train()
    first, second = lines_without_times(whole), lines_without_times(parts)
    assert first == second
    assert len(first) == 4


def test_a_checkpoint_without_records_goes_on(tmp_path: Path) -> None:
    make(tmp_path, epochs=1).train()
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    del saved["records"]
    torch.save(saved, tmp_path / "checkpoint.pt")
    make(tmp_path, epochs=2, resume=True).train()
    first, second = files.read(tmp_path / files.FILE).epochs
    assert first["tiles"] == []
    assert first["metrics"]["epoch"] == 1.0
    assert second["tiles"] != []


def test_scalars_have_names_for_trackers() -> None:
    run = make()
    run.train()
    values = files.scalars(run.records[-1])
    statistics = next(iter(run.model[0].tiles)).statistics()
    assert values["loss"] == run.history[-1]["loss"]
    assert values["0/0/pulses"] == statistics["pulses"]
    assert values["0/0/last_transfer/gain"] == statistics["last_transfer"]["gain"]
    assert values["0/0/visible/saturated"] == statistics["saturated_cells"] / 24
    assert "2.weight/std" in values


HEAD = json.dumps(files.run_line("a", {}))
EPOCH = json.dumps(files.epoch_line(1, {"loss": 1.0}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("no json", "line 1: this is no record"),
        ("[]", "line 1"),
        (EPOCH, "line 1"),
        (HEAD.replace('"form": 1', '"form": 9'), "form 9, and this version reads form 1"),
        (f"{HEAD}\n{EPOCH[:-9]}", "line 2: this is no record"),
        (f"{HEAD}\n{EPOCH}\n{EPOCH}", "line 3.*epoch 2 must be here"),
        (f"{HEAD}\n" + EPOCH.replace("1.0", '"<b>"'), "line 2.*is no number"),
        (f"{HEAD}\n" + EPOCH.replace('"tiles": []', '"tiles": [{"layer": 1}]'), "line 2.*KeyError"),
        (f"{HEAD}\n" + "[" * 100000, "line 2"),
    ],
)
def test_damaged_files_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / files.FILE
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        files.read(path)
