"""Conversion of torch models: what is converted, with which weights, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import pulsora as pl
from conftest import PERFECT
from pulsora.nn import AnalogConv2d, AnalogLinear, AnalogModule

if TYPE_CHECKING:
    from collections.abc import Callable

IDEAL = pl.IdealConfig(**PERFECT)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3, padding=1)
        self.body = nn.Sequential(nn.ReLU(), nn.Flatten(), nn.Linear(3 * 16, 8), nn.Tanh())
        self.head = nn.Linear(8, 2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.body(self.conv(x)))
        return y


@pytest.fixture
def model() -> Net:
    torch.manual_seed(0)
    return Net()


def images() -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).standard_normal((5, 1, 4, 4), np.float32))


def test_all_layers_are_converted_with_their_weights(model: Net) -> None:
    analog = pl.convert_to_analog(model, IDEAL, seed=1)
    assert isinstance(analog.conv, AnalogConv2d)
    assert isinstance(analog.body[2], AnalogLinear)
    assert isinstance(analog.head, AnalogLinear)
    torch.testing.assert_close(analog(images()), model(images()), rtol=1e-5, atol=1e-5)
    assert isinstance(model.head, nn.Linear)  # the original is as it was


def test_tiles_have_numbers_of_their_own(model: Net) -> None:
    analog = pl.convert_to_analog(model, IDEAL, seed=1, max_input_size=20)
    tiles = [tile for m in analog.modules() if isinstance(m, AnalogModule) for tile in m.tiles]
    assert len(tiles) == 1 + 3 + 1
    assert sorted(tile.tile_id for tile in tiles) == list(range(5))
    assert {tile.seed for tile in tiles} == {1}


def test_configuration_may_depend_on_the_layer(model: Net) -> None:
    def choose(name: str, layer: nn.Module) -> pl.TileConfig | None:
        if isinstance(layer, nn.Conv2d):
            return None
        return pl.LRTTConfig(rank=2) if name == "body.2" else IDEAL

    analog = pl.convert_to_analog(model, choose)
    assert type(analog.conv) is nn.Conv2d
    assert isinstance(analog.body[2].config, pl.LRTTConfig)
    assert isinstance(analog.head.config, pl.IdealConfig)


def test_excluded_layers_and_what_is_inside_stay_digital(model: Net) -> None:
    analog = pl.convert_to_analog(model, IDEAL, exclude=["body", "head"])
    assert isinstance(analog.conv, AnalogConv2d)
    assert type(analog.body[2]) is nn.Linear
    assert type(analog.head) is nn.Linear
    with pytest.raises(ValueError, match=r"exclude = \['haed'\]: the model has no such layers"):
        pl.convert_to_analog(model, IDEAL, exclude=["haed"])
    with pytest.raises(TypeError, match=r"exclude = '.*': give a list of names"):
        pl.convert_to_analog(model, IDEAL, exclude="head")


@pytest.mark.filterwarnings("error")
def test_last_parts_of_names_exclude_layers_too() -> None:
    blocks = [nn.ModuleDict({"mix": nn.Linear(3, 3), "out": nn.Linear(3, 3)}) for _ in range(2)]
    model = nn.ModuleDict({"blocks": nn.ModuleList(blocks), "out": nn.Linear(3, 3)})
    parts = pl.convert_to_analog(model, IDEAL, exclude=["mix", "blocks.1.out"])
    assert pl.conversion_report(parts).analog == ["blocks.0.out", "out"]
    # A whole name means that layer alone.
    whole = pl.convert_to_analog(model, IDEAL, exclude=["out"])
    assert pl.conversion_report(whole).digital == {"out": "excluded"}


def test_errors_of_a_configuration_name_the_layer() -> None:
    model = nn.Sequential(nn.Linear(24, 24), nn.Linear(24, 3))
    with pytest.raises(pl.ConfigError, match=r"^layer '1': lrtt.rank is 4; for a tile of size"):
        pl.convert_to_analog(model, pl.LRTTConfig(rank=4))
    with pytest.raises(pl.ConfigError, match=r"^layer '1': lrtt.rank is 4; for a tile of size"):
        pl.peft.add_adapters(model, "analog_base", rank=4)


def test_shared_layers_stay_shared() -> None:
    layer = nn.Linear(3, 3)
    analog = pl.convert_to_analog(nn.Sequential(layer, nn.ReLU(), layer), IDEAL)
    assert isinstance(analog[0], AnalogLinear)
    assert analog[0] is analog[2]


def test_a_layer_alone_is_converted_and_frozen_weights_stay_frozen() -> None:
    layer = nn.Linear(3, 2)
    layer.weight.requires_grad_(requires_grad=False)
    analog = pl.convert_to_analog(layer.eval(), IDEAL)
    assert isinstance(analog, AnalogLinear)
    assert not analog.analog_weight.requires_grad
    assert not analog.training


class Conv1D(nn.Module):
    """Called like the layer of transformers, but without its bias."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3, 4))


