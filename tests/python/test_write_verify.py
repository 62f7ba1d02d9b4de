"""Transfers by program and verify through layers, and `pulsora.merge`."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import pulsora as pl
from conftest import DEVICES
from pulsora.nn import AnalogLinear
from pulsora.optim import AnalogSGD

WRITE_NOISE = 0.0182 * 0.001981  # standard deviation, of the cells of A and B


def model(seed: int, device: str, preset: str = "ReRamES", **settings: object) -> nn.Module:
    """Two analog layers on cells that hold what they are written to poorly."""
    cells = getattr(pl.presets, preset)()
    config = pl.LRTTConfig(
        rank=6, visible=cells, transfer_every=0, transfer_mode="write_verify", **settings
    )
    torch.manual_seed(seed)
    layers = [AnalogLinear(32, 24, config=config, seed=7), nn.Tanh()]
    layers.append(AnalogLinear(24, 6, config=config, seed=8))
    return nn.Sequential(*layers).to(device)


def trained(net: nn.Module, steps: int = 60) -> nn.Module:
    """The network after some steps towards fixed targets."""
    generator = torch.Generator().manual_seed(3)
    device = next(net.parameters()).device
    x = torch.randn(64, 32, generator=generator).to(device)
    y = torch.randn(64, 6, generator=generator).to(device)
    optimizer = AnalogSGD(net.parameters(), lr=0.2)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()
    return net


def weights(layer: AnalogLinear) -> np.ndarray:
    return np.asarray(layer.get_weights()[0].cpu(), np.float64)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("preset", ["ReRamES", "ReRamSB", "EcRam"])
def test_a_merge_leaves_the_weight_in_w(device: str, preset: str) -> None:
    net = trained(model(1, device, preset))
    before = [weights(net[0]), weights(net[2])]
    report = pl.merge(net)
    assert list(report) == ["0", "2"]
    for layer, was in zip((net[0], net[2]), before, strict=True):
        (tile,) = layer.tiles
        # A was written with 0, and has the write noise of its cells.
        assert np.max(np.abs(tile.adapter.a)) < 5 * WRITE_NOISE
        now = np.asarray(tile.arrays["visible"], np.float64)
        np.testing.assert_allclose(now, weights(layer), atol=1e-3)
        (statistics,) = report["0" if layer is net[0] else "2"]
        # The account is of the change; float32 rounds both sides.
        assert np.sqrt(np.mean((was - now) ** 2)) == pytest.approx(statistics["error"], rel=0.02)
        assert statistics["outside_cells"] <= 0.03 * now.size
    trained(net, 5)


@pytest.mark.parametrize("device", DEVICES)
def test_the_effective_weight_moves_less_where_the_rest_is_kept(device: str) -> None:
    changes = []
    for keep in (True, False):
        net = trained(model(2, device, keep_rest=keep))
        (tile,) = net[0].tiles
        before = weights(net[0])
        tile.adapter.transfer()
        changes.append(float(np.linalg.norm(weights(net[0]) - before)))
    assert changes[0] < 0.95 * changes[1]


def test_cpu_and_gpu_have_one_result() -> None:
    if len(DEVICES) < 2:
        pytest.skip("needs a GPU")
    results = []
    for device in DEVICES:
        net = model(3, "cpu")
        for layer in (net[0], net[2]):
            (tile,) = layer.tiles
            rng = np.random.default_rng(0)
            tile.adapter.a = rng.normal(0, 0.3, tile.adapter.a.shape).astype(np.float32)
        net.to(device)
        for layer in (net[0], net[2]):
            (tile,) = layer.tiles
            for _ in range(3):
                tile.adapter.transfer()
        results.append([t.adapter.a for t in (*net[0].tiles, *net[2].tiles)])
        results[-1] += [t.arrays["visible"] for t in (*net[0].tiles, *net[2].tiles)]
    for left, right in zip(*results, strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("shape", [(40, 60), (90, 41), (16, 1500), (130, 130)])
@pytest.mark.parametrize("preset", ["EcRam", "ReRamES", "ReRamSB", "GokmenVlasov"])
def test_every_cell_has_the_same_rounds_on_a_gpu(preset: str, shape: tuple[int, int]) -> None:
    if len(DEVICES) < 2:
        pytest.skip("needs a GPU")
    results = []
    for device in DEVICES:
        config = pl.LRTTConfig(visible=pl.presets.device(preset), rank=4, transfer_every=0)
        tile = pl.Tile(*shape, config, seed=7, device=device)
        rng = np.random.default_rng(8)
        for _ in range(2):
            tile.adapter.a = rng.normal(0, 0.3, tile.adapter.a.shape).astype(np.float32)
            tile.adapter.b = rng.normal(0, 0.5, tile.adapter.b.shape).astype(np.float32)
            tile.adapter.transfer()
        results.append((tile.statistics()["last_transfer"], tile.arrays["visible"], tile.adapter.a))
    (counts, *cpu), (same, *gpu) = results
    assert counts == same
    for left, right in zip(cpu, gpu, strict=True):
        np.testing.assert_array_equal(left, right)


def test_what_cannot_be_merged_is_refused() -> None:
    single = nn.Sequential(AnalogLinear(4, 3, config=pl.SingleConfig()))
    with pytest.raises(ValueError, match="no layer with an LRTT adapter"):
        pl.merge(single)
    with pytest.raises(ValueError, match="no layer with an LRTT adapter"):
        pl.merge(nn.Linear(4, 3))


def test_a_copy_goes_on_to_the_bit() -> None:
    net = trained(model(4, "cpu"))
    other = copy.deepcopy(net)
    for each in (net, other):
        pl.merge(each)
        trained(each, 5)
    np.testing.assert_array_equal(weights(net[0]), weights(other[0]))


def test_explain_tells_what_write_noise_leaves() -> None:
    cells = pl.presets.ReRamES()
    config = pl.LRTTConfig(visible=cells, transfer_mode="write_verify", transfer_rounds=2)
    tile = pl.Tile(8, 8, config)
    x, d = np.ones((1, 8), np.float32), np.ones((1, 8), np.float32)
    explained = tile.explain(x, d, 0.1)
    transfer = explained.settings["transfer"]
    assert transfer["tolerance"] == pytest.approx(0.02)
    # P(|N(0, 0.10125)| > 0.02) = 0.8434. The first of two draws may miss 0.04 (0.6928) to be kept.
    missed = (0.8434 - 0.6928) + 0.6928 * 0.8434
    assert transfer["missed_cells"] == pytest.approx(missed, rel=1e-3)
    assert any("transfer_tolerance" in warning for warning in explained.warnings)


def wanted_changes(tile: pl.Tile) -> np.ndarray:
    """Sets A and B; returns the magnitudes of the changes of W that they stand for."""
    rng = np.random.default_rng(1)
    tile.adapter.b = rng.normal(0.0, 0.4, tile.adapter.b.shape).astype(np.float32)
    tile.adapter.a = rng.normal(0.0, 0.4, tile.adapter.a.shape).astype(np.float32)
    wanted = np.abs(np.asarray(tile.weights, np.float64) - tile.arrays["visible"])
    assert 0.05 < wanted.mean() < 0.5
    return wanted


@pytest.mark.parametrize("device", DEVICES)
def test_pulses_of_a_round_leave_out_two_deviations_of_the_write_noise(device: str) -> None:
    step, noise, tolerance = 2.0**-10, 0.03125, 0.0078125
    cells = pl.devices.ConstantStep(
        dw_min=step, dw_min_dtod=0.0, dw_min_std=0.0, up_down_dtod=0.0, w_min=-2.0, w_max=2.0
    )
    cells = cells.replace(w_min_dtod=0.0, w_max_dtod=0.0, write_noise_std=noise / step)
    config = pl.LRTTConfig(
        rank=3,
        lora_alpha=1,
        visible=cells,
        transfer_every=0,
        transfer_tolerance=tolerance,
        transfer_rounds=1,
        keep_rest=False,
    )
    tile = pl.Tile(20, 30, config, seed=5, device=device)
    wanted = wanted_changes(tile)
    tile.adapter.transfer()
    pulses = np.clip(np.rint((wanted - 2 * noise) / step), 1, 1000)
    expected = pulses[wanted > tolerance].sum()
    last = tile.adapter.transfer_stats["last"]
    # Float32 rounds a quotient to the other side now and then.
    assert last["pulses"] == pytest.approx(expected, abs=3)
    assert last["reads"] == 600 + (wanted > tolerance).sum()


def test_limits_of_later_rounds_are_smaller() -> None:
    cells = pl.devices.ConstantStep(dw_min=2.0**-10, dw_min_dtod=0.0, dw_min_std=0.0)
    config = pl.LRTTConfig(
        rank=3,
        lora_alpha=1,
        visible=cells,
        transfer_every=0,
        transfer_rounds=4,
        transfer_max_pulses=12,
        keep_rest=False,
    )
    tile = pl.Tile(20, 30, config, seed=5)
    wanted = wanted_changes(tile)
    tile.adapter.transfer()
    last = tile.adapter.transfer_stats["last"]
    assert last["most_pulses"] == 12 + 6 + 4 + 3
    far = (wanted > 30 * 2.0**-10).mean()
    assert 0.5 * far * 600 * 25 < last["pulses"] < 600 * 25


def last_errors(miss: float, sigma: float, tolerance: float, rounds: int) -> tuple[np.ndarray, ...]:
    """Errors of program and verify for a cell at its bound, which is `miss` below its target.

    Returns errors and the probability of each at the end, then that of each number of rounds.
    """
    noise = sigma * (np.arange(-60000, 60000) + 0.5) / 10000
    density = np.exp(-0.5 * (noise / sigma) ** 2)
    density /= density.sum()
    errors = np.abs(miss - noise)
    going, ends, numbers = 1.0, np.zeros_like(noise), []
    for done in range(rounds + 1):
        late = 2 * done >= rounds > done
        accepted = tolerance * (rounds / (rounds - done) if late else 1.0)
        kept = (errors <= accepted) | (done == rounds)
        ends += going * density * kept
        numbers.append(going * density[kept].sum())
        going *= density[~kept].sum()
    return errors, ends, np.array(numbers)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("reads", ["exact", "analog"])
@pytest.mark.parametrize(("rounds", "deviations"), [(16, 2.0), (16, 2.5), (7, 2.0), (1, 2.0)])
def test_a_cell_beyond_its_bound_takes_a_draw_that_is_as_good_as_those_left_can_be(
    device: str, reads: str, rounds: int, deviations: float
) -> None:
    step, sigma, bound, tolerance, shape = 2.0**-13, 0.0625, 0.5, 0.015625, (8, 900)
    names = ("dw_min_dtod", "dw_min_std", "up_down_dtod", "w_max_dtod", "w_min_dtod")
    still: Any = dict.fromkeys(names, 0.0)
    cells = pl.devices.ConstantStep(dw_min=step, w_max=bound, w_min=-bound, **still)
    quiet: Any = dict.fromkeys(("inp_bound", "inp_res", "out_bound", "out_res", "out_noise"), 0.0)
    quiet |= {"noise_management": "none", "bound_management": "none"}
    config = pl.LRTTConfig(
        rank=shape[0],
        lora_alpha=1,
        visible=cells.replace(write_noise_std=sigma / step),
        fast=pl.devices.ConstantStep(dw_min=1e-5, w_max=4.0, w_min=-4.0, **still),
        backward=pl.IOParameters(**quiet),
        transfer_every=0,
        transfer_tolerance=tolerance,
        transfer_rounds=rounds,
        verify_read=reads,
        keep_rest=False,
    )
    tile = pl.Tile(*shape, config, seed=5, device=device)
    tile.weights = np.full(shape, bound, np.float32)
    miss = deviations * sigma
    tile.adapter.a = np.eye(shape[0], dtype=np.float32)
    tile.adapter.b = np.float32(bound + miss) - np.asarray(tile.arrays["visible"])
    tile.adapter.transfer()
    errors, ends, numbers = last_errors(miss, sigma, tolerance, rounds)
    found = np.abs(bound + miss - np.asarray(tile.arrays["visible"], np.float64))
    count = found.size

    def near(value: float, mean: float, square: float) -> None:
        assert abs(value - mean) < 5 * np.sqrt((square - mean**2) / count)

    for power in (1, 2):
        near(np.mean(found**power), ends @ errors**power, ends @ errors ** (2 * power))
    outside = float(ends @ (errors > tolerance))
    last = tile.adapter.transfer_stats["last"]
    near(last["outside_cells"] / count, outside, outside)
    done = np.arange(rounds + 1)
    near(last["reads"] / count - 1, numbers @ done, numbers @ done**2)
