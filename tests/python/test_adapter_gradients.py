"""Gradients of adapters in torch, what LRTT makes of the same numbers, and measurements of low-rank updates."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pulsora as pl
from pulsora import lowrank
from test_lowrank import DEVICES, TYPES, error

pytestmark = pytest.mark.parametrize("device", DEVICES)


@pytest.mark.parametrize("dtype", TYPES)
def test_property_47_adapter_gradients_and_what_they_are_added_to(
    device: str, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    dc = 1e5 * torch.randn(3, 40, 33, device=device)
    a, b = (
        torch.randn(3, 40, 16, device=device).to(dtype),
        torch.randn(16, 33, device=device).to(dtype),
    )
    flat = dc.double().reshape(120, 33)
    exact = (flat @ b.double().T, a.double().reshape(120, 16).T @ flat)
    da, db = lowrank.adapter_gradients(dc, a, b)
    assert da.dtype == db.dtype == torch.float32
    assert error(da.reshape(120, 16), exact[0]) < 1e-6
    assert error(db, exact[1]) < 1e-6
    assert lowrank.adapter_gradients(dc, a, b, out=(da, db), accumulate=True) == (da, db)
    assert error(da.reshape(120, 16), 2 * exact[0]) < 1e-6
    assert error(db, 2 * exact[1]) < 1e-6


def test_adapter_gradients_do_not_become_tf32(device: str) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    dc = torch.full((64, 64), 1.0 + 2.0**-12, device=device)  # a number that tf32 cannot hold
    a, b = torch.ones(64, 16, device=device), torch.ones(16, 64, device=device)
    da, db = lowrank.adapter_gradients(dc, a, b)
    torch.set_float32_matmul_precision(before)
    assert torch.equal(da, torch.full_like(da, 64 + 2.0**-6))
    assert torch.equal(db, torch.full_like(db, 64 + 2.0**-6))


def test_errors_of_adapter_gradients_name_the_argument(device: str) -> None:
    dc, a, b = (torch.zeros(shape, device=device) for shape in ((4, 3), (4, 2), (2, 3)))
    with pytest.raises(pl.InputError, match=r"a is \[5, 2\]"):
        lowrank.adapter_gradients(dc, torch.zeros(5, 2, device=device), b)
    with pytest.raises(pl.InputError, match=r"b is \[3, 3\]"):
        lowrank.adapter_gradients(dc, a, torch.zeros(3, 3, device=device))
    with pytest.raises(pl.InputError, match="accumulate is True without out"):
        lowrank.adapter_gradients(dc, a, b, accumulate=True)
    with pytest.raises(pl.InputError, match=r"db is \[2, 3\] of torch.float16"):
        lowrank.adapter_gradients(dc, a, b, out=(torch.zeros_like(a), torch.zeros_like(b).half()))
    joined = torch.zeros(14, device=device)
    with pytest.raises(pl.InputError, match="da and db share memory"):
        lowrank.adapter_gradients(dc, a, b, out=(joined[:8].view(4, 2), joined[6:12].view(2, 3)))
    for out, message in (
        ((a, torch.zeros_like(b)), "da and a"),
        ((torch.zeros_like(a), b), "db and b"),
    ):
        with pytest.raises(pl.InputError, match=f"{message} share memory"):
            lowrank.adapter_gradients(dc, a, b, out=out)
    beside = lowrank.adapter_gradients(dc, a, b, out=(joined[:8].view(4, 2), joined[8:].view(2, 3)))
    assert not beside[0].any()
    gaps = torch.zeros(4, 4, device=device)[:, ::2]
    with pytest.raises(pl.InputError, match="da has gaps; it must be contiguous"):
        lowrank.adapter_gradients(dc, a, b, out=(gaps, torch.zeros_like(b)))
    with pytest.raises(TypeError, match=r"a has dtype torch\.float64"):
        lowrank.adapter_gradients(dc, a.double(), b)


def test_micro_batches_add_up_to_one_batch(device: str) -> None:
    torch.manual_seed(0)
    dc, a, b = (torch.randn(*shape, device=device) for shape in ((60, 9), (60, 4), (4, 9)))
    _, whole = lowrank.adapter_gradients(dc, a, b)
    out = (torch.empty(15, 4, device=device), torch.empty(4, 9, device=device))
    for begin in range(0, 60, 15):
        rows = slice(begin, begin + 15)
        lowrank.adapter_gradients(dc[rows], a[rows], b, out=out, accumulate=begin > 0)
    assert error(out[1], whole.double()) < 1e-6


def test_property_45_46_it_is_what_an_adapter_of_lrtt_adds_to_a_read(device: str) -> None:
    perfect = pl.IOParameters(is_perfect=True)
    config = pl.LRTTConfig(
        rank=3, lora_alpha=1.5, forward=perfect, backward=perfect, fast=pl.devices.SoftBounds()
    )
    tile = pl.Tile(6, 10, config, seed=2, device=device)
    generator = np.random.default_rng(0)
    for name, shape in (("visible", (6, 10)), ("fast_a", (6, 3)), ("fast_b", (3, 10))):
        tile.arrays[name] = generator.uniform(-0.2, 0.2, shape).astype(np.float32)
    w, a, b = (
        torch.tensor(tile.arrays[name]).to(device) for name in ("visible", "fast_a", "fast_b")
    )
    x, d, gate = (torch.randn(7, size, device=device) for size in (10, 6, 3))
    read, hidden = (torch.from_dlpack(each) for each in tile.adapter.forward(x, gate))
    ofx, of_gate = (torch.from_dlpack(each) for each in tile.adapter.backward(d, gate, hidden))
    x.requires_grad_()
    gate.requires_grad_()
    y = lowrank.gated_low_rank(x, b.t(), gate, a, u_layout="kn", scale=1.5, base=x @ w.t())
    y.backward(d)
    torch.testing.assert_close(read, y.detach())
    torch.testing.assert_close(ofx, x.grad)
    torch.testing.assert_close(of_gate, gate.grad)


@pytest.mark.parametrize("dtype", TYPES)
def test_validate_and_benchmark_tell_what_they_saw(device: str, dtype: torch.dtype) -> None:
    found = lowrank.validate(64, 40, 5, k2=24, dtype=dtype, device=device)
    assert found.passed
    assert set(found.errors) == {"y", "dx", "dv", "dcodes", "du"}
    assert 0.0 < max(found.errors.values()) <= found.tolerance
    timed = lowrank.benchmark(256, 64, 8, dtype=dtype, device=device)
    assert timed.passed
    assert timed.max_difference == timed.validation.max_difference
    assert timed.bytes == dtype.itemsize * (256 * (64 + 64 + 8) + 8 * 128)
    assert timed.bandwidth == timed.bytes / timed.seconds
    assert timed.copied_bytes == 2 * dtype.itemsize * 256 * 64
    of_x = timed.copied_bytes / timed.copy_seconds
    assert timed.share == timed.bandwidth / max(timed.copy_bandwidth, of_x)
    assert min(timed.speed_up, timed.overhead, timed.backward_speed_up) > 0.0
    with pytest.raises(ValueError, match="rank must be at least 1"):
        lowrank.validate(64, 40, 0, device=device)
    with pytest.raises(pl.InputError, match=r"dtype is torch.float64"):
        lowrank.benchmark(dtype=torch.float64, device=device)
