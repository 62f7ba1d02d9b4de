"""Conversion of layers of one's own, by functions for their types."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import peft_files
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


class Masked(nn.Module):
    """Reads more of its layer than weights."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.fc.register_buffer("mask", torch.ones(6))
        self.fc.gain = nn.Parameter(torch.ones(6))
        self.fc.inner = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: Any = self.fc.inner(self.fc(x)) * self.fc.mask * self.fc.gain  # type: ignore[operator]
        return y  # type: ignore[no-any-return]


def masked_lstm() -> nn.Module:
    layer = nn.LSTM(3, 4)
    layer.register_buffer("mask", torch.ones(4))
    return layer


def masked_conv1d() -> nn.Module:
    layer = peft_files.Conv1D(4, 6)
    layer.register_parameter("gain", nn.Parameter(torch.ones(4)))
    return layer


def test_layers_with_more_than_weights_stay_digital_with_what_they_have() -> None:
    model, x = Masked(), torch.randn(2, 6)
    message = r"fc \(Linear: has the parameter 'gain', the buffer 'mask', the module 'inner', which"
    with pytest.warns(UserWarning, match=message):
        analog = pl.convert_to_analog(model, IDEAL)
    assert pl.conversion_report(analog).analog == ["fc.inner"]
    torch.testing.assert_close(analog(x), model(x), rtol=1e-5, atol=1e-5)
    for layer, what in ((masked_lstm(), "buffer 'mask'"), (masked_conv1d(), "parameter 'gain'")):
        with pytest.warns(UserWarning, match=rf"0 \({type(layer).__name__}: has the {what}, which"):
            pl.convert_to_analog(nn.Sequential(layer), IDEAL)


def test_a_function_takes_a_layer_with_more_than_weights() -> None:
    class Own(AnalogLinear):
        mask: torch.Tensor

    def convert(layer: Any, config: pl.TileConfig, **options: Any) -> nn.Module:  # noqa: ANN401
        made = Own(6, 6, config=config, **options)
        made.set_weights(layer.weight, layer.bias)
        if hasattr(layer, "mask"):
            made.register_buffer("mask", layer.mask)
        return made

    plain = nn.Linear(6, 6)
    model = nn.Sequential(Masked().fc, plain)
    analog = pl.convert_to_analog(model, IDEAL, conversions={nn.Linear: convert})
    assert pl.conversion_report(analog).analog == ["0", "1"]
    assert torch.equal(analog[0].mask, torch.ones(6))
    model[0].forward = plain.forward
    with pytest.warns(UserWarning, match="stay digital: 0"):
        pl.convert_to_analog(model, IDEAL, conversions={nn.Linear: convert})


@pytest.mark.filterwarnings("ignore:`torch.jit.(script|trace)` is deprecated")
@pytest.mark.parametrize("inplace", [False, True])
def test_parts_of_torchscript_stay_digital(inplace: bool) -> None:
    inner = nn.Sequential(nn.Linear(6, 6), nn.Sequential(nn.Conv1d(1, 1, 1), nn.Embedding(2, 2)))
    parts = [torch.jit.script(nn.Linear(6, 5)), torch.jit.script(nn.ReLU())]
    model = nn.Sequential(*parts, nn.Linear(5, 2), torch.jit.script(inner))
    assert list(pl.conversion_report(model).digital) == ["0", "2", "3"]
    x = torch.randn(2, 6)
    wanted = model[:3](x)
    with pytest.warns(UserWarning, match=r"0 \(RecursiveScriptModule: compiled by torch.jit; for"):
        analog = pl.convert_to_analog(model, IDEAL, inplace=inplace)
    report = pl.conversion_report(analog)
    assert report.analog == ["2"]
    assert list(report.digital) == ["0", "3"]
    torch.testing.assert_close(analog[:3](x), wanted, rtol=1e-5, atol=1e-5)
    excluded = pl.convert_to_analog(model, IDEAL, exclude=["0", "3"])
    assert set(pl.conversion_report(excluded).digital.values()) == {"excluded"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_input_size": 1.5}, "max_input_size = 1.5: give a whole number, or 0 for no limit"),
        ({"max_output_size": "5"}, "max_output_size = '5': give a whole number"),
        ({"digital_bias": "no"}, "digital_bias = 'no': write True or False"),
        ({"learn_out_scaling": 1}, "learn_out_scaling = 1: write True or False"),
    ],
)
def test_options_of_another_type_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=f"^{message}"):
        AnalogLinear(6, 5, **options)
    with pytest.raises(TypeError, match=f"^layer '0': {message}"):
        pl.convert_to_analog(nn.Sequential(nn.Linear(6, 5)), IDEAL, **options)
