"""Every bad input gets an error that names it, and leaves the tile as it was."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pulsora as pl
from conftest import CONFIGS, D_SIZE, X_SIZE, make_batch, make_tile
from pulsora import state

if TYPE_CHECKING:
    from collections.abc import Callable

X, D = make_batch(4)
NAN, INF = X.copy(), D.copy()
NAN[2, 3] = np.nan
INF[1, 5] = -np.inf
WEIGHTS = np.zeros((D_SIZE, X_SIZE), np.float32)
SB = pl.devices.SoftBounds
LRTT = pl.LRTTConfig


def _make(*sizes: Any, **options: Any) -> pl.Tile:
    return pl.Tile(*(sizes or (D_SIZE, X_SIZE)), **options)


MAKING: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: SB(dw_min=0), pl.ConfigError, r"SoftBounds.dw_min is 0; it must be > 0"),
    (lambda: SB(dw_min=-1e-3), pl.ConfigError, r"SoftBounds.dw_min is -0.001; it must be > 0"),
    (lambda: SB(dw_min=float("nan")), pl.ConfigError, "dw_min is nan; it must be finite"),
    (lambda: SB(dw_min=1e300), pl.ConfigError, "beyond single precision"),
    (lambda: SB(dw_min="big"), pl.ConfigError, "dw_min is 'big'; write a number"),
    (lambda: SB(dw_min=None), pl.ConfigError, "dw_min is None; write a number"),
    (lambda: SB(dw_min=object()), pl.ConfigError, "dw_min is an object of type object"),
    (lambda: SB(dw_mim=0.1), pl.ConfigError, "no parameter 'dw_mim'; did you mean 'dw_min'"),
    (lambda: SB(mult_noise=2), pl.ConfigError, "mult_noise is 2; write True or False"),
    (lambda: SB(corrupt_devices_prob=1.5), pl.ConfigError, "it must be >= 0 and <= 1"),
    (lambda: SB(w_max=0.0, w_min=0.0), pl.ConfigError, "leaves the weight no range"),
    (lambda: SB(w_max=2**-60), pl.ConfigError, "w_max is 8.67361738e-19; it must be 0 or >= 1e-15"),
    (lambda: SB(w_min=-(2**-60)), pl.ConfigError, "w_min is -8.67.*; it must be 0 or <= -1e-15"),
    (lambda: SB(dw_min=1e15, up_down=1e15), pl.ConfigError, "more than 1e15 times the distance of"),
    (
        lambda: SB(dw_min_dtod=1e7, dw_min_dtod_log_normal=True),
        pl.ConfigError,
        "dw_min_dtod is 10000000 with dw_min_dtod_log_normal.*it must be <= 10, for example 0.5",
    ),
    (lambda: SB(pulse_noise="closed_from"), pl.ConfigError, "did you mean 'closed_form'"),
    (lambda: SB(construction_seed=2**64), pl.ConfigError, "beyond 64-bit integers"),
    (lambda: pl.UpdateParameters(desired_bl=0), pl.ConfigError, "desired_bl is 0; it must be"),
    (lambda: pl.UpdateParameters(desired_bl=1.5), pl.ConfigError, "write a whole number"),
    (lambda: pl.UpdateParameters(pulse_type="nun"), pl.ConfigError, "did you mean 'none'"),
    (lambda: pl.IOParameters(out_noise=-1), pl.ConfigError, "out_noise is -1; it must be >= 0"),
    (lambda: LRTT(rank=-1), pl.ConfigError, "LRTTConfig.rank is -1; it must be >= 0"),
    (lambda: LRTT(rank=2**40), pl.ConfigError, "does not fit its integer type"),
    (lambda: LRTT(lora_alpha="car"), pl.ConfigError, "write a number or 'auto'"),
    (lambda: LRTT(visible=3), pl.ConfigError, "visible is 3; write a device such as"),
    (lambda: LRTT(visible={"dw_min": 1}), pl.ConfigError, "visible names no device model"),
    (lambda: LRTT(visible={"model": "SoftBond"}), pl.ConfigError, "did you mean 'SoftBounds'"),
    (lambda: LRTT(fast={"model": "SoftBounds", "dw_min": -1}), pl.ConfigError, "fast.dw_min is -1"),
    (lambda: LRTT(forward={"out_nois": 1}), pl.ConfigError, "did you mean 'out_noise'"),
    (lambda: pl.TileConfig.from_dict([("rank", 1)]), TypeError, "of type list; pass a dict"),
    (lambda: pl.IOParameters.from_dict(()), TypeError, "of type tuple; pass a dict"),
    (lambda: pl.devices.Device.from_dict([]), TypeError, "of type list; pass a dict"),
    (lambda: pl.TileConfig.from_dict({"kind": "lrt"}), pl.ConfigError, "did you mean 'lrtt'"),
    (lambda: LRTT.from_dict({"kind": "ideal"}), pl.ConfigError, "not a LRTTConfig"),
    (lambda: _make(0, 3), pl.ConfigError, "d_size is 0; it must be >= 1"),
    (lambda: _make(3, -1), pl.ConfigError, "x_size is -1; it must be >= 1"),
    (lambda: _make(2.5, 3), pl.ConfigError, "d_size is 2.5; write a whole number"),
    (lambda: _make("3", 3), pl.ConfigError, "d_size is '3'; write a whole number"),
    (lambda: _make(2**31 - 1, 2**31 - 1), pl.ConfigError, "split the layer over several tiles"),
    (lambda: _make(2**62, 2**62), pl.ConfigError, "split the layer over several tiles"),
    (lambda: _make(config=SB()), TypeError, "config is of type SoftBounds; pass a SingleConfig"),
    (lambda: _make(config=LRTT(rank=7)), pl.ConfigError, r"lrtt.rank is 7; .*\[6, 10\]"),
    (lambda: _make(seed=-1), pl.ConfigError, "seed is -1; it must be >= 0"),
    (lambda: _make(seed=2**64), pl.ConfigError, "seed is beyond 64-bit integers"),
    (lambda: _make(tile_id=2**32), pl.ConfigError, "tile_id is 4294967296, which does not fit"),
    (lambda: _make(threads=0), pl.ConfigError, "threads is 0; it must be >= 1"),
    (lambda: _make(device="gpu"), pl.ConfigError, "device is 'gpu'; write 'cpu', 'cuda'"),
    (lambda: _make(device="cuda:x"), pl.ConfigError, "device is 'cuda:x'; write 'cpu', 'cuda'"),
    (lambda: pl.devices.SoftBonds, AttributeError, "did you mean 'SoftBounds'"),
]

USING: list[tuple[Callable[[pl.Tile], object], type[Exception], str]] = [
    (
        lambda t: t.forward(X[:, :3]),
        pl.InputError,
        r"x has shape \[4, 3\]; forward takes \[batch, x_size = 10\]",
    ),
    (
        lambda t: t.forward(X[0, :3]),
        pl.InputError,
        r"x has shape \[1, 3\]; forward takes \[batch, x_size = 10\]",
    ),
    (lambda t: t.forward(X[None]), pl.InputError, r"x has shape \[1, 4, 10\]; pass a batch"),
    (lambda t: t.forward(np.array(1.0)), pl.InputError, r"x has shape \[\]; pass a batch"),
    (lambda t: t.forward(NAN), pl.InputError, r"x\[2, 3\] is nan; every value must be finite"),
    (lambda t: t.forward([[1.0] * 10]), TypeError, "x is of type list; pass a NumPy array"),
    (lambda t: t.forward(X.astype(int)), TypeError, "x has dtype int64; convert it to float32"),
    (lambda t: t.forward(X > 0), TypeError, "x has dtype bool; convert it to float32"),
    (lambda t: t.forward(X + 1j), TypeError, "x has dtype complex64; convert it to float32"),
    (lambda t: t.forward(X.astype(object)), TypeError, "x has dtype object; convert it"),
    (lambda t: t.forward(X, X), pl.InputError, r"out has shape \[4, 10\]; it must be \[4, 6\]"),
    (
        lambda t: t.forward(X, D.astype(float)),
        pl.InputError,
        "out must be a writable, aligned float32",
    ),
    (lambda t: t.forward(X, X[:, :6]), pl.InputError, "out shares memory with the input"),
    (lambda t: t.forward(X, _read_only()), pl.InputError, "out must be a writable"),
    (
        lambda t: t.backward(X),
        pl.InputError,
        r"d has shape \[4, 10\]; backward takes \[batch, d_size = 6\]",
    ),
    (lambda t: t.backward(INF), pl.InputError, r"d\[1, 5\] is -inf"),
    (
        lambda t: t.update(X, D[:3], 0.1),
        pl.InputError,
        r"d has shape \[3, 6\]; update takes \[batch = 4, d_size = 6\]",
    ),
    (lambda t: t.update(D, X, 0.1), pl.InputError, r"x has shape \[4, 6\]"),
    (lambda t: t.update(NAN, D, 0.1), pl.InputError, r"x\[2, 3\] is nan"),
    (lambda t: t.update(X, INF, 0.1), pl.InputError, r"d\[1, 5\] is -inf"),
    (lambda t: t.update(X, D, float("nan")), pl.ConfigError, "lr is nan; it must be finite"),
    (lambda t: t.update(X, D, float("inf")), pl.ConfigError, "lr is inf; it must be finite"),
    (lambda t: t.update(X, D, 1e39), pl.ConfigError, "beyond single precision"),
    (lambda t: t.update(X, D, "fast"), pl.ConfigError, "lr is 'fast'; write a number"),
    (lambda t: t.end_batch(float("nan")), pl.ConfigError, "lr is nan"),
    (lambda t: t.explain(X, INF, 0.1), pl.InputError, r"d\[1, 5\] is -inf"),
    (lambda t: setattr(t, "weights", WEIGHTS.T), pl.InputError, r"weights has shape \[10, 6\]"),
    (lambda t: setattr(t, "weights", WEIGHTS[0]), pl.InputError, "weights is a vector"),
    (lambda t: setattr(t, "weights", WEIGHTS * np.nan), pl.InputError, r"weights\[0, 0\] is nan"),
    (lambda t: setattr(t, "visible", WEIGHTS.T), pl.InputError, r"weights has shape \[10, 6\]"),
    (
        lambda t: setattr(t.adapter, "a", WEIGHTS),
        pl.InputError,
        r"\[6, 10\]; setArray takes \[rows = 6, columns = 3\]",
    ),
    (lambda t: setattr(t, "threads", 0), pl.ConfigError, "threads is 0"),
    (lambda t: t.describe_cells("fast"), pl.ConfigError, "did you mean 'fast_a'"),
    (lambda t: t.adapter.forward(X, X), pl.InputError, r"gate has shape \[4, 10\]"),
    (lambda t: t.adapter.backward(D, NAN[:, 2:5], X[:, :3]), pl.InputError, r"gate\[2, 1\] is nan"),
    (lambda t: t.adapter.update(X, D, X[:3, :3], 0.1), pl.InputError, r"gate has shape \[3, 3\]"),
    (lambda t: t.adapter.set_reinit_vectors(X[:3]), pl.ConfigError, "lrtt.reinit is 'decay'"),
    (lambda t: t.load_state(pl.State({}, {})), pl.StateError, "no count 'version'"),
    (lambda t: t.load_state(pl.State({"\ud800": X}, {})), pl.StateError, "half a surrogate pair"),
    (
        lambda t: t.load_state(pl.State({"a": X > 0}, {})),
        pl.StateError,
        "'a' of the state has dtype",
    ),
]


def _read_only() -> np.ndarray[Any, np.dtype[np.float32]]:
    out = np.zeros((4, D_SIZE), np.float32)
    out.flags.writeable = False
    return out


@pytest.mark.parametrize(("call", "error", "fragment"), MAKING)
def test_making(call: Callable[[], object], error: type[Exception], fragment: str) -> None:
    with pytest.raises(error, match=fragment):
        call()


@pytest.mark.parametrize(("call", "error", "fragment"), USING)
def test_using_changes_nothing(
    call: Callable[[pl.Tile], object], error: type[Exception], fragment: str
) -> None:
    tile = make_tile(CONFIGS["lrtt"]())
    tile.update(X, D, 0.05)
    before = state.dumps(tile.state())
    with pytest.raises(error, match=fragment):
        call(tile)
    assert state.dumps(tile.state()) == before


ALIKE = pl.devices.ConstantStep(w_max_dtod=0.0, w_min_dtod=0.0)


@pytest.mark.parametrize(
    "config",
    [
        pl.IdealConfig(),
        pl.SingleConfig(device=ALIKE),
        pl.LRTTConfig(rank=3, visible=ALIKE),
    ],
)
def test_a_refused_read_moves_no_running_mean(config: pl.TileConfig) -> None:
    average = pl.IOParameters(
        noise_management="average_abs_max", nm_decay=1.0, out_bound=0.0, out_res=0.0
    )
    tile = make_tile(config.replace(forward=average, backward=average))
    tile.weights = np.full((D_SIZE, X_SIZE), 0.5, np.float32)
    x, d = make_batch(3)
    for read, batch in ((tile.forward, x), (tile.backward, d)):
        read(batch)
        before = state.dumps(tile.state())
        batch[1] = 3e38
        with pytest.raises(pl.InputError, match="beyond single precision"):
            read(batch)
        assert state.dumps(tile.state()) == before


def test_an_ideal_tile_has_no_arrays() -> None:
    tile = make_tile(pl.IdealConfig())
    assert not hasattr(tile, "visible")
    with pytest.raises(AttributeError, match="this tile has no array called visible"):
        tile.visible = WEIGHTS
    with pytest.raises(KeyError, match="this tile has no array 'visible'; it has none"):
        tile.arrays["visible"]


def test_torch_tensors_are_refused_as_arrays_are() -> None:
    torch = pytest.importorskip("torch")
    tile = make_tile(CONFIGS["single"]())
    with pytest.raises(pl.InputError, match=r"use tensor.detach\(\)"):
        tile.forward(torch.zeros(2, X_SIZE, requires_grad=True))
    for dtype in (torch.bfloat16, torch.int64, torch.complex64):
        with pytest.raises(TypeError, match="x has dtype"):
            tile.forward(torch.zeros(2, X_SIZE, dtype=dtype))
    with pytest.raises(pl.InputError, match=r"x\[0, 9\] is inf"):
        tile.forward(torch.tensor([[0.0] * 9 + [float("inf")]]))


def test_values_beyond_float32_are_refused() -> None:
    with pytest.raises(pl.InputError, match=r"beyond the range of float32|is inf"):
        make_tile(CONFIGS["single"]()).forward(X.astype(float) * 1e300)


@pytest.mark.skipif(pl.cuda_device_count() > 0, reason="there is a CUDA device")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_cuda_without_a_device(device: str) -> None:
    with pytest.raises(pl.DeviceError, match="device='cpu'"):
        _make(device=device)


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory by setrlimit")
def test_out_of_memory_leaves_the_tile_as_it_was() -> None:
    import resource  # noqa: PLC0415

    tile = make_tile(CONFIGS["single"]())
    before = tile.weights
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, limits[1]))
    try:
        with pytest.raises(pl.OutOfMemoryError, match="use a smaller"):
            _make(2**15, 2**15)
        with pytest.raises(MemoryError):
            _make(2**15, 2**15, config=pl.IdealConfig())
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert tile.weights.tobytes() == before.tobytes()


MOST = 2**44  # array/events.h

# Counters of a state, their limits, and how much of them a mini-batch with a transfer takes.
COUNTED: dict[str, tuple[str, int, int, dict[str, Any]]] = {
    "samples": ("update_samples", MOST, 2, {}),
    "mini-batches": ("mini_batches", MOST, 1, {}),
    "verified": (
        "transfer/total/transfers", MOST // (3 * 64 * 4), 1, {"transfer_mode": "verified"},
    ),
    "write_verify": ("transfer/total/transfers", MOST // (2 * 64), 1, {}),
    "lossless": (
        "transfer/total/transfers", MOST // (3 * 64), 1, {"transfer_mode": "lossless"},
    ),
    "exact": ("transfer/total/transfers", MOST, 1, {"transfer_mode": "exact"}),
    "read": (
        "transfer/total/transfers", MOST // 3, 1,
        {"transfer_mode": "exact", "transfer_read": "analog"},
    ),
    "re-inits": ("reinits", MOST, 1, {}),
    "writes": ("writes", MOST, 3, {}),
    "pulsed writes": ("writes", MOST // (3 * 8), 3, {"reinit_write": "pulsed"}),
    "owed": ("sendings", MOST // 3, 2, {"ab_update": "accumulated"}),
}  # fmt: skip


@pytest.mark.parametrize("units_in_mbatch", [True, False])
@pytest.mark.parametrize("what", COUNTED)
def test_counts_end_before_the_numbers_of_their_draws(what: str, units_in_mbatch: bool) -> None:
    """A call without enough random numbers left is refused and changes nothing; else it works."""
    name, most, needed, options = COUNTED[what]
    every = 1 if units_in_mbatch else 2
    config = LRTT(rank=3, transfer_every=every, units_in_mbatch=units_in_mbatch, **options)
    saved = make_tile(config).state()

    def at(count: int) -> pl.Tile:
        saved.values[name] = count
        return pl.Tile.from_state(saved.signed(), threads=1)

    x, d = X[:2], D[:2]
    gate = np.ones((2, 3), np.float32)
    tile = at(most - needed)
    tile.update(x, d, 0.1)
    tile.forward(x)
    assert np.isfinite(tile.weights).all()
    assert pl.Tile.from_state(tile.state()).counters == tile.counters

    tile = at(most - needed + 1)
    before = state.dumps(tile.state())
    refused = rf"this tile has counted {most - needed + 1} .* would exceed the {most} "
    calls = [
        lambda: tile.update(x, d, 0.1),
        lambda: tile.adapter.update(x, d, gate, 0.1),
    ]
    if name not in {"update_samples", "mini_batches", "sendings"}:
        calls.append(tile.adapter.transfer)
    for call in calls:
        with pytest.raises(pl.InputError, match=refused):
            call()
        assert state.dumps(tile.state()) == before
    if name == "writes":
        tile = at(most)
        before = state.dumps(tile.state())
        for array in ("weights", "fast_a", "fast_b"):
            with pytest.raises(pl.InputError, match=r"counted .* writes of A and B"):
                _write(tile, array)
            assert state.dumps(tile.state()) == before


def _write(tile: pl.Tile, array: str) -> None:
    if array == "weights":
        tile.weights = WEIGHTS
    else:
        tile.arrays[array] = tile.arrays[array]


def test_a_long_update_is_refused_before_its_first_sample() -> None:
    """Also if it is so long that it runs in parts, the first of which have random numbers."""
    config = LRTT(rank=2, transfer_every=1000, units_in_mbatch=False, transfer_mode="verified")
    saved = pl.Tile(200, 200, config, seed=5, threads=1).state()
    saved.values["transfer/total/transfers"] = MOST // (2 * 64 * 4) - 2
    tile = pl.Tile.from_state(saved.signed(), threads=1)
    before = state.dumps(tile.state())
    x = np.zeros((3000, 200), np.float32)
    with pytest.raises(pl.InputError, match="transfers, and 3 more would exceed"):
        tile.update(x, x, 0.1)
    assert state.dumps(tile.state()) == before
    tile.update(x[:2000], x[:2000], 0.1)
    assert tile.statistics()["transfers"] == MOST // (2 * 64 * 4)


def test_errors_are_what_python_expects() -> None:
    assert issubclass(pl.ConfigError, ValueError)
    assert issubclass(pl.InputError, ValueError)
    assert issubclass(pl.StateError, ValueError)
    assert issubclass(pl.DeviceError, RuntimeError)
    assert issubclass(pl.OutOfMemoryError, MemoryError)
    assert pl.ConfigError.__module__ == "pulsora"


@pytest.mark.parametrize("strange", ["list", "meta", "sparse", "bfloat16"])
def test_a_layer_refuses_entries_that_no_tile_has_saved(strange: str) -> None:
    torch = pytest.importorskip("torch")
    layer = pl.nn.AnalogLinear(3, 2, seed=1)
    state = layer.state_dict()
    name = "tiles.0_0.weights"
    state[name] = {
        "list": state[name].tolist(),
        "meta": state[name].to("meta"),
        "sparse": state[name].to_sparse(),
        "bfloat16": state[name].to(torch.bfloat16),
    }[strange]
    before = layer.state_dict()
    with pytest.raises(RuntimeError, match=r"0_0.weights' is no tensor of a tile's state"):
        layer.load_state_dict(state)
    assert all(torch.equal(before[key], value) for key, value in layer.state_dict().items())
