"""Thousands of short rows (convolutions), one thread each, read like other rows, to rounding."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pulsora as pl
from pulsora.nn import AnalogConv2d

ROWS = 5000
"""Of a batch; halves of it are read in the usual way."""


def _usable() -> bool:
    return torch.cuda.is_available() and pl.cuda_device_count() > 0


pytestmark = pytest.mark.skipif(
    not _usable(), reason="no GPU that torch and this build of Pulsora can use"
)

# Outputs that leave the range of the ADC again and again, and inputs with noise of their own.
NARROW = pl.IOParameters(out_bound=0.5, bound_management="iterative", inp_noise=0.02)
CONFIGS = {
    "one array": pl.SingleConfig(device=pl.devices.SoftBounds()),
    "narrow": pl.SingleConfig(device=pl.devices.SoftBounds(), forward=NARROW, backward=NARROW),
    "adapter": pl.LRTTConfig(rank=5),
    "narrow adapter": pl.LRTTConfig(rank=5, forward=NARROW, backward=NARROW),
}


def _tiles(config: pl.TileConfig, *devices: str) -> list[pl.Tile]:
    tiles = [pl.Tile(6, 25, config, seed=4, device=device) for device in devices]
    rng = np.random.default_rng(1)
    weights = rng.uniform(-0.3, 0.3, (6, 25)).astype(np.float32)
    a = rng.uniform(-0.2, 0.2, (6, 5)).astype(np.float32)
    for tile in tiles:
        tile.weights = weights
        if "fast_a" in tile.arrays:
            tile.arrays["fast_a"] = a
    return tiles


def _batch(columns: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(ROWS, columns, generator=generator)
    rows[7] = 0.0
    return rows.cuda()


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_reads_are_those_of_the_cpu(config: pl.TileConfig) -> None:
    """All but one in a thousand: rounding moves a few values over an edge of a converter."""
    host, gpu = _tiles(config, "cpu", "cuda")
    x, d = _batch(25, 2), _batch(6, 3)
    for read, given in ((pl.Tile.forward, x), (pl.Tile.backward, d)):
        wanted = torch.from_numpy(np.asarray(read(host, given.cpu().numpy())))
        found = torch.from_dlpack(read(gpu, given)).cpu()
        close = torch.isclose(found, wanted, rtol=1e-4, atol=1e-5)
        assert close.float().mean() > 0.999
        assert torch.all(found[7] == wanted[7])


@pytest.mark.parametrize("name", ["one array", "adapter"])
def test_updates_are_those_of_halves_of_the_batch(name: str) -> None:
    """To the bit if pulses follow from x and d alone; pulses of an adapter follow from reads."""
    whole, halves = _tiles(CONFIGS[name], "cuda", "cuda")
    x, d = _batch(25, 5), _batch(6, 6) * 0.01
    whole.update(x, d, 0.05)
    for part in (slice(0, ROWS // 2), slice(ROWS // 2, ROWS)):
        halves.update(x[part], d[part], 0.05, end_of_batch=part.stop == ROWS)
    for array in whole.arrays:
        one, other = whole.arrays[array], halves.arrays[array]
        if name == "one array":
            assert one.tobytes() == other.tobytes()
        else:
            spread = np.abs(one).max()
            assert np.abs(one - other).mean() < 0.01 * spread


def test_a_value_that_is_not_finite_stops_all_pulses() -> None:
    soft = pl.devices.SoftBounds()
    for config in (CONFIGS["one array"], pl.LRTTConfig(rank=5, fast=soft)):
        tile, untouched = _tiles(config, "cuda", "cuda")
        x, d = _batch(25, 5), _batch(6, 6)
        x[4321, 3] = float("nan")
        tile.update(x, d, 0.05)
        with pytest.raises(pl.InputError, match="finite"):
            _ = tile.weights
        for array in tile.arrays:
            assert tile.arrays[array].tobytes() == untouched.arrays[array].tobytes()


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), ((1, 3), (2, 1))])
def test_patches_are_those_of_the_cpu(
    stride: int | tuple[int, int], dilation: int | tuple[int, int]
) -> None:
    grads, outputs = [], []
    for device in ("cpu", "cuda"):
        layer = AnalogConv2d(
            2, 3, (3, 2), stride=stride, dilation=dilation, padding=1, config=pl.IdealConfig(),
            seed=1, device=device,
        )  # fmt: skip
        x = torch.linspace(-1, 1, 2 * 2 * 9 * 8, device=device).reshape(2, 2, 9, 8)
        x.requires_grad_()
        y = layer(x)
        y.square().sum().backward()
        assert x.grad is not None
        outputs.append(y.detach().cpu())
        grads.append(x.grad.cpu())
    assert torch.allclose(outputs[0], outputs[1], atol=1e-6)
    assert torch.allclose(grads[0], grads[1], atol=1e-5)
