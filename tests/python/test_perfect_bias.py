"""`perfect_bias` acts in columns of cells that are a bias."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import pulsora as pl

BOUNDS = {"w_max": 0.1, "w_min": -0.1, "w_max_dtod": 0.0, "w_min_dtod": 0.0}
DEVICE = pl.devices.ConstantStep(perfect_bias=True, **BOUNDS)
PLAIN = DEVICE.replace(perfect_bias=False)


def written(
    layer: pl.nn.AnalogModule, value: float = 3.0
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Weights and bias after all are written with one value."""
    weight, bias = layer.get_weights()
    layer.set_weights(
        torch.full_like(weight, value), None if bias is None else torch.full_like(bias, value)
    )
    found: tuple[torch.Tensor, torch.Tensor | None] = layer.get_weights()
    return found


LAYERS: dict[str, Any] = {
    "linear": lambda **o: pl.nn.AnalogLinear(10, 3, **o),
    "tiles": lambda **o: pl.nn.AnalogLinear(10, 3, max_input_size=4, max_output_size=2, **o),
    "conv": lambda **o: pl.nn.AnalogConv2d(4, 6, 2, **o),
    "groups": lambda **o: pl.nn.AnalogConv2d(4, 6, 2, groups=2, max_input_size=5, **o),
    "lstm": lambda **o: pl.nn.AnalogLSTM(5, 3, max_input_size=3, **o).ih_l0,
}


CONFIGS: dict[str, pl.TileConfig] = {
    "single": pl.SingleConfig(device=DEVICE),
    "lrtt": pl.LRTTConfig(visible=DEVICE, fast=DEVICE, rank=1),
    "vector": pl.VectorConfig(devices=[DEVICE, DEVICE]),
    "one_sided": pl.OneSidedConfig(device=DEVICE),
    "reference": pl.ReferenceConfig(visible=DEVICE),
    "tiki_taka": pl.TikiTaka(DEVICE, DEVICE),
}


@pytest.mark.filterwarnings("ignore:.*outside the bounds of their cells:UserWarning")
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("digital_bias", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_weights_stay_in_their_bounds(name: str, digital_bias: bool, config: str) -> None:
    layer = LAYERS[name](config=CONFIGS[config], digital_bias=digital_bias)
    weight, bias = written(layer)
    assert weight.max() < 0.11
    if not digital_bias:
        assert torch.allclose(bias, torch.tensor(3.0), atol=0.1)


def test_other_cells_are_as_without_the_option() -> None:
    spread = {"config": pl.SingleConfig(device=pl.devices.ConstantStep()), "seed": 3}
    perfect = pl.SingleConfig(device=pl.devices.ConstantStep(perfect_bias=True))
    for name, make in LAYERS.items():
        plain, other = make(**spread), make(**(spread | {"config": perfect}))
        for one, two in zip(plain.tiles, other.tiles, strict=True):
            for key, value in one.describe_cells().items():
                assert (two.describe_cells()[key] == value).all(), (name, key)


def of_earlier_version(layer: pl.nn.AnalogLinear) -> pl.nn.AnalogLinear:
    """A layer whose tiles have the option everywhere, as earlier versions made them."""
    made = copy.deepcopy(layer)
    made.tiles.grid = [
        [
            pl.Tile(
                tile.d_size,
                tile.x_size,
                made.tiles.tile_config,
                seed=tile.seed,
                tile_id=tile.tile_id,
            )
            for tile in tiles
        ]
        for tiles in made.tiles.grid
    ]
    return made


def test_a_state_of_an_earlier_version_goes_on_as_it_was() -> None:
    config = pl.SingleConfig(device=DEVICE)
    layer = pl.nn.AnalogLinear(10, 3, config=config, max_input_size=4, seed=1)
    old = of_earlier_version(layer)
    for tile in old.tiles:
        tile.weights = torch.full((tile.d_size, tile.x_size), 0.05)
    layer.load_state_dict(old.state_dict())
    for each in (layer, copy.deepcopy(layer)):
        assert torch.equal(each.weight, old.weight)
        assert all(tile.config.device.perfect_bias for tile in each.tiles)
    fresh = pl.nn.AnalogLinear(10, 3, config=config, max_input_size=4, seed=1)
    layer.load_state_dict(fresh.state_dict())
    assert torch.equal(layer.weight, fresh.weight)
    plain = pl.nn.AnalogLinear(10, 3, config=config.replace(device=PLAIN), max_input_size=4)
    with pytest.raises(RuntimeError, match="another configuration"):
        plain.load_state_dict(old.state_dict())
