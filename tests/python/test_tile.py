from __future__ import annotations

import copy
import pickle
import sys
import threading
import time
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

import pulsora as pl
from conftest import CONFIGS, D_SIZE, X_SIZE, make_batch, make_tile, same_bits, train

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


def test_ideal_tile_is_linear_algebra(batch: tuple[NDArray[np.float32], ...]) -> None:
    x, d = batch
    w = np.random.default_rng(0).normal(size=(D_SIZE, X_SIZE)).astype(np.float32)
    tile = make_tile(pl.IdealConfig())
    tile.weights = w
    np.testing.assert_allclose(tile.forward(x), x @ w.T, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(tile.backward(d), d @ w, rtol=1e-5, atol=1e-6)
    tile.update(x, d, 0.1)
    np.testing.assert_allclose(tile.weights, w - 0.1 * d.T @ x, rtol=1e-5, atol=1e-6)


def test_a_vector_is_a_batch_of_one(config: pl.TileConfig) -> None:
    x, d = make_batch(1)
    single, batched = make_tile(config), make_tile(config)
    assert single.forward(x[0]).shape == (D_SIZE,)
    assert batched.forward(x).shape == (1, D_SIZE)
    single.update(x[0], d[0], 0.1)
    batched.update(x, d, 0.1)
    assert same_bits([single.weights], [batched.weights])


def test_an_empty_batch_changes_no_weights(config: pl.TileConfig) -> None:
    tile = make_tile(config)
    before = tile.weights
    assert tile.forward(np.zeros((0, X_SIZE), np.float32)).shape == (0, D_SIZE)
    tile.update(
        np.zeros((0, X_SIZE), np.float32),
        np.zeros((0, D_SIZE), np.float32),
        0.1,
        end_of_batch=False,
    )
    assert same_bits([tile.weights], [before])


def test_an_empty_batch_may_have_any_strides() -> None:
    """Like NumPy arrays of no rows from torch."""
    tile = make_tile(CONFIGS["single"]())
    x = np.lib.stride_tricks.as_strided(np.empty((0, X_SIZE), np.float32), strides=(0, 0))
    y = np.lib.stride_tricks.as_strided(np.empty((0, D_SIZE), np.float32), strides=(0, 0))
    assert tile.forward(x, out=y) is y
    assert tile.backward(y, out=x) is x
    tile.update(x, y, 0.1)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ">f4"])
def test_other_float_types_are_rounded_to_float32(dtype: str) -> None:
    x, _ = make_batch(3)
    other = x.astype(dtype)
    config = CONFIGS["single"]()
    wanted = make_tile(config).forward(other.astype(np.float32))
    assert same_bits([make_tile(config).forward(other)], [wanted])


def test_any_layout_gives_the_same_as_a_gapless_copy() -> None:
    x, _ = make_batch(8)
    wide = np.zeros((8, 2 * X_SIZE), np.float32)
    wide[:, ::2] = x
    unaligned = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape)
    layouts = [np.asfortranarray(x), wide[:, ::2], x[::-1][::-1], unaligned]
    padded = np.zeros((8, X_SIZE + 3), np.float32)
    padded[:, :X_SIZE] = x
    for layout in [*layouts, padded[:, :X_SIZE]]:
        tile, other = make_tile(CONFIGS["single"]()), make_tile(CONFIGS["single"]())
        assert same_bits([tile.forward(layout)], [other.forward(x)])


def test_dlpack_in_and_out() -> None:
    torch = pytest.importorskip("torch")
    x, _ = make_batch(4)
    tile, other = make_tile(CONFIGS["single"]()), make_tile(CONFIGS["single"]())
    out = torch.zeros(4, D_SIZE)
    assert tile.forward(torch.from_numpy(x), out) is out
    assert same_bits([out.numpy()], [other.forward(x)])
    transposed = torch.from_numpy(np.ascontiguousarray(x.T)).T
    assert same_bits([np.from_dlpack(tile.forward(transposed))], [other.forward(x)])
    assert same_bits([tile.forward(torch.from_numpy(x).double())], [other.forward(x)])