class OwnLinear(nn.Linear):
    pass


def with_state_hook(layer: nn.Module) -> nn.Module:
    layer.register_load_state_dict_post_hook(lambda *_: None)
    return layer


class OwnProduct(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.zeros(3, 4))


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (nn.ConvTranspose2d(4, 4, 3), "transposed"),
        (nn.GRUCell(4, 4), "recurrent"),
        (nn.Bilinear(4, 4, 3), "no analog twin"),
        (nn.LazyLinear(4), "no weights before its first forward pass"),
        (OwnLinear(4, 4), "subclass"),
        (Conv1D(), "parameters of its own"),
        (OwnProduct(), "parameters of its own"),
        (with_state_hook(nn.Linear(4, 4)), r"_load_state_dict_post_hooks"),
        (torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), "subclass"),
    ],
)  # fmt: skip
def test_layers_without_an_analog_twin_stay_digital_and_are_named(
    layer: nn.Module, reason: str
) -> None:
    model = nn.Sequential(nn.Linear(3, 3), layer)
    with pytest.warns(UserWarning, match=rf"1 \(.*{reason}") as told:
        analog = pl.convert_to_analog(model, IDEAL)
    assert len(told) == 1
    report = pl.conversion_report(analog)
    assert report.analog == ["0"]
    assert reason in report.digital["1"]
    excluded = pl.convert_to_analog(model, IDEAL, exclude=["1"])  # without a warning
    assert pl.conversion_report(excluded).digital["1"] == "excluded"


def test_lazy_layers_are_converted_after_a_forward_pass() -> None:
    model = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d())
    assert list(pl.conversion_report(model).digital) == ["0"]
    model(torch.ones(2, 3))
    assert pl.conversion_report(pl.convert_to_analog(model, IDEAL)).analog == ["0"]


def test_weights_computed_by_hooks_are_not_taken_for_plain_ones() -> None:
    with torch.no_grad():
        layer = prune.l1_unstructured(nn.Linear(4, 4), "weight", 0.5)
    with pytest.warns(UserWarning, match="computed from other parameters"):
        analog = pl.convert_to_analog(nn.Sequential(layer), IDEAL)
    assert type(analog[0]) is nn.Linear


class Tagger(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.memory = kind(3, 4, 2, bidirectional=True, **options)
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.memory(x)[0])
        return y


