"""Layers and tiles whose cells follow a digital weight by pulses."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

import pulsora as pl
from pulsora.nn import AnalogConv2d, AnalogLinear
from pulsora.optim import AnalogSGD
from unusual_optimizers import DataSGD, Wrapped

if TYPE_CHECKING:
    from numpy.typing import NDArray

Make = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]

IDEAL = {"dw_min_dtod": 0.0, "dw_min_std": 0.0, "up_down_dtod": 0.0}
SHARP = IDEAL | {"w_max_dtod": 0.0, "w_min_dtod": 0.0}
STEP = 0.01
PERFECT = {name: pl.IOParameters(is_perfect=True) for name in ("forward", "backward")}


def cells(**settings: Any) -> pl.devices.Device:
    return pl.devices.ConstantStep(**{"dw_min": STEP, "w_max": 1.0, "w_min": -1.0, **settings})


def config(**settings: Any) -> pl.MixedPrecisionConfig:
    return pl.MixedPrecisionConfig(**({"visible": cells(**SHARP), **PERFECT} | settings))


def model(seed: int = 0, **settings: Any) -> nn.Sequential:
    torch.manual_seed(seed)
    made = config(**({"visible": cells()} | settings))
    return nn.Sequential(
        AnalogLinear(12, 16, config=made),
        nn.Tanh(),
        AnalogLinear(16, 3, config=made, weight_scaling="sigma", scaling_per="output"),
    )


def batches(count: int = 6) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(count, 20, 12, generator=generator)
    return [(each, torch.tanh(each[:, :3])) for each in x]


def step(
    net: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor
) -> None:
    optimizer.zero_grad()
    nn.functional.mse_loss(net(x), y).backward()
    optimizer.step()


class Oracle:
    """Numbers of pulses in double precision: n = trunc((M - sent) / unit), at most `most`."""

    def __init__(self, start: NDArray[np.float32], most: int = 31) -> None:
        self.sent = start.astype(np.float64)
        self.most = most

    def follow(self, master: NDArray[np.float32]) -> NDArray[np.float64]:
        lag = master.astype(np.float64) - self.sent
        n = np.clip(np.trunc(lag / STEP), -self.most, self.most)
        self.sent += n * STEP
        return n


def test_pulses_are_whole_steps_of_the_lag() -> None:
    rng = np.random.default_rng(0)
    tile = pl.Tile(5, 7, config(bl_max=3), seed=1)
    start = rng.uniform(-0.3, 0.3, (5, 7)).astype(np.float32)
    tile.weights = start
    oracle, expected = Oracle(start, most=3), start.astype(np.float64)
    pulses = 0
    for _ in range(20):
        master = (start + rng.uniform(-0.05, 0.05, (5, 7)) + 0.0005).astype(np.float32)
        n = oracle.follow(master)
        expected += n * STEP
        pulses += int(np.abs(n).sum())
        tile.follow(master)
        np.testing.assert_allclose(tile.weights, expected, atol=2e-5)
        np.testing.assert_allclose(tile.state().tensors["sent"], oracle.sent, atol=2e-5)
    assert tile.statistics()["pulses"] == pulses > 0
    assert tile.counters["mini_batches"] == 20


def test_rows_follow_one_after_another() -> None:
    tile = pl.Tile(4, 3, config(n_rows_per_transfer=1, transfer_every=2), seed=1)
    master = np.full((4, 3), 0.055, np.float32)
    for batch in range(1, 9):
        tile.follow(master)
        sent = min(batch // 2, 4)
        expected = np.zeros((4, 3))
        expected[:sent] = 0.05
        np.testing.assert_allclose(tile.weights, expected, atol=1e-6)


def test_updates_without_a_master_are_added_up_and_join_it() -> None:
    tile = pl.Tile(2, 3, config(), seed=1)
    x, d = np.ones((1, 3), np.float32), np.array([[1.0, -1.0]], np.float32)
    tile.update(x, d, 0.006)
    np.testing.assert_allclose(tile.weights, 0.0)
    np.testing.assert_allclose(tile.state().tensors["owed"][:, 0], [-0.006, 0.006], atol=1e-7)
    tile.update(x, d, 0.006)
    np.testing.assert_allclose(tile.weights[:, 0], [-0.01, 0.01], atol=1e-7)
    tile.follow(np.full((2, 3), 0.009, np.float32))  # and 0.002 is owed
    np.testing.assert_allclose(tile.weights[:, 0], [-0.01, 0.02], atol=1e-7)
    np.testing.assert_allclose(tile.state().tensors["owed"], 0.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-4),
        lambda p: torch.optim.AdamW(p, lr=0.01),
        lambda p: torch.optim.Adam(p, lr=0.01, foreach=False),
        lambda p: AnalogSGD(p, lr=0.3),
        lambda p: DataSGD(p, lr=0.3),
        lambda p: Wrapped(torch.optim.SGD(p, lr=0.3)),
    ],
    ids=["momentum", "adamw", "adam", "analog_sgd", "data", "wrapped"],
)
def test_any_optimiser_trains_and_cells_follow_each_step(make: Make) -> None:
    net = model(visible=cells(**SHARP))
    optimizer = make(net.parameters())
    losses = []
    for _ in range(10):
        for number, (x, y) in enumerate(batches()):
            step(net, optimizer, x, y)
            losses.append(nn.functional.mse_loss(net(x), y).item())
            assert net[0].tiles.grid[0][0].counters["mini_batches"] == len(losses), number
    assert np.mean(losses[-6:]) < 0.5 * losses[0]
    for layer in (net[0], net[2]):
        scales = 1.0 if layer.tiles.scales is None else layer.tiles.scales[:, None]
        found = layer.tiles.get_weights() / scales
        lag = (layer.weight.detach() / scales - found).abs()
        # Pulses against a bound are lost, also of cells that leave it again.
        assert (lag < STEP + 1e-5).double().mean() > 0.8


def test_the_gradient_is_that_of_torch() -> None:
    net = model()
    digital = nn.Linear(12, 16)
    with torch.no_grad():
        digital.weight.copy_(net[0].get_weights()[0])
        digital.bias.copy_(net[0].bias)
    x, _ = batches()[0]
    for layer in (net[0], digital):
        layer(x).square().sum().backward()
    torch.testing.assert_close(net[0].weight.grad, digital.weight.grad, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(net[0].bias.grad, digital.bias.grad, atol=1e-4, rtol=1e-4)


def test_writes_to_the_parameter_are_followed_before_the_next_read() -> None:
    layer = AnalogLinear(3, 2, config=config(), seed=1, bias=False)
    layer.set_weights(torch.zeros(2, 3))
    with torch.no_grad():
        layer.weight.add_(0.055)
    tile = next(iter(layer.tiles))
    assert tile.statistics()["pulses"] == 0
    y = layer(torch.ones(1, 3))
    torch.testing.assert_close(y.detach(), torch.full((1, 2), 0.15))
    layer(torch.ones(1, 3))
    assert tile.counters["mini_batches"] == 1
    with torch.no_grad():
        layer.weight.add_(0.02)
    torch.testing.assert_close(layer.get_weights()[0], torch.full((2, 3), 0.07))


def test_a_scaler_that_skips_a_step_sends_nothing() -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    x, y = batches()[0]
    scaler.scale(nn.functional.mse_loss(net(x), y)).backward()
    net[0].weight.grad[0, 0] = float("inf")
    scaler.step(optimizer)
    scaler.update()
    assert net[0].tiles.grid[0][0].counters["mini_batches"] == 0
    optimizer.zero_grad()
    scaler.scale(nn.functional.mse_loss(net(x), y)).backward()
    scaler.step(optimizer)
    assert net[0].tiles.grid[0][0].counters["mini_batches"] == 1


def weights_of(net: nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in net.parameters()] + [
        torch.from_numpy(tile.weights.copy()) for layer in (net[0], net[2]) for tile in layer.tiles
    ]


@pytest.mark.parametrize("way", ["state_dict", "deepcopy", "pickle"])
def test_property_38_a_run_goes_on_to_the_bit(way: str) -> None:
    net = model(visible=pl.devices.SoftBounds(dw_min=STEP, lifetime=30.0, diffusion=0.001))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.02)
    for x, y in batches(3):
        step(net, optimizer, x, y)
    saved = io.BytesIO()
    if way == "state_dict":
        torch.save(net.state_dict(), saved)
        saved.seek(0)
        other = model(seed=9, visible=net[0].config.visible)
        other.load_state_dict(torch.load(saved, weights_only=True))
    elif way == "deepcopy":
        other = copy.deepcopy(net)
    else:
        other = pickle.loads(pickle.dumps(net))  # noqa: S301 - made here
    theirs = torch.optim.AdamW(other.parameters(), lr=0.02)
    theirs.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for x, y in batches(5)[3:]:
        step(net, optimizer, x, y)
        step(other, theirs, x, y)
    for mine, its in zip(weights_of(net), weights_of(other), strict=True):
        assert torch.equal(mine, its)


def test_a_state_of_torch_is_written_to_the_cells() -> None:
    layer = AnalogLinear(4, 3, config=config(), seed=1)
    digital = nn.Linear(4, 3)
    layer.load_state_dict(digital.state_dict())
    torch.testing.assert_close(layer.get_weights()[0], digital.weight.detach())
    assert next(iter(layer.tiles)).counters["mini_batches"] == 0


def test_convolutions_with_groups_follow() -> None:
    layer = AnalogConv2d(4, 6, 3, groups=2, config=config(), seed=1, max_input_size=10)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    x = torch.randn(3, 4, 6, 6, generator=torch.Generator().manual_seed(1))
    digital = nn.Conv2d(4, 6, 3, groups=2)
    with torch.no_grad():
        digital.weight.copy_(layer.weight)
        digital.bias.copy_(layer.bias)
    torch.testing.assert_close(layer(x), digital(x), atol=1e-5, rtol=1e-5)
    layer(x).square().mean().backward()
    digital(x).square().mean().backward()
    torch.testing.assert_close(layer.weight.grad, digital.weight.grad, atol=1e-4, rtol=1e-4)
    optimizer.step()
    lag = layer.weight.detach().reshape(6, -1) - layer.tiles.get_weights()
    assert lag.abs().max() < STEP + 1e-5
    assert layer.weight.grad is not None
    assert sum(tile.statistics()["pulses"] for tile in layer.tiles) > 0


def test_sigma_makes_three_deviations_the_range() -> None:
    torch.manual_seed(1)
    wanted = torch.randn(40, 60) * 0.2
    layer = AnalogLinear(60, 40, bias=False, config=config(), weight_scaling="sigma")
    layer.set_weights(wanted)
    expected = 3.0 * wanted.std(correction=0)  # the range of these cells is 1
    torch.testing.assert_close(layer.tiles.scales, expected[None], rtol=1e-5, atol=0)


def test_calibration_finds_symmetric_points() -> None:
    soft = pl.devices.SoftBounds(dw_min=0.01, up_down_dtod=0.3)
    wide = cells(**SHARP)
    made = config(visible=soft, cells="reference", reference=wide, reference_start="zero")
    tile = pl.Tile(20, 30, made, seed=2)
    wanted = np.random.default_rng(0).uniform(-0.2, 0.2, (20, 30)).astype(np.float32)
    tile.weights = wanted
    before = tile.weights.copy()
    exact = tile.calibrate()
    assert exact["error_rms"] < 1e-6
    assert np.std(tile.arrays["reference"]) > 0.02
    # Weights stay where the bounds of the visible cells let them.
    assert np.mean(np.abs(tile.weights - before) < 1e-5) > 0.95
    few, many = tile.calibrate(pulses=10), tile.calibrate(pulses=400)
    assert few["error_rms"] > many["error_rms"] > exact["error_rms"]
    assert few["pulse_pairs"] == 10


def test_cells_without_symmetric_points_are_not_calibrated() -> None:
    uneven = cells(up_down=0.5, **SHARP)
    tile = pl.Tile(3, 4, config(visible=uneven, cells="reference", reference=uneven), seed=2)
    before = tile.arrays["reference"].copy()
    with pytest.raises(pl.ConfigError, match="12 of 12 cells of visible have no symmetric point"):
        tile.calibrate()
    assert np.array_equal(tile.arrays["reference"], before)
    with pytest.raises(pl.ConfigError, match="no array of references"):
        pl.Tile(3, 4, config(), seed=1).calibrate()
    with pytest.raises(pl.ConfigError, match="pulses is -1"):
        tile.calibrate(pulses=-1)


REFUSED = {
    "update.pulse_type is 'none'": {"update": pl.UpdateParameters(pulse_type="none")},
    "n_rows_per_transfer is 9": {"n_rows_per_transfer": 9},
    "gamma_vec: a pulse changes the weight by 0": {
        "cells": "vector",
        "others": [cells(**SHARP)],
        "gamma_vec": [1.0, -1.0],
    },
}


@pytest.mark.parametrize("message", REFUSED)
def test_tiles_that_cannot_follow_are_refused(message: str) -> None:
    with pytest.raises(pl.ConfigError, match=message.replace(".", r"\.")):
        pl.Tile(3, 4, config(**REFUSED[message]), seed=1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_x_bins": 1}, "n_x_bins is 1"),
        ({"n_d_bins": 1}, "n_d_bins is 1"),
        ({"cells": "vector", "gamma_vec": [1.0, 2.0, 3.0]}, "gamma_vec has 3 factors"),
        ({"gamma_vec": [1.0, 2.0]}, "gamma_vec is .1, 2., but only cells = 'vector'"),
        ({"bl_max": 0}, "bl_max is 0"),
        ({"granularity": -1.0}, "granularity is -1"),
        ({"reference_pulses": 5}, "reference_pulses is 5"),
        ({"cells": "pair"}, "cells is 'pair'"),
        ({"transfer_lr": 0.0}, "transfer_lr is 0"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(pl.ConfigError, match=message):
        config(**settings)


def test_masters_that_are_not_finite_are_refused_and_change_nothing() -> None:
    net = model()
    before = weights_of(net)[4:]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net(batches()[0][0]).sum().backward()
    net[0].weight.grad[1, 2] = float("nan")
    with pytest.raises(ValueError, match=r"master\[1, 2\] is nan"):
        optimizer.step()
    for mine, now in zip(before[:1], weights_of(net)[4:5], strict=True):
        assert torch.equal(mine, now)
    tile = pl.Tile(2, 3, config(digital_weight=False), seed=1)
    with pytest.raises(pl.ConfigError, match="digital_weight is False"):
        tile.follow(np.zeros((2, 3), np.float32))
    with pytest.raises(ValueError, match="digital bias"):
        AnalogLinear(3, 2, config=config(), digital_bias=False)


def test_without_a_digital_weight_layers_keep_their_weight_in_cells() -> None:
    torch.manual_seed(0)
    layer = AnalogLinear(12, 3, config=config(digital_weight=False))
    optimizer = AnalogSGD(layer.parameters(), lr=0.5)
    losses = []
    for x, y in batches(6) * 5:
        step(layer, optimizer, x, y)
        losses.append(nn.functional.mse_loss(layer(x), y).item())
    assert losses[-1] < 0.5 * losses[0]
    assert [name for name, _ in layer.named_parameters()] == ["analog_weight", "bias"]


def test_explain_names_what_a_transfer_cannot_send() -> None:
    tile = pl.Tile(2, 3, config(bl_max=2), seed=1)
    x, d = np.ones((4, 3), np.float32), np.ones((4, 2), np.float32)
    told = tile.explain(x, d, 0.01)
    assert told["largest_steps"] == pytest.approx(4.0, rel=1e-5)
    assert "raise bl_max" in told.warnings[0]
    assert not tile.explain(x, d, 0.001).warnings


class Tied(nn.Module):
    """Two layers with one weight, whose cells decay at the end of each mini-batch."""

    def __init__(self) -> None:
        super().__init__()
        leaky = config(visible=cells(lifetime=50.0))
        self.first = AnalogLinear(4, 4, config=leaky, seed=1)
        self.second = AnalogLinear(4, 4, config=leaky, seed=2)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)))


def test_loading_layers_with_one_weight_counts_no_mini_batch() -> None:
    torch.manual_seed(0)
    trained, loaded = Tied(), Tied()
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (trained, loaded)]
    x = torch.randn(3, 8, 4)
    for rows in x[:2]:
        step(trained, optimizers[0], rows, rows)
    loaded.load_state_dict(trained.state_dict())
    saved = [each.state_dict() for each in (trained, loaded)]
    assert all(torch.equal(value, saved[1][name]) for name, value in saved[0].items())
    for each, optimizer in zip((trained, loaded), optimizers, strict=True):
        step(each, optimizer, x[2], x[2])
    assert torch.equal(trained.first.get_weights()[0], loaded.first.get_weights()[0])
    assert torch.equal(trained.second.get_weights()[0], loaded.second.get_weights()[0])
