"""Weights scaled into the range of the cells: results stay, and the cells are filled."""

from __future__ import annotations

import copy
import io
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import pulsora as pl
from conftest import PERFECT
from pulsora.nn import AnalogLinear, AnalogLSTM
from pulsora.optim import AnalogSGD

IDEAL = pl.IdealConfig(**PERFECT)
DEVICE = "cuda" if torch.cuda.is_available() and pl.cuda_device_count() > 0 else "cpu"
NARROW = pl.SingleConfig(device=pl.devices.ConstantStep(w_max_dtod=0.0, w_min_dtod=0.0), **PERFECT)


@pytest.fixture(autouse=True)
def _single_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's own layers on a GPU round to 10 bits otherwise."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, groups=2)
        self.memory = nn.GRU(12, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.memory(self.conv(x).flatten(2).transpose(1, 2).reshape(
            -1, 4, 12))[0])  # fmt: skip
        return y


def trained(model: nn.Module) -> list[torch.Tensor]:
    """Outputs and gradients of some steps, and the weights after them."""
    torch.manual_seed(1)
    optimizer = AnalogSGD(model.parameters(), lr=0.02)
    seen: list[torch.Tensor] = []
    for _ in range(3):
        x = torch.randn(3, 2, 5, 6, device=DEVICE, requires_grad=True)
        optimizer.zero_grad()
        y = model(x)
        (y - 1.0).square().sum().backward()
        seen += [y.detach(), x.grad.clone()]  # type: ignore[union-attr]
        seen.append(nn.utils.clip_grad_norm_(model.parameters(), 5.0))
        optimizer.step()
    return [*seen, *(p.detach() for p in pl.convert_to_digital(model).parameters())]


