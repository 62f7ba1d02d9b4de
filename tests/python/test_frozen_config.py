"""Layers and tiles keep a frozen copy of their configuration."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from torch import nn

import pulsora as pl

X = torch.ones(64, 12)


def noise_of(layer: pl.nn.AnalogLinear) -> float:
    """Deviation of 64 reads of one input."""
    read = layer(X) - X @ layer.weight.T
    return float((read - read.mean(0)).detach().std())


def test_a_sweep_with_one_object_gives_the_noise_of_each_value() -> None:
    config = pl.SingleConfig(device=pl.devices.Idealized())
    layers = []
    for noise in (0.0, 1.0, 10.0):
        config.forward.out_noise = noise
        layers.append(pl.nn.AnalogLinear(12, 40, config=config, seed=1))
    config.device = pl.devices.EcRam()
    assert [layer.config.forward.out_noise for layer in layers] == [0.0, 1.0, 10.0]
    quiet, one, ten = map(noise_of, layers)
    assert quiet < 0.01 < 0.1 * one < ten
    for layer in layers:
        tile = layer.tiles.grid[0][0]
        assert layer.config == layer.tiles.config == tile.config
        assert layer.config.device == pl.devices.Idealized()


@pytest.mark.parametrize("name", ["linear", "lstm", "tile", "array"])
def test_a_configuration_in_use_cannot_be_assigned_to(name: str) -> None:
    config = pl.LRTTConfig(rank=2)
    held = {
        "linear": lambda: pl.nn.AnalogLinear(6, 5, config=config).config,
        "lstm": lambda: pl.nn.AnalogLSTM(6, 5, config=config).hh_l0.config,
        "tile": lambda: pl.Tile(5, 6, config).config,
        "array": lambda: pl.nn.AnalogLinear(6, 5, config=config).tiles.tile_config,
    }[name]()
    assert held == config
    assert repr(held) == repr(config)
    assert held.to_dict() == config.to_dict()
    for change in (
        lambda: setattr(held, "rank", 3),
        lambda: setattr(held.forward, "out_noise", 5.0),
        lambda: setattr(held.visible, "dw_min", 0.1),
    ):
        with pytest.raises(AttributeError, match="replace") as caught:
            change()
        assert "with_io" in str(caught.value)
    assert held == config
    config.forward.out_noise = 5.0
    assert held.forward.out_noise != 5.0


def test_copies_of_a_frozen_configuration_can_be_changed() -> None:
    frozen = pl.nn.AnalogLinear(6, 5, config=pl.LRTTConfig(rank=2)).config
    for made in (
        frozen.replace(rank=2),
        copy.copy(frozen),
        copy.deepcopy(frozen),
        pickle.loads(pickle.dumps(frozen)),  # noqa: S301 - our own
        pl.LRTTConfig.from_dict(frozen.to_dict()),
    ):
        assert made == frozen
        made.forward.out_noise = 5.0
        made.visible.dw_min = 0.1
        made.rank = 3
    other = pl.SingleConfig(device=frozen.visible, forward=frozen.forward)
    other.device.dw_min = 0.1
    other.forward = frozen.backward
    other.forward.out_noise = 5.0
    assert frozen == pl.LRTTConfig(rank=2)


def test_a_replaced_copy_shares_no_object() -> None:
    first = pl.SingleConfig()
    first.replace().forward.out_noise = 5.0
    assert first == pl.SingleConfig()


def test_a_model_outlives_a_change_of_the_callers_object() -> None:
    config = pl.SingleConfig()
    model = pl.convert_to_analog(
        nn.Sequential(nn.Linear(12, 5), nn.LSTM(5, 3)), config, weight_scaling=0.1
    )
    config.forward.out_noise = 10.0
    model.load_state_dict(model.state_dict())
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for again in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        assert again[0].config == model[0].config == pl.SingleConfig()
        assert torch.equal(again[0].weight, model[0].weight)
        with pytest.raises(AttributeError, match="replace"):
            again[0].config.forward.out_noise = 1.0
    digital = pl.convert_to_digital(model)
    np.testing.assert_array_equal(digital[0].weight.detach(), model[0].weight.detach())