@pytest.mark.parametrize("digital_bias", [True, False])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (nn.RNN, {"nonlinearity": "relu"}),
        (nn.LSTM, {"proj_size": 3}),
        (nn.GRU, {"batch_first": True, "bias": False}),
        (nn.LSTM, {"dropout": 0.5}),
    ],
)
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_recurrent_layers_there_and_back(
    kind: type[nn.RNNBase], options: dict[str, Any], digital_bias: bool
) -> None:
    torch.manual_seed(0)
    model = Tagger(kind, **options).eval()
    if "proj_size" in options:
        model.head = nn.Linear(6, 2)
    model.memory.register_forward_hook(lambda _, __, y: (2.0 * y[0], y[1]))
    model.memory.weight_hh_l1.requires_grad_(requires_grad=False)
    if "bias_hh_l1" in dict(model.memory.named_parameters()):
        model.memory.bias_hh_l1.requires_grad_(requires_grad=False)
    analog = pl.convert_to_analog(model, IDEAL, digital_bias=digital_bias, max_input_size=3, seed=1)
    report = pl.conversion_report(analog)
    assert report.analog == ["memory", "head"]
    assert report[0].layer == f"Analog{kind.__name__}"
    assert report[0].detail.startswith("[")
    tiles = [tile for m in analog.modules() if isinstance(m, AnalogModule) for tile in m.tiles]
    assert [tile.tile_id for tile in tiles] == list(range(len(tiles)))
    assert not analog.memory.hh_l1.analog_weight.requires_grad
    digital = pl.convert_to_digital(analog)
    assert type(digital.memory) is kind
    x = torch.randn(3, 5, 3)
    for each in (analog, digital):
        torch.testing.assert_close(each(x), model(x), rtol=1e-4, atol=1e-5)
    for name, parameter in model.named_parameters():
        twin = digital.get_parameter(name)
        assert torch.equal(twin, parameter)
        assert twin.requires_grad == parameter.requires_grad
    before = analog.memory.get_weights()
    optimizer = pl.optim.AnalogSGD(analog.parameters(), lr=0.1)
    analog(x).square().sum().backward()
    optimizer.step()
    after = analog.memory.get_weights()
    kept = {"weight_hh_l1", "bias_hh_l1"}
    assert {name for name in before if torch.equal(before[name], after[name])} == kept & set(before)


def test_recurrent_layers_that_would_lose_something_stay_digital_or_are_refused() -> None:
    with torch.no_grad():
        layer = prune.l1_unstructured(nn.LSTM(3, 3), "weight_hh_l0", 0.5)
    with pytest.warns(UserWarning, match="computed from other parameters"):
        assert type(pl.convert_to_analog(nn.Sequential(layer), IDEAL)[0]) is nn.LSTM
    shared = nn.Sequential(nn.GRU(3, 3), nn.GRU(3, 3))
    shared[1].weight_hh_l0 = shared[0].weight_hh_l0
    with pytest.raises(ValueError, match="layers '0' and '1' share a parameter"):
        pl.convert_to_analog(shared, IDEAL)
    with pytest.warns(UserWarning, match="recurrent cells"):
        pl.convert_to_analog(nn.Sequential(nn.LSTMCell(3, 3)), IDEAL)
    layer = nn.GRU(3, 3)
    layer.bias_hh_l0.requires_grad_(requires_grad=False)
    with pytest.raises(ValueError, match="only one of weight_hh_l0 and bias_hh_l0 frozen"):
        pl.convert_to_analog(nn.Sequential(layer), IDEAL, digital_bias=False)


def test_attention_is_left_digital_and_named() -> None:
    with pytest.warns(UserWarning, match="self_attn.out_proj"):
        analog = pl.convert_to_analog(nn.TransformerEncoderLayer(8, 2, 16), IDEAL)
    report = pl.conversion_report(analog)
    assert report.analog == ["linear1", "linear2"]
    assert set(report.digital) == {"self_attn", "self_attn.out_proj"}


def test_the_report_is_a_table_of_every_matrix(model: Net) -> None:
    model.body.append(nn.Embedding(3, 3))
    analog = pl.convert_to_analog(
        model, lambda name, _: None if name == "conv" else IDEAL, exclude=["head"]
    )
    report = pl.conversion_report(analog)
    assert report.analog == ["body.2"]
    assert report.digital == {
        "conv": "config gave None",
        "body.4": "a table, of which rows are looked up; no product",
        "head": "excluded",
    }
    lines = str(report).splitlines()
    assert lines[0].split() == [
        "layer", "class", "is", "configuration,", "or", "why", "it", "is", "digital",
    ]  # fmt: skip
    assert [line.split()[:3] for line in lines[1:]] == [
        ["conv", "Conv2d", "digital"],
        ["body.2", "AnalogLinear", "analog"],
        ["body.4", "Embedding", "digital"],
        ["head", "Linear", "digital"],
    ]
    assert pl.conversion_report(nn.Sequential(analog)).analog == ["0.body.2"]
    assert pl.conversion_report(model).digital["head"] == "not converted"