def test_property_37_same_seed_same_bits_whatever_the_threads(config: pl.TileConfig) -> None:
    one, two = make_tile(config), make_tile(config, threads=2)
    assert same_bits(train(one, 6), train(two, 6))
    one.threads = 2
    two.threads = 1
    assert same_bits(train(one, 3), train(two, 3))


def test_other_seeds_and_tiles_differ() -> None:
    config = CONFIGS["single"]()
    weights = [
        train(make_tile(config, seed=seed, tile_id=tile_id), 2)[-1].tobytes()
        for seed, tile_id in ((5, 0), (6, 0), (5, 1))
    ]
    assert len(set(weights)) == 3


def test_property_37_a_batch_may_be_split(config: pl.TileConfig) -> None:
    x, d = make_batch(23)
    whole, split = make_tile(config), make_tile(config)
    y = whole.forward(x)
    whole.update(x, d, 0.05)
    edges = [0, 1, 8, 9, 23]
    pieces = [slice(a, b) for a, b in pairwise(edges)]
    ys = np.concatenate([split.forward(x[piece]) for piece in pieces])
    for piece in pieces:
        split.update(x[piece], d[piece], 0.05, end_of_batch=False)
    earlier_name = pl.Tile.from_state(split.state())
    earlier_name.post_update(0.05)
    split.end_batch(0.05)
    assert same_bits([y, whole.weights], [ys, split.weights])
    assert same_bits([split.weights], [earlier_name.weights])
    assert whole.counters == split.counters


def test_adapter_arrays() -> None:
    tile = make_tile(CONFIGS["lrtt"]())
    adapter = tile.adapter
    assert adapter.rank == 3
    assert list(tile.arrays) == ["visible", "fast_a", "fast_b"]
    assert tile.visible.shape == (D_SIZE, X_SIZE)
    assert adapter.a.shape == (D_SIZE, 3)
    assert adapter.b.shape == (3, X_SIZE)
    x, d = make_batch(5)
    tile.update(x, d, 0.05)
    alpha = tile.explain(x, d, 0.05)["alpha"]
    effective = tile.visible + alpha * adapter.a @ adapter.b
    np.testing.assert_allclose(tile.weights, effective, rtol=1e-5, atol=1e-6)
    b = adapter.b
    adapter.a = np.zeros((D_SIZE, 3), np.float32)
    assert same_bits([tile.weights, adapter.b], [tile.visible, b])


def test_arrays_are_read_and_written_by_name() -> None:
    tile = make_tile(CONFIGS["lrtt"]())
    b = tile.arrays["fast_b"]
    assert b.any()
    tile.arrays["visible"] = np.full((D_SIZE, X_SIZE), 0.1, np.float32)
    tile.arrays["fast_a"] = np.full((D_SIZE, 3), 0.2, np.float32)
    wanted = [tile.visible, tile.adapter.a, b]
    assert same_bits(list(tile.arrays.values()), wanted)
    with pytest.raises(ValueError, match="read-only"):
        tile.arrays["fast_a"][:] = 9.0  # a copy
    assert same_bits(list(tile.arrays.values()), wanted)
    assert list(make_tile(CONFIGS["single"]()).arrays) == ["visible"]
    assert list(make_tile(pl.LRTTConfig(rank=0)).arrays) == ["visible"]
    assert not make_tile(pl.IdealConfig()).arrays
    for call in (lambda: tile.arrays["fast_c"], lambda: tile.arrays.__setitem__("fast", b)):
        with pytest.raises(KeyError, match="it has visible, fast_a, fast_b"):
            call()


@pytest.mark.parametrize("config", [pl.SingleConfig(), pl.IdealConfig(), pl.LRTTConfig(rank=0)])
def test_a_tile_without_an_adapter_has_none(config: pl.TileConfig) -> None:
    assert make_tile(config).adapter is None


