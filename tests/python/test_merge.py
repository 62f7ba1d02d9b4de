"""`pulsora.merge` with inputs: cells within reach make up for those that miss their weights."""

from __future__ import annotations

import copy
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pytest
import torch
from torch import nn

import pulsora as pl
from conftest import DEVICES
from pulsora.nn import AnalogConv2d, AnalogLinear
from pulsora.nn.base import AnalogModule

if TYPE_CHECKING:
    from collections.abc import Callable

BOUND, TOLERANCE, DAMPING = 0.3, 1e-3, 0.1
STILL: Any = dict.fromkeys(
    ("dw_min_dtod", "dw_min_std", "up_down_dtod", "w_max_dtod", "w_min_dtod"), 0.0
)


def config(**settings: Any) -> pl.LRTTConfig:
    """Quiet cells with small bounds, and an adapter that goes beyond them."""
    cells = pl.devices.ConstantStep(dw_min=2.0**-11, w_max=BOUND, w_min=-BOUND, **STILL)
    fast = pl.devices.ConstantStep(dw_min=1e-5, w_max=4.0, w_min=-4.0, **STILL)
    settings = {"rank": 3, "lora_alpha": 1, "transfer_every": 0} | settings
    settings = {"transfer_mode": "write_verify", "transfer_tolerance": TOLERANCE} | settings
    return pl.LRTTConfig(visible=cells, fast=fast, **settings)


Layer = TypeVar("Layer", bound=AnalogModule)


def filled(layer: Layer, size: float = 0.18) -> Layer:
    """The layer with values in its adapters, for which some weights are out of reach."""
    rng = np.random.default_rng(1)
    for tile in layer.tiles:
        for name in ("a", "b"):
            shape = getattr(tile.adapter, name).shape
            setattr(tile.adapter, name, (size**0.5 * rng.normal(size=shape)).astype(np.float32))
    return layer.eval()


def correlated(rows: int, columns: int) -> torch.Tensor:
    """Inputs [rows, columns] that depend on one another."""
    generator = torch.Generator().manual_seed(2)
    few = torch.randn(rows, 4, generator=generator) @ torch.randn(4, columns, generator=generator)
    return few + 0.3 * torch.randn(rows, columns, generator=generator)