@pytest.mark.parametrize("weight_scaling", ["abs_max", 0.3, 50.0])
@pytest.mark.parametrize("scaling_per", ["layer", "output"])
@pytest.mark.parametrize("digital_bias", [True, False])
def test_a_scaled_model_is_the_unscaled_one(
    weight_scaling: str | float, scaling_per: str, digital_bias: bool
) -> None:
    torch.manual_seed(0)
    model = Net().to(DEVICE)
    options: dict[str, Any] = {"digital_bias": digital_bias, "max_input_size": 5}
    plain = pl.convert_to_analog(model, IDEAL, **options)
    scaled = pl.convert_to_analog(
        model, IDEAL, weight_scaling=weight_scaling, scaling_per=scaling_per, **options
    )
    for part, size in ((scaled.conv, 4), (scaled.head, 3), (scaled.memory.hh_l0, 12)):
        omega = 1.0 if weight_scaling == "abs_max" else weight_scaling
        assert part.tiles.scales.shape == ((size,) if scaling_per == "output" else (1,))
        largest = max(float(abs(tile.weights).max()) for tile in part.tiles)
        assert largest == pytest.approx(omega, rel=1e-5)
    expected = trained(plain)
    for ours, theirs in zip(trained(scaled), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
    assert not torch.allclose(expected[-1], model.head.bias, atol=1e-2)


@pytest.mark.parametrize("scaling_per", ["layer", "output"])
def test_weights_fill_the_cells_and_are_not_confined(scaling_per: str) -> None:
    weight = torch.linspace(-8.0, 4.0, 12).reshape(3, 4)
    with pytest.warns(UserWarning, match="outside the bounds"):
        AnalogLinear(4, 3, bias=False, config=NARROW).set_weights(weight)
    layer = AnalogLinear(
        4, 3, bias=False, config=NARROW, weight_scaling="abs_max", scaling_per=scaling_per
    )
    layer.set_weights(weight)
    torch.testing.assert_close(layer.weight, weight)
    (tile,) = layer.tiles
    sizes = abs(tile.weights).max(axis=1)
    assert sizes[0] == pytest.approx(0.6)
    assert (sizes == pytest.approx([0.6] * 3)) == (scaling_per == "output")
    assert "weights up to 0.6 per" in repr(layer)


def test_the_bound_is_the_smaller_one() -> None:
    config = pl.SingleConfig(device=pl.devices.EcRam())
    layer = AnalogLinear(4, 3, config=config, weight_scaling="abs_max")
    assert layer.tiles.scaling is not None
    assert layer.tiles.scaling.omega == pytest.approx(
        0.8276 * (1.0 - 2.0 * pl.devices.EcRam().w_min_dtod)
    )
    adapter = AnalogLinear(4, 3, config=pl.LRTTConfig(rank=2), weight_scaling="abs_max")
    assert adapter.tiles.scaling is not None
    visible = pl.LRTTConfig().visible
    assert adapter.tiles.scaling.omega == pytest.approx(
        visible.w_max * (1.0 - 2.0 * visible.w_max_dtod)
    )


@pytest.mark.parametrize(
    "config",
    [
        pl.OneSidedConfig(device=pl.devices.SoftBounds(w_min=0.0, w_max=0.8, w_max_dtod=0.1)),
        pl.MixedPrecisionConfig(
            visible=pl.devices.SoftBounds(w_min=0.0, w_max=0.8, w_max_dtod=0.1), cells="one_sided"
        ),
    ],
    ids=lambda config: config.kind,
)
def test_pairs_of_one_sided_cells_reach_both_sides(config: pl.TileConfig) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(4, 3)
    made = pl.convert_to_analog(layer, config, weight_scaling="abs_max")
    (tile,) = made.tiles
    largest = float(np.abs(tile.weights).max())
    assert largest == pytest.approx(0.8 * (1.0 - 2.0 * 0.1), rel=0.1)  # a cell may reach less
    scale = float(layer.weight.detach().abs().max()) / (0.8 * 0.8)
    assert np.allclose(tile.weights * scale, layer.weight.detach().numpy(), atol=0.1 * scale)


@pytest.mark.parametrize("scaling_per", ["layer", "output"])
def test_a_scale_by_width_follows_from_the_inputs_alone(scaling_per: str) -> None:
    cells = pl.SingleConfig(device=pl.devices.ConstantStep(w_max_dtod=0.0, w_min_dtod=0.0))
    layer = AnalogLinear(48, 5, config=cells, weight_scaling="width", scaling_per=scaling_per)
    expected = (3.0 / 48) ** 0.5 / 0.6  # what cells with bounds of 0.6 are multiplied by
    layer.set_weights(0.01 * torch.randn(5, 48), torch.zeros(5))
    assert layer.tiles.scales is not None
    assert layer.tiles.scales.shape == ((1,) if scaling_per == "layer" else (5,))
    torch.testing.assert_close(layer.tiles.scales, torch.full_like(layer.tiles.scales, expected))
    assert "widths up to 0.6" in repr(layer)


def test_initial_weights_beyond_the_cells_are_told_with_what_helps() -> None:
    with pytest.warns(UserWarning, match="confined to them; give a smaller weight_scaling"):
        AnalogLinear(100, 50, config=pl.SingleConfig(), weight_scaling=10.0)


def test_few_cells_confine_what_fills_them() -> None:
    torch.manual_seed(0)
    layer = AnalogLinear(100, 100, bias=False, weight_scaling="abs_max")
    weight = 4.0 * torch.rand(100, 100) - 2.0
    layer.set_weights(weight)  # a warning would fail the test
    assert (layer.weight != 0.0).all()
    assert float((layer.weight - weight).abs().gt(1e-3).float().mean()) < 0.01


def test_pulses_move_the_weights_by_the_learning_rate_at_any_scale() -> None:
    device = pl.devices.ConstantStep(
        dw_min=1e-3, dw_min_std=0.0, dw_min_dtod=0.0, up_down_dtod=0.0, w_max=10.0, w_min=-10.0,
        w_max_dtod=0.0, w_min_dtod=0.0,
    )  # fmt: skip
    for omega in (0.1, 1.0, 2.0):
        config = pl.SingleConfig(device=device, **PERFECT)
        layer = AnalogLinear(4, 3, bias=False, config=config, seed=1, weight_scaling=omega)
        layer.set_weights(torch.full((3, 4), 0.5))
        optimizer = AnalogSGD(layer.parameters(), lr=0.01)
        for _ in range(200):
            optimizer.zero_grad()
            layer(torch.full((1, 4), 0.5)).sum().backward()
            optimizer.step()
        # 1, 10 or 20 pulses a step in trains of up to 31 slots: the mean of 12 cells and 200 steps
        # spreads by less than 0.5 %.
        moved = (layer.weight - 0.5).mean().item()
        assert moved == pytest.approx(-200 * 0.01 * 0.5, rel=0.025)


def test_a_state_keeps_the_scales_and_goes_on_to_the_bit() -> None:
    layer = AnalogLinear(4, 3, seed=1, weight_scaling="abs_max", scaling_per="output")
    layer.set_weights(torch.linspace(-3.0, 3.0, 12).reshape(3, 4), torch.zeros(3))
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other = AnalogLinear(4, 3, seed=2)  # the scales are of the state, not of the configuration
    other.load_state_dict(torch.load(file, weights_only=True))
    for each in (layer, other, copy.deepcopy(layer)):
        optimizer = AnalogSGD(each.parameters(), lr=0.1)
        each(torch.linspace(-1, 1, 8).reshape(2, 4)).square().sum().backward()
        optimizer.step()
        assert torch.equal(each.weight, layer.weight)
    other.load_state_dict(AnalogLinear(4, 3, seed=3).state_dict())
    assert other.tiles.scales is None


@pytest.mark.parametrize(
    "bad",
    [torch.zeros(3), torch.ones(2), torch.ones(3).double(), torch.tensor([1.0, float("nan"), 1.0])],
)
def test_damaged_scales_are_refused(bad: torch.Tensor) -> None:
    layer = AnalogLinear(4, 3, seed=1, weight_scaling=0.5)
    before = layer.weight
    with pytest.raises(RuntimeError, match="'scales' of a layer with 3 outputs"):
        layer.load_state_dict(AnalogLinear(4, 3, seed=2).state_dict() | {"tiles.scales": bad})
    assert torch.equal(layer.weight, before)


def test_weights_that_are_zero_need_no_scale() -> None:
    layer = AnalogLinear(2, 2, bias=False, config=IDEAL, weight_scaling=0.5, scaling_per="output")
    weight = torch.tensor([[0.0, 0.0], [1.0, -2.0]])
    layer.set_weights(weight)
    assert layer.tiles.scales is not None
    assert layer.tiles.scales.tolist() == [1.0, 4.0]
    assert torch.equal(layer.weight, weight)


# A scale that is learned


class Scaled(nn.Module):
    """A layer with learn_out_scaling, in torch's own terms."""

    def __init__(self, layer: nn.Linear, count: int) -> None:
        super().__init__()
        self.layer = layer
        self.out_scaling = nn.Parameter(torch.ones(count, device=DEVICE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.layer.weight.T * self.out_scaling + self.layer.bias


@pytest.mark.parametrize("weight_scaling", [None, "abs_max"])
@pytest.mark.parametrize(("scaling_per", "count"), [("layer", 1), ("output", 3)])
def test_a_learned_scale_trains_as_a_parameter_of_torch(
    weight_scaling: str | None, scaling_per: str, count: int
) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(4, 3, device=DEVICE)
    analog = pl.convert_to_analog(
        linear,
        IDEAL,
        weight_scaling=weight_scaling,
        scaling_per=scaling_per,
        learn_out_scaling=True,
    )
    assert isinstance(analog, AnalogLinear)
    digital = Scaled(linear, count)
    x = torch.randn(5, 4, device=DEVICE)
    for model, make in ((analog, AnalogSGD), (digital, torch.optim.SGD)):
        optimizer = make(model.parameters(), lr=0.05)
        for _ in range(3):
            optimizer.zero_grad()
            (model(x) - 2.0).square().sum().backward()
            optimizer.step()
    assert analog.out_scaling is not None
    assert not torch.allclose(analog.out_scaling, torch.ones_like(analog.out_scaling))
    torch.testing.assert_close(analog.out_scaling, digital.out_scaling, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(analog(x), digital(x), rtol=1e-3, atol=1e-4)
    back = pl.convert_to_digital(analog)
    torch.testing.assert_close(back(x), digital(x), rtol=1e-3, atol=1e-4)
    other = AnalogLinear(4, 3, config=IDEAL, scaling_per=scaling_per, learn_out_scaling=True)
    other.cpu().load_state_dict(analog.state_dict())
    torch.testing.assert_close(other.weight, analog.weight.cpu())
    analog.set_weights(linear.weight, linear.bias)
    assert torch.equal(analog.out_scaling, torch.ones_like(analog.out_scaling))


def test_recurrent_layers_hand_the_scaling_on() -> None:
    layer = AnalogLSTM(3, 4, config=IDEAL, weight_scaling=0.5, learn_out_scaling=True)
    names = {name for name, _ in layer.named_parameters()}
    assert {"ih_l0.out_scaling", "hh_l0.out_scaling"} <= names


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight_scaling": 0.0}, "weight_scaling = 0.0: write None, 'abs_max'"),
        ({"weight_scaling": float("inf")}, "weight_scaling = inf"),
        ({"weight_scaling": True}, "weight_scaling = True"),
        ({"weight_scaling": "max"}, "weight_scaling = 'max'"),
        ({"weight_scaling": [0.5]}, r"weight_scaling = \[0.5\]: write None, 'abs_max', 'sigma'"),
        ({"weight_scaling": 1.0, "scaling_per": "column"}, "scaling_per = 'column': write 'layer'"),
        (
            {"weight_scaling": 1.0, "config": pl.LRTTConfig(rank=2, projection="reuse",
                                                             forward_inject=True)},
            "does not go with projection = 'reuse'",
        ),
        (
            {"weight_scaling": "abs_max",
             "config": pl.SingleConfig(device=pl.devices.ConstantStep(w_min=0.0))},
            "cells of ConstantStep have bounds",
        ),
    ],
)  # fmt: skip
def test_scalings_that_do_not_exist_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AnalogLinear(4, 3, **options)