def test_transfer_out_of_turn() -> None:
    config = CONFIGS["lrtt"]()
    config.transfer_mode = "verified"  # what the pulses miss is not kept in A
    tile = make_tile(config)
    x, d = make_batch(5)
    tile.update(x, d, 0.05)
    adapter = tile.adapter
    assert adapter.transfer_stats["total"]["transfers"] == 0
    adapter.transfer()
    assert adapter.transfer_stats["total"]["transfers"] == 1
    assert adapter.transfer_stats["last"]["transfers"] == 1
    assert not adapter.a.any()
    assert same_bits([tile.weights], [tile.visible])


def test_a_gate_of_ones_is_no_gate() -> None:
    config = CONFIGS["lrtt"]()
    config.forward.is_perfect = config.backward.is_perfect = True
    x, d = make_batch(5)
    gated, plain = make_tile(config), make_tile(config)
    for tile in (gated, plain):
        tile.update(x, d, 0.05)
    gate = np.ones((5, 3), np.float32)
    y, read = gated.adapter.forward(x, gate)
    dx, gradient = gated.adapter.backward(d, gate, read)
    np.testing.assert_allclose(y, plain.forward(x), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(dx, plain.backward(d), rtol=1e-5, atol=1e-6)
    alpha = plain.explain(x, d, 0.05)["alpha"]
    wanted = alpha * read * (d @ plain.adapter.a)
    np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-6)
    assert gated.counters == plain.counters
    for whole in (True, False):
        gated.adapter.update(x, d, gate, 0.05, end_of_batch=whole)
        plain.update(x, d, 0.05, end_of_batch=whole)
        assert gated.counters == plain.counters
    assert same_bits([gated.weights], [plain.weights])


def test_property_31_cells_bound_their_weights() -> None:
    tile = make_tile(CONFIGS["single"]())
    with pytest.warns(UserWarning, match=r"60 of 60 weights \(up to 9\) lie outside the bounds"):
        tile.weights = np.full((D_SIZE, X_SIZE), 9.0, np.float32)
    cells = tile.describe_cells()
    assert same_bits([tile.weights], [cells["w_max"]])
    assert (cells["step_down"] < 0.0).all()
    assert tile.statistics()["saturated_cells"] == D_SIZE * X_SIZE


def test_columns_are_reset_modulo_the_width() -> None:
    device = pl.devices.ConstantStep(reset=0.2, reset_std=0.0, w_max_dtod=0.0)
    tile = make_tile(pl.SingleConfig(device=device))
    tile.weights = np.full((D_SIZE, X_SIZE), 0.05, np.float32)
    tile.reset_columns("visible", 8, 3)
    expected = np.full((D_SIZE, X_SIZE), 0.05)
    expected[:, [8, 9, 0]] = 0.2
    np.testing.assert_allclose(tile.weights, expected, rtol=1e-6)
    for wrong in [("fast_a", 0, 1), ("visible", -1, 1), ("visible", 0, 1, 1.5)]:
        with pytest.raises(pl.ConfigError):
            tile.reset_columns(*wrong)
    with pytest.raises(pl.ConfigError, match="9223372036854775807 columns from column 1"):
        tile.reset_columns("visible", 1, 2**63 - 1)
    np.testing.assert_allclose(tile.weights, expected, rtol=1e-6)


def test_explanation_reads_well() -> None:
    x, d = make_batch(5)
    tile = make_tile(CONFIGS["single"]())
    before = tile.state()
    told = tile.explain(x, 100.0 * d, 1.0)
    text = str(told)
    assert f"warning: {100.0 * told['undelivered']:.0f} % of this update is lost" in text
    assert "raise desired_bl" in text
    assert tile.state().values == before.values
    assert not make_tile(pl.IdealConfig()).explain(x, d, 0.1).warnings


def test_an_explanation_is_looked_into_by_name() -> None:
    told = make_tile(CONFIGS["lrtt"]()).explain(*make_batch(2), 0.1)
    assert "alpha" in told
    assert "alhpa" not in told
    assert 0 not in told
    assert list(told) == list(told.keys()) == list(told.settings)
    assert len(told) == len(told.settings)
    assert dict(told) == told.settings
    with pytest.raises(KeyError, match="alhpa"):
        told["alhpa"]