def made_up(wanted: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The weights of bounded cells: least squares by numpy, anew while further cells clip."""
    size = DAMPING * np.mean(np.sum(x**2, axis=0))
    inputs = np.vstack([x, np.sqrt(size) * np.eye(x.shape[1])])
    found = np.clip(wanted, -BOUND, BOUND)
    for row, target in zip(found, wanted, strict=True):
        missed = np.abs(row - target) > TOLERANCE
        for _ in range(2):
            errors = inputs[:, missed] @ (row - target)[missed]
            free = np.linalg.lstsq(inputs[:, ~missed], -errors, rcond=None)[0]
            aims = target[~missed] + free
            row[~missed] = np.clip(aims, -BOUND, BOUND)
            missed[~missed] = np.abs(row[~missed] - aims) > TOLERANCE
    return found


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("options", [{}, {"max_input_size": 8, "max_output_size": 5}])
def test_cells_take_the_weights_of_least_squares(device: str, options: dict[str, int]) -> None:
    layer = filled(AnalogLinear(20, 12, config=config(), seed=3, **options).to(device))
    wanted = np.asarray(layer.get_weights()[0].cpu(), np.float64)
    outside = np.abs(wanted) > BOUND
    assert 0.02 < outside.mean() < 0.4
    x = correlated(200, 20)
    report = pl.merge(layer, x.to(device).split(64))
    assert len(report[""]) == len(layer.tiles)
    now = np.asarray(layer.get_weights()[0].cpu(), np.float64)
    expected = made_up(wanted, np.asarray(x, np.float64))
    # A cell ends within the tolerance, but for half a step of it.
    np.testing.assert_allclose(now, expected, atol=5 * TOLERANCE)
    assert np.abs(now - np.clip(wanted, -BOUND, BOUND)).max() > 0.05


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "make",
    [
        lambda: AnalogLinear(20, 12, config=config(), seed=3, weight_scaling=0.25),
        lambda: AnalogLinear(20, 12, config=config(), seed=3, digital_bias=False),
        lambda: AnalogLinear(20, 12, config=config(verify_read="analog"), seed=3),
        lambda: AnalogLinear(20, 12, config=config(swap_xd=True), seed=3),
        lambda: AnalogConv2d(4, 12, 3, config=config(), seed=3, groups=2),
    ],
)
def test_outputs_change_less_than_by_a_merge_without_inputs(
    device: str, make: Callable[[], AnalogModule]
) -> None:
    torch.manual_seed(5)
    layer = filled(make().to(device))
    x = correlated(256, 20)
    if isinstance(layer, AnalogConv2d):
        small = correlated(256, 16).reshape(256, 4, 2, 2)
        x = nn.functional.interpolate(small, size=(5, 6), mode="bilinear")
    x = x.to(device)

    def outputs(some: AnalogModule) -> torch.Tensor:
        weight = some.weight.detach() * 1.0
        bias = some.get_weights()[1]
        if isinstance(some, AnalogConv2d):
            return nn.functional.conv2d(x, weight.reshape(12, 2, 3, 3), bias, groups=2)
        return nn.functional.linear(x, weight, bias)

    before = outputs(layer)
    plain = copy.deepcopy(layer)
    pl.merge(plain)
    pl.merge(layer, [(x[:32], None), (x[32:], None)])
    errors = [float((outputs(each) - before).square().mean()) for each in (plain, layer)]
    assert errors[1] < 0.35 * errors[0]
    for tile in layer.tiles:
        assert np.max(np.abs(tile.adapter.a)) < 1e-4


def test_where_all_weights_are_within_reach_inputs_change_nothing() -> None:
    layer = filled(AnalogLinear(20, 12, config=config(), seed=3), size=0.01)
    other = copy.deepcopy(layer)
    pl.merge(layer)
    pl.merge(other, [correlated(50, 20)])
    for left, right in zip(layer.get_weights(), other.get_weights(), strict=True):
        assert left is right is None or torch.equal(left, right)


def test_inputs_may_have_names_and_the_model_may_be_larger() -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = AnalogLinear(6, 5, config=config(), seed=1)
            self.two = AnalogLinear(5, 3, config=config(), seed=2)
            self.digital = nn.Linear(3, 2)

        def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.digital(self.two(torch.relu(self.one(first + second))))
            return y

    model = Sum().eval()
    filled(model.one)
    filled(model.two)
    x = correlated(40, 6)
    one = copy.deepcopy(model.one)
    report = pl.merge(model, [{"first": x, "second": 0.5 * x}])
    assert list(report) == ["one", "two"]
    assert model.one.tiles.seen is None
    pl.merge(one, 1.5 * x)  # a tensor is one batch
    assert torch.equal(*(each.get_weights()[0] for each in (one, model.one)))


def nothing_changed(model: nn.Module, call: Callable[[], object], match: str) -> None:
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises((ValueError, TypeError), match=match):
        call()
    after = model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_inputs_that_help_nothing_are_refused() -> None:
    layer = filled(AnalogLinear(6, 5, config=config(), seed=3))
    x = correlated(9, 6)
    layer.train()
    nothing_changed(layer, lambda: pl.merge(layer, [x]), r"training mode; call eval\(\)")
    layer.eval()
    nothing_changed(layer, lambda: pl.merge(layer, []), "layer '' got no input but 0")
    nothing_changed(layer, lambda: pl.merge(layer, [0 * x]), "layer '' got no input but 0")
    nothing_changed(layer, lambda: pl.merge(layer, x[:0]), "layer '' got no input but 0")
    nothing_changed(layer, lambda: pl.merge(layer, [()]), r"batches\[0\] = \(\): give an input")
    for given in (5, "x", {"x": x}):
        nothing_changed(layer, partial(pl.merge, layer, given), r"type \w+; give a list of inputs")
    bad = x.clone()
    bad[3, 2] = torch.nan
    perfect = pl.IOParameters(is_perfect=True)
    ideal = filled(AnalogLinear(6, 5, config=config(forward=perfect, backward=perfect)))
    nothing_changed(layer, lambda: pl.merge(layer, [x, bad]), "finite")
    nothing_changed(ideal, lambda: pl.merge(ideal, [x, bad]), "finite")
    several = copy.deepcopy(layer)
    several.tiles.process_group = SimpleNamespace(gathers=True)
    with pytest.raises(ValueError, match="trained by several processes"):
        pl.merge(several, [x])
    trains = filled(
        AnalogLinear(6, 5, config=config(transfer_mode="verified", transfer_tolerance="auto"))
    )
    nothing_changed(trains, lambda: pl.merge(trains, [x]), "choose transfer_mode='write_verify'")


@pytest.mark.parametrize("device", DEVICES)
def test_a_tile_is_merged_to_given_weights(device: str) -> None:
    tile = pl.Tile(7, 9, config(), seed=4, device=device)
    tile.adapter.b = np.ones((3, 9), np.float32)
    tile.adapter.a = np.full((7, 3), 0.05, np.float32)
    assert tile.adapter.tolerance == pytest.approx(TOLERANCE)
    wanted = np.random.default_rng(6).uniform(-0.25, 0.25, (7, 9)).astype(np.float32)
    report = tile.adapter.merge(wanted)
    now = np.asarray(tile.arrays["visible"])
    assert np.max(np.abs(now - wanted)) < TOLERANCE
    assert np.max(np.abs(tile.adapter.a)) < 1e-4
    error = np.sqrt(np.mean((np.float64(wanted) - now) ** 2))
    assert report["error"] == pytest.approx(error, rel=0.02)


def test_given_weights_have_the_same_bits_on_a_gpu() -> None:
    if len(DEVICES) < 2:
        pytest.skip("needs a GPU")
    results = []
    for device in DEVICES:
        cells = pl.LRTTConfig(visible=pl.presets.ReRamSB(), rank=4, transfer_every=0)
        tile = pl.Tile(40, 60, cells, seed=7, device=device)
        wanted = np.random.default_rng(8).normal(0, 0.5, (40, 60)).astype(np.float32)
        counts = tile.adapter.merge(wanted)
        results.append((counts, tile.arrays["visible"], tile.adapter.a))
    assert results[0][0] == results[1][0]
    for left, right in zip(results[0][1:], results[1][1:], strict=True):
        np.testing.assert_array_equal(left, right)


def test_weights_that_do_not_fit_are_refused() -> None:
    tile = pl.Tile(7, 9, config(), seed=4)
    before = tile.state()
    bad = np.zeros((7, 9), np.float32)
    bad[2, 3] = np.nan
    for weights, match in (
        (np.zeros((9, 7), np.float32), "weights"),
        (np.zeros(9, np.float32), "weights is a matrix"),
        (bad, "weights"),
    ):
        with pytest.raises(pl.InputError, match=match):
            tile.adapter.merge(weights)
    other = pl.Tile(7, 9, config(transfer_mode="verified", transfer_tolerance="auto"))
    with pytest.raises(pl.ConfigError, match="choose 'write_verify'"):
        other.adapter.merge(np.zeros((7, 9), np.float32))
    assert other.adapter.tolerance == 0.0
    after = tile.state()
    assert before.values == after.values
    assert all(np.array_equal(before.tensors[name], after.tensors[name]) for name in before.tensors)


def test_tiles_are_merged_by_their_adapters() -> None:
    tile = pl.Tile(3, 4, config(), seed=1)
    with pytest.raises(TypeError, match=r"model is a Tile; call tile.adapter.merge\(\)"):
        pl.merge(tile)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a Tile without an adapter, so that there is nothing to"):
        pl.merge(pl.Tile(3, 4, seed=1))  # type: ignore[arg-type]
