"""The default of transfer_every, and trainings that end before the first transfer."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import pulsora as pl
from pulsora.training.data import digits
from pulsora.training.experiment import Experiment
from pulsora.training.run import Run


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
