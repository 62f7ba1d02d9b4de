"""The default of transfer_every, and trainings that end before the first transfer."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

import pulsora as pl
from pulsora.nn.tiles import first_transfer
from pulsora.training.data import digits
from pulsora.training.experiment import Experiment
from pulsora.training.run import Run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _run(**settings: object) -> None:
    experiment = Experiment.from_dict({"epochs": 1, "hidden": (8,), "batch": 64, **settings})
    Run(experiment, threads=1, data=digits()).train()


def test_commands_have_the_default_of_the_library() -> None:
    config = Experiment().tile_config()
    assert isinstance(config, pl.LRTTConfig)
    assert config.transfer_every == pl.LRTTConfig().transfer_every


def test_a_run_without_a_transfer_warns() -> None:
    with pytest.warns(UserWarning, match=r"transfer_every = 1000: there was no transfer in 2\d "):
        _run()


@pytest.mark.parametrize(
    "settings", [{"transfer_every": 5}, {"transfer_every": 0}, {"algorithm": "pulsed"}]
)
def test_other_runs_do_not_warn(settings: dict[str, object]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _run(**settings)
    assert not [each for each in caught if "no transfer" in str(each.message)]


def test_an_explanation_names_the_first_transfer() -> None:
    x, d = np.ones((4, 6), np.float32), np.ones((4, 5), np.float32)
    tile = pl.Tile(5, 6, pl.LRTTConfig(rank=2, transfer_every=3))
    line = "no transfer before mini-batch 3"
    assert tile.explain(x, d, 0.1)["first_transfer"] == line
    assert line in str(tile.explain(x, d, 0.1))
    for _ in range(3):
        tile.update(x, d, 0.1)
    assert "first_transfer" not in tile.explain(x, d, 0.1)
    never = pl.Tile(5, 6, pl.LRTTConfig(rank=2, transfer_every=0))
    assert "first_transfer" not in never.explain(x, d, 0.1)
    samples = pl.Tile(5, 6, pl.LRTTConfig(rank=2, transfer_every=9, units_in_mbatch=False))
    assert samples.explain(x, d, 0.1)["first_transfer"] == "no transfer before sample 9"


def _trained(steps: int, **settings: object) -> torch.nn.Module:
    """A model after a training loop of one's own."""
    config = pl.LRTTConfig(rank=2, **settings)
    model = torch.nn.Sequential(pl.nn.AnalogLinear(6, 5, config=config, seed=1, threads=1))
    optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 6)).sum().backward()
        optimizer.step()
    return model


def _said(call: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(each.message) for each in caught if "first transfer" in str(each.message)]


@pytest.mark.parametrize("way", ["state_dict", "pickle"])
def test_a_save_before_the_first_transfer_warns_once(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_transfer, "_told", False)
    model = _trained(3)
    assert not _said(lambda: copy.deepcopy(model))
    save = model.state_dict if way == "state_dict" else lambda: pickle.dumps(model)
    (message,) = _said(save)
    assert "layer '0'" in message or "layer AnalogLinear [5, 6]" in message
    assert "there were 3 mini-batches, and transfer_every = 1000" in message
    assert not _said(save)


@pytest.mark.parametrize(
    ("steps", "settings"),
    [(3, {"transfer_every": 2}), (3, {"transfer_every": 0}), (0, {}), (2, {"transfer_every": 2})],
)
def test_other_saves_do_not_warn(
    steps: int, settings: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_transfer, "_told", False)
    model = _trained(steps, **settings)
    assert not _said(model.state_dict)
    assert not _said(lambda: pickle.dumps(model))


def test_checkpoints_of_a_run_leave_the_warning_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_transfer, "_told", False)
    experiment = Experiment.from_dict({"epochs": 1, "hidden": (8,), "batch": 64})
    run = Run(experiment, tmp_path, threads=1, data=digits())
    with pytest.warns(UserWarning, match="transfer") as caught:
        run.train()
    (message,) = {str(each.message) for each in caught}
    assert "there was no transfer in 2" in message
