"""Transfers by program and verify through layers, and `pulsora.merge`."""

from __future__ import annotations

import copy

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
    assert transfer["tolerance"] == pytest.approx(0.04)
    # P(|N(0, 0.10125)| > 0.04) = 0.6928, twice.
    assert transfer["missed_cells"] == pytest.approx(0.6928**2, rel=1e-3)
    assert any("transfer_tolerance" in warning for warning in explained.warnings)
