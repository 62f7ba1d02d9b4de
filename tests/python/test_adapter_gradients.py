"""Gradients of adapters in torch, LRTT on the same numbers, measurements of low-rank updates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

import pulsora as pl
from pulsora import lowrank
from pulsora.nn import AnalogLinear
from test_lowrank import DEVICES, TYPES, error
from test_lowrank_numbers import tf32, tf32_allowed

if TYPE_CHECKING:
    from numpy.typing import NDArray

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


@pytest.mark.parametrize("rank", [5, 16, 40, 64, 65])
def test_property_47_one_gradient_has_the_bits_of_both(device: str, rank: int) -> None:
    torch.manual_seed(0)
    shapes = ((200, 260), (200, rank), (rank, 260))
    dc, a, b = (torch.randn(shape, device=device) for shape in shapes)
    da, db = lowrank.adapter_gradients(dc, a, b)
    assert da is not None
    assert db is not None
    nan_a, nan_b = torch.full_like(a, torch.nan), torch.full_like(b, torch.nan)
    only_a, none = lowrank.adapter_gradients(dc, nan_a, b, wanted=(True, False))
    assert none is None
    assert only_a is not None
    assert torch.equal(only_a, da)
    none, only_b = lowrank.adapter_gradients(dc, a, nan_b, wanted=(False, True))
    assert none is None
    assert only_b is not None
    assert torch.equal(only_b, db)
    assert lowrank.adapter_gradients(dc, a, b, wanted=(False, False)) == (None, None)
    # Each is accumulated by itself.
    out = (torch.ones_like(a), torch.ones_like(b))
    lowrank.adapter_gradients(dc, a, b, out=out, accumulate=(True, False))
    assert error(out[0], da.double() + 1) < 1e-6
    assert torch.equal(out[1], db)
    lowrank.adapter_gradients(dc, a, b, out=(None, out[1]), accumulate=True)
    assert error(out[1], 2 * db.double()) < 1e-6


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("frozen", ["", "a", "b"])
def test_the_product_of_an_adapter_has_the_gradients_of_torch(
    device: str, frozen: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    a = torch.randn(3, 30, 4, device=device).to(dtype).requires_grad_(frozen != "a")
    b = torch.randn(4, 20, device=device).to(dtype).requires_grad_(frozen != "b")
    weights = torch.randn(3, 30, 20, device=device).to(dtype)
    made, exact = lowrank.adapter_product(a, b), a.detach().double() @ b.detach().double()
    assert torch.equal(made, a @ b)
    wanted = []
    whole = lowrank.functional.operators.adapter_gradients
    monkeypatch.setattr(
        lowrank.functional.operators,
        "adapter_gradients",
        lambda *given: (wanted.append([each is not None for each in given[3:5]]), whole(*given)),
    )
    (made * weights).sum().backward()
    assert wanted == [[frozen != "a", frozen != "b"]]
    flat = weights.double().reshape(90, 20)
    tolerance = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 1e-2}[dtype]
    for factor, gradient in (
        (a, weights.double() @ b.detach().double().T),
        (b, a.detach().double().reshape(90, 4).T @ flat),
    ):
        assert (factor.grad is None) == (not factor.requires_grad)
        if factor.grad is not None:
            assert factor.grad.dtype == dtype
            assert error(factor.grad, gradient) < tolerance
    assert exact.shape == made.shape


def test_the_product_of_an_adapter_has_second_derivatives(device: str) -> None:
    torch.manual_seed(0)
    a, b = (torch.randn(size, device=device, requires_grad=True) for size in ((6, 2), (2, 5)))

    def penalty(product: torch.Tensor) -> torch.Tensor:
        made = torch.autograd.grad(product.pow(3).sum(), (a, b), create_graph=True)
        return made[0].pow(2).sum() + made[1].pow(2).sum()

    of_ours = torch.autograd.grad(penalty(lowrank.adapter_product(a, b)), (a, b))
    of_torch = torch.autograd.grad(penalty(a @ b), (a, b))
    for ours, torchs in zip(of_ours, of_torch, strict=True):
        assert error(ours, torchs.double()) < 1e-6


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("k", [4, 8])
@pytest.mark.parametrize("rows", [17, 200])
def test_property_47_every_element_is_within_its_rounding(
    device: str, rows: int, k: int, dtype: torch.dtype
) -> None:
    # Fewer rows than any tensor-core kernel takes, and more; columns that are no whole
    # tiles.
    n = 1000
    dc = 1e5 * torch.randn(rows, n, device=device)
    a, b = (torch.randn(shape, device=device).to(dtype) for shape in ((rows, k), (k, n)))
    da, db = lowrank.adapter_gradients(dc, a, b)
    for made, left, right in ((da, dc, b.T), (db, a.T, dc)):
        left, right = left.double(), right.double()  # noqa: PLW2901 - the same numbers
        terms = left.shape[1]
        unit = terms * 2.0**-24
        bound = 2.0 * unit / (1.0 - unit) * (left.abs() @ right.abs())
        assert made.dtype == torch.float32
        assert bool(((made.double() - left @ right).abs() <= bound).all())
        # The bound for the worst roundings; the roundings of so many terms partly cancel.
        assert error(made, left @ right) < 1e-5


def test_adapter_gradients_do_not_become_tf32(device: str) -> None:
    dc = torch.full((64, 64), 1.0 + 2.0**-12, device=device)  # a number that tf32 cannot hold
    a, b = torch.ones(64, 16, device=device), torch.ones(16, 64, device=device)
    with tf32_allowed():
        da, db = lowrank.adapter_gradients(dc, a, b)
    assert torch.equal(da, torch.full_like(da, 64 + 2.0**-6))
    assert torch.equal(db, torch.full_like(db, 64 + 2.0**-6))


def test_property_47_gradients_of_large_adapters_do_not_become_tf32(device: str) -> None:
    # Sizes of the kernel for tensor cores, which makes products of several tf32 terms.
    dc, a, b = (torch.randn(shape, device=device) for shape in ((512, 1024), (512, 16), (16, 1024)))
    with tf32_allowed():
        da, db = lowrank.adapter_gradients(dc, a, b)
    for made, left, right in ((da, dc, b.T), (db, a.T, dc)):
        exact = left.double() @ right.double()
        rounded = tf32(left).double() @ tf32(right).double()
        assert error(made, exact) < 1e-5 < error(rounded, exact)


@pytest.mark.parametrize("name", ["a", "b", "da", "db"])
def test_operands_on_another_device_are_refused_by_name(device: str, name: str) -> None:
    given = {
        part: torch.zeros(shape, device=device)
        for part, shape in (
            ("dc", (4, 3)), ("a", (4, 2)), ("b", (2, 3)), ("da", (4, 2)), ("db", (2, 3)),
        )
    }  # fmt: skip
    for other in ("meta", *(["cpu"] if device == "cuda" else [])):
        dc, a, b, *out = {**given, name: given[name].to(other)}.values()
        with pytest.raises(
            pl.DeviceError, match=rf"{name} is on {other} and dc on {device}.*dc\.device"
        ):
            lowrank.adapter_gradients(dc, a, b, out=(out[0], out[1]))


def test_errors_of_adapter_gradients_name_the_argument(device: str) -> None:
    dc, a, b = (torch.zeros(shape, device=device) for shape in ((4, 3), (4, 2), (2, 3)))
    with pytest.raises(pl.InputError, match=r"a is \[5, 2\]"):
        lowrank.adapter_gradients(dc, torch.zeros(5, 2, device=device), b)
    with pytest.raises(pl.InputError, match=r"b is \[3, 3\]"):
        lowrank.adapter_gradients(dc, a, torch.zeros(3, 3, device=device))
    with pytest.raises(pl.InputError, match="accumulate is True without out"):
        lowrank.adapter_gradients(dc, a, b, accumulate=True)
    with pytest.raises(pl.InputError, match="wanted is given with out"):
        lowrank.adapter_gradients(dc, a, b, wanted=(True, False), out=(a.clone(), b.clone()))
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


def _drawn_tile(tile: pl.Tile, seed: int) -> list[NDArray[np.float64]]:
    """W, A and B, drawn, written to the arrays of a tile, and read back."""
    generator = np.random.default_rng(seed)
    for name in ("visible", "fast_a", "fast_b"):
        shape = tile.arrays[name].shape
        tile.arrays[name] = generator.uniform(-0.2, 0.2, shape).astype(np.float32)
    return [tile.arrays[name].astype(np.float64) for name in ("visible", "fast_a", "fast_b")]


def _injected(
    w: NDArray[np.float64], a: NDArray[np.float64], b: NDArray[np.float64], scale: float,
    x: NDArray[np.float64], d: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:  # fmt: skip
    """y = x W^T + s (x B^T) A^T and dx = d W + s (d A) B, in double precision."""
    return x @ w.T + scale * (x @ b.T) @ a.T, d @ w + scale * (d @ a) @ b


def _gated_by_ones(
    w: NDArray[np.float64], a: NDArray[np.float64], b: NDArray[np.float64], scale: float,
    x: NDArray[np.float64], d: NDArray[np.float64], device: str,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:  # fmt: skip
    """y and dx by the gated update, with codes of 1."""
    given = (torch.from_numpy(part.astype(np.float32)).to(device) for part in (w, a, b, x, d))
    base, up, down, rows, dy = given
    rows.requires_grad_()
    ones = torch.ones(len(x), len(b), device=device)
    y = lowrank.gated_low_rank(
        rows, down.t(), ones, up, u_layout="kn", scale=scale, base=rows @ base.t()
    )
    y.backward(dy)
    return _in_host(y), _in_host(rows.grad)


def _in_host(made: object) -> NDArray[np.float64]:
    tensor: torch.Tensor = torch.from_dlpack(
        made.detach() if hasattr(made, "detach") else made  # type: ignore[arg-type]
    )
    return tensor.cpu().double().numpy()


def _adapted(alpha: float) -> pl.LRTTConfig:
    perfect = pl.IOParameters(is_perfect=True)
    return pl.LRTTConfig(
        rank=3, lora_alpha=alpha, forward=perfect, backward=perfect, fast=pl.devices.SoftBounds()
    )


@pytest.mark.parametrize("alpha", [1.5, -0.25])
def test_property_45_46_the_plain_read_of_an_adapter_is_the_update_gated_by_ones(
    device: str, alpha: float
) -> None:
    tile = pl.Tile(17, 24, _adapted(alpha), seed=2, device=device)
    w, a, b = _drawn_tile(tile, 0)
    x, d = (torch.randn(9, size) for size in (24, 17))
    of_tile = [_in_host(tile.forward(x.to(device))), _in_host(tile.backward(d.to(device)))]
    rows, back = x.double().numpy(), d.double().numpy()
    wanted = _injected(w, a, b, alpha, rows, back)
    of_update = _gated_by_ones(w, a, b, alpha, rows, back, device)
    without = _injected(w, 0.0 * a, b, alpha, rows, back)
    for ours, theirs, exact, base in zip(of_tile, of_update, wanted, without, strict=True):
        size = np.abs(exact).max()
        np.testing.assert_allclose(ours, exact, rtol=0.0, atol=2e-6 * size)
        np.testing.assert_allclose(theirs, exact, rtol=0.0, atol=2e-6 * size)
        # An adapter that is left out would be seen.
        assert np.abs(exact - base).max() > 1e-2 * size


def test_property_45_46_layers_of_several_tiles_read_updates_gated_by_ones(device: str) -> None:
    # Two tiles above each other and three beside each other, each with an adapter of its own.
    layer = AnalogLinear(
        25, 13, config=_adapted(1.5), seed=1, max_input_size=10, max_output_size=7, device=device
    )
    tiles = layer.tiles
    assert (len(tiles.rows), len(tiles.cols)) == (2, 3)
    x = torch.randn(2, 4, 25, device=device, requires_grad=True)
    d = torch.randn(2, 4, 13, device=device)
    rows, back = (_in_host(each.flatten(0, 1)) for each in (x, d))
    wanted = np.zeros((8, 13)) + _in_host(layer.bias), np.zeros((8, 25))
    of_update = wanted[0].copy(), wanted[1].copy()
    for number, (row, col, tile) in enumerate(tiles.parts()):
        given = (*_drawn_tile(tile, number), 1.5, rows[:, col], back[:, row])
        for total, (y, dx) in (
            (wanted, _injected(*given)),
            (of_update, _gated_by_ones(*given, device)),
        ):
            total[0][:, row] += y
            total[1][:, col] += dx
    # The cells hold unscaled weights, so that layers read like the arrays.
    assert tiles.scales is None
    y = layer(x)
    y.backward(d)
    assert x.grad is not None
    of_layer = [_in_host(each.flatten(0, 1)) for each in (y, x.grad)]
    for ours, theirs, exact in zip(of_layer, of_update, wanted, strict=True):
        size = np.abs(exact).max()
        np.testing.assert_allclose(ours, exact, rtol=0.0, atol=2e-6 * size)
        np.testing.assert_allclose(theirs, exact, rtol=0.0, atol=2e-6 * size)


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