def test_repr_and_sizes() -> None:
    tile = make_tile(pl.SingleConfig(device=pl.devices.SoftBounds(dw_min=0.002)), tile_id=3)
    assert repr(tile) == (
        "Tile(6, 10, SingleConfig(device=SoftBounds(dw_min=0.002)), seed=5, tile_id=3, "
        "device='cpu')"
    )
    assert tile.memory_bytes >= 12 * D_SIZE * X_SIZE
    assert tile.counters["update_samples"] == 0


def test_weights_are_a_copy_that_cannot_be_mistaken_for_them() -> None:
    tile = make_tile(pl.LRTTConfig(rank=2, fast=pl.devices.ConstantStep()))
    for weights in (tile.weights, tile.visible, tile.adapter.a):
        with pytest.raises(ValueError, match="read-only"):
            weights[0, 0] = 1.0
    before = tile.weights
    tile.weights = np.full((D_SIZE, X_SIZE), 0.1, np.float32)
    assert not before.any()


@pytest.mark.parametrize("kind", [np.float16, np.float64])
def test_weights_of_other_types_that_cells_confine_are_reported(kind: type[np.floating]) -> None:
    device = pl.devices.ConstantStep(w_max_dtod=0.0, w_min_dtod=0.0)
    tile = pl.Tile(2, 2, pl.SingleConfig(device=device))
    wanted = np.array([[0.5, 3.0], [-3.0, 0.1]], kind)
    for weights in (wanted, torch.from_numpy(wanted)):
        with pytest.warns(UserWarning, match="2 of 4 weights"):
            tile.weights = weights


@pytest.mark.parametrize("name", list(CONFIGS))
@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, copy.copy, lambda t: pickle.loads(pickle.dumps(t))],  # noqa: S301 - our own
)
def test_copies_of_a_tile_go_on_as_it_would(
    name: str, copied: Callable[[pl.Tile], pl.Tile]
) -> None:
    tile = make_tile(CONFIGS[name](), tile_id=3)
    tile.gpu_products = "tf32"
    train(tile, 2)
    twin = copied(tile)
    assert (twin.threads, twin.gpu_products, repr(twin)) == (1, "tf32", repr(tile))
    assert same_bits(train(twin, 3, first=2), train(tile, 3, first=2))


def test_calls_release_the_interpreter_lock() -> None:
    tile = pl.Tile(256, 256, pl.SingleConfig(), threads=1)
    x, d = (np.ones((2048, 256), np.float32) for _ in range(2))
    interval = sys.getswitchinterval()
    worker = threading.Thread(target=tile.update, args=(x, d, 0.1))
    ticks = 0
    sys.setswitchinterval(1e-4)
    try:
        worker.start()
        while worker.is_alive():
            ticks += 1
            time.sleep(1e-4)
    finally:
        sys.setswitchinterval(interval)
        worker.join()
    # With the lock held, this thread would be woken once, when the call is over.
    assert ticks > 5


def test_gpu_products_are_chosen_by_name() -> None:
    tile = pl.Tile(2, 3)
    assert tile.gpu_products == "single"
    tile.gpu_products = "tf32"
    assert tile.to("cpu").gpu_products == "tf32"
    with pytest.raises(pl.ConfigError, match=r"gpu_products.*'bf16'.*'single', 'tf32_forward'"):
        tile.gpu_products = "bf16"
    assert tile.gpu_products == "tf32"


def test_threads_may_share_a_tile() -> None:
    shared, alone = make_tile(CONFIGS["lrtt"]()), make_tile(CONFIGS["lrtt"]())
    x, d = make_batch(5)
    workers = [
        threading.Thread(target=lambda: [shared.update(x, d, 0.01) for _ in range(25)])
        for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for _ in range(100):
        alone.update(x, d, 0.01)
    # update() and end_batch() of different threads may interleave; samples arrive all the same.
    assert shared.counters == alone.counters