def test_a_second_conversion_forgets_the_choices_of_the_first(model: Net) -> None:
    partly = pl.convert_to_analog(model, IDEAL, exclude=["head"])
    assert isinstance(pl.convert_to_analog(partly, IDEAL).head, AnalogLinear)


def test_hooks_go_over_to_the_analog_layer_and_back() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Conv1d(3, 2, 1))
    seen: list[tuple[str, str]] = []

    def note(kind: str) -> Callable[..., None]:
        return lambda layer, *_: seen.append((kind, type(layer).__name__))

    for layer in model:
        layer.register_forward_pre_hook(note("before"))
        layer.register_full_backward_pre_hook(note("back before"))
        layer.register_full_backward_hook(note("back"))
    model[0].register_forward_hook(lambda _, __, y, **___: y + 1.0)
    model[0].register_forward_hook(lambda _, __, ___, y: 2.0 * y, with_kwargs=True, prepend=True)
    analog = pl.convert_to_analog(model, IDEAL)
    x = torch.ones(3, 3, requires_grad=True)
    for converted in (analog, pl.convert_to_digital(analog)):
        seen.clear()
        y = converted(x.clone())
        torch.testing.assert_close(y, model(x), rtol=1e-5, atol=1e-6)
        seen.clear()
        converted(x.clone()).sum().backward()
        names = [type(layer).__name__ for layer in converted]
        assert seen == [
            *(("before", name) for name in names),
            *((kind, name) for name in reversed(names) for kind in ("back before", "back")),
        ]


def test_a_bias_keeps_its_type() -> None:
    analog = pl.convert_to_analog(nn.Sequential(nn.Linear(3, 3)).to(torch.bfloat16), IDEAL)
    assert analog[0].bias.dtype == torch.bfloat16
    assert analog(torch.ones(2, 3, dtype=torch.bfloat16)).dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_back_to_digital_has_the_type_that_the_model_has(dtype: torch.dtype) -> None:
    for layer in (nn.Linear(3, 3, bias=False), nn.Conv2d(1, 2, 3), nn.LSTM(3, 4)):
        for model in (
            pl.convert_to_analog(nn.Sequential(layer.to(dtype)), IDEAL),
            pl.convert_to_analog(nn.Sequential(layer.float()), IDEAL).to(dtype),
        ):
            back = pl.convert_to_digital(model)
            assert {each.dtype for each in back.parameters()} == {dtype}


def test_models_in_double_precision_train() -> None:
    """Inputs, outputs and their gradients are float64; tiles are in single precision."""
    torch.manual_seed(0)
    digital = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3), nn.Linear(3, 2))
    digital = digital.double()
    analog = pl.convert_to_analog(digital, IDEAL)
    x = torch.randn(5, 1, 4, 4, dtype=torch.float64)
    gradients = []
    for model in (digital, analog):
        given = x.clone().requires_grad_()
        model(given).square().sum().backward()
        gradients.append((given.grad, model[3].bias.grad))
    for mine, wanted in zip(gradients[1], gradients[0], strict=True):
        assert mine is not None
        assert mine.dtype == torch.float64
        torch.testing.assert_close(mine, wanted, rtol=1e-5, atol=1e-5)


def test_back_to_digital_gives_the_weights_a_perfect_read_sees(model: Net) -> None:
    config = pl.LRTTConfig(rank=2, forward=IDEAL.forward, backward=IDEAL.backward, transfer_every=0)
    analog = pl.convert_to_analog(model, config, seed=1)
    optimizer = pl.optim.AnalogSGD(analog.parameters(), lr=0.1)
    for _ in range(3):
        analog(images()).square().sum().backward()
        optimizer.step()
    digital = pl.convert_to_digital(analog)
    assert not any(isinstance(layer, AnalogModule) for layer in digital.modules())
    torch.testing.assert_close(digital(images()), analog(images()), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(digital.head.weight, model.head.weight)
