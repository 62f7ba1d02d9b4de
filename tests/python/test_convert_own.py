"""Conversion of layers of one's own, by functions for their types."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import pulsora as pl
from conftest import PERFECT
from pulsora.nn import AnalogLinear

IDEAL = pl.IdealConfig(**PERFECT)


class OwnLinear(nn.Linear):
    """A type that has no analog twin."""


def own_linear(layer: OwnLinear, config: pl.TileConfig, **options: Any) -> AnalogLinear:
    made = AnalogLinear(layer.in_features, layer.out_features, config=config, **options)
    made.set_weights(layer.weight, layer.bias)
    return made


def test_types_of_one_s_own_are_converted_by_functions() -> None:
    model = nn.Sequential(nn.Linear(4, 3), OwnLinear(3, 3), nn.Linear(3, 2))
    analog = pl.convert_to_analog(
        model, IDEAL, conversions={OwnLinear: own_linear}, seed=1, max_input_size=2
    )
    assert pl.conversion_report(analog).analog == ["0", "1", "2"]
    tiles = [tile for layer in analog for tile in layer.tiles]
    assert [tile.tile_id for tile in tiles] == list(range(6))
    torch.testing.assert_close(analog(torch.ones(2, 4)), model(torch.ones(2, 4)))
    kept = pl.convert_to_analog(model, IDEAL, conversions={OwnLinear: own_linear}, exclude=["1"])
    assert type(kept[1]) is OwnLinear


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.inner(x)
        return y


def test_a_function_takes_a_layer_with_what_is_inside() -> None:
    def convert(layer: Block, config: pl.TileConfig, **options: Any) -> nn.Module:
        return nn.Sequential(own_linear(layer.inner, config, **options), nn.ReLU())

    model = nn.Sequential(Block(), nn.Linear(3, 3))
    analog = pl.convert_to_analog(model, IDEAL, conversions={Block: convert}, seed=3)
    assert pl.conversion_report(analog).analog == ["0.0", "1"]
    assert next(iter(analog[1].tiles)).tile_id == 1


@pytest.mark.parametrize(
    ("conversions", "error", "message"),
    [
        ({OwnLinear: None}, TypeError, "give functions by types of layers"),
        ({"OwnLinear": own_linear}, TypeError, "give functions by types of layers"),
        (
            {OwnLinear: AnalogLinear},
            TypeError,
            r"each of which takes \(layer, config, \*\*options\)",
        ),
        ([OwnLinear], TypeError, r"conversions = \[.*give functions by types of layers"),
        ({OwnLinear: lambda *_, **__: None}, TypeError, "OwnLinear.* gave None for layer '0'"),
    ],
)
def test_conversions_that_are_none_are_refused(
    conversions: dict[Any, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        pl.convert_to_analog(nn.Sequential(OwnLinear(3, 3)), IDEAL, conversions=conversions)


class Twice(pl.nn.AnalogLinear):
    def forward(self, x: torch.Tensor, *rest: Any) -> torch.Tensor:
        return 2.0 * super().forward(x, *rest)


class Named(pl.nn.AnalogLinear):
    """Computes what its base computes."""


def test_a_subclass_with_a_forward_of_its_own_has_no_digital_twin() -> None:
    config = pl.IdealConfig()
    with pytest.raises(TypeError, match=r"layer '1' \(Twice\) is of a subclass of AnalogLinear"):
        pl.convert_to_digital(nn.Sequential(nn.ReLU(), Twice(3, 2, config=config)))
    patched = pl.nn.AnalogLinear(3, 2, config=config)
    patched.forward = lambda x: x  # type: ignore[method-assign, assignment]
    with pytest.raises(TypeError, match="forward of its own"):
        pl.convert_to_digital(nn.Sequential(patched))
    named = Named(3, 2, config=config)
    x = torch.ones(4, 3)
    digital = pl.convert_to_digital(nn.Sequential(named))
    assert torch.allclose(digital(x), named(x))
    assert type(digital[0]) is nn.Linear
