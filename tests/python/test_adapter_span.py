"""An adapter that spans a layer: one tile, read in blocks of limited arrays."""

from __future__ import annotations

import copy
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import pulsora as pl
from conftest import PERFECT, same_bits
from pulsora.nn import AnalogConv2d, AnalogLinear, GatedAdapter, LearnedGate
from reference_io import IO, AnalogRead
from reference_random import make_key, part_key

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

# 2 blocks of outputs, and 3 of inputs.
D, X, K = 13, 20, 3
LIMITS = {"max_output_size": 7, "max_input_size": 8}
READS = (16, 17, 18)  # the streams of W, A and B (array/array_keys.h)
WIDE = pl.devices.ConstantStep(w_max=2.0, w_min=-2.0, w_max_dtod=0.0, w_min_dtod=0.0)


def config(io: dict[str, Any] | None = None, **changes: Any) -> pl.LRTTConfig:
    periphery = pl.IOParameters(**(io or {}))
    values = {
        "rank": K, "visible": WIDE, "fast": WIDE, "adapter_span": "layer",
        "forward": periphery, "backward": periphery, **LIMITS,
    }  # fmt: skip
    return pl.LRTTConfig(**(values | changes))


def tile_of(made: pl.LRTTConfig, d_size: int = D, x_size: int = X, **options: Any) -> pl.Tile:
    tile = pl.Tile(d_size, x_size, made, **({"seed": 5, "tile_id": 2, "threads": 1} | options))
    rng = np.random.default_rng(2)
    for name in tile.arrays:
        shape = tile.arrays[name].shape
        tile.arrays[name] = rng.uniform(-0.5, 0.5, shape).astype(np.float32)
    return tile


def batch(samples: int, seed: int = 1) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, X)).astype(np.float32)
    return x, 0.1 * rng.normal(size=(samples, D)).astype(np.float32)


def on(tile: pl.Tile, array: NDArray[Any]) -> Any:  # noqa: ANN401 - as the tile takes it
    """Rows of floats on the device of the tile."""
    rows = array.astype(np.float32)
    return rows if tile.device == "cpu" else torch.from_numpy(rows).to(tile.device)


def read(tile: pl.Tile, x: NDArray[Any], d: NDArray[Any]) -> list[NDArray[np.float32]]:
    """The forward and the backward read, in host memory."""
    both = tile.forward(on(tile, x)), tile.backward(on(tile, d))
    return [np.asarray(torch.from_dlpack(each).cpu()) for each in both]


def steps(tile: pl.Tile, count: int = 4, first: int = 0) -> list[NDArray[np.float32]]:
    seen = []
    for step in range(first, first + count):
        x, d = batch(6, step)
        seen += read(tile, x, d)
        tile.update(on(tile, x), on(tile, d), 0.05)
    return [*seen, tile.weights]


def edges(size: int, limit: int) -> list[slice]:
    count = -(-size // limit)
    marks = [i * size // count for i in range(count + 1)]
    return [slice(*pair) for pair in itertools.pairwise(marks)]


def oracle(
    io: IO, stream: int, w: Floats, x: Floats, limits: tuple[int, int], backward: bool
) -> Floats:
    """x W^T, with W split into blocks of at most `limits` [outputs, inputs] of the read."""
    outs, ins = edges(w.shape[0], limits[0]), edges(w.shape[1], limits[1])
    key = make_key(5, 2, stream)
    y = np.zeros((len(x), w.shape[0]))
    for i, out in enumerate(outs):
        for j, into in enumerate(ins):
            number = j * len(outs) + i if backward else i * len(ins) + j
            block = w[out, into]
            of_block = AnalogRead(io, part_key(key, number), *block.shape, backward)
            y[:, out] += of_block(block, x[:, into])
    return y


# Converters without steps: the reference in double precision would fall on other levels.
EXACT = {"inp_res": 0.0, "out_res": 0.0}
PERIPHERIES: dict[str, dict[str, Any]] = {
    "noise": {"inp_noise": 0.05, "out_noise_std": 0.3},
    "weights": {
        "w_noise": 0.05, "w_noise_type": "pcm_read", "ir_drop": 1.0, "ir_drop_gw_div_gmax": 100.0,
    },
    "asymmetry": {"mv_type": "pos_neg_separate", "w_read_asymmetry_dtod": 0.2, "v_offset_std": 0.1},
    "bounds": {"out_bound": 0.5, "bm_backward": True, "out_noise": 0.01},
    "mean": {"noise_management": "average_abs_max", "nm_decay": 0.25},
}  # fmt: skip


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("values", list(PERIPHERIES.values()), ids=list(PERIPHERIES))
def test_each_block_is_read_with_a_periphery_of_its_own(
    values: dict[str, Any], swap: bool, device: str
) -> None:
    values = EXACT | values
    tile = tile_of(config(values, swap_xd=swap, lora_alpha=0.7), device=device)
    w, a, b = (tile.arrays[name].astype(np.float64) for name in ("visible", "fast_a", "fast_b"))
    io = IO(**values)
    x, d = (each.astype(np.float64) for each in batch(3))
    out, into = LIMITS.values()
    limits, back = (out, into), (into, out)

    def injected(v: Floats, backward: bool) -> Floats:
        of_w, of_a, of_b = READS
        y = oracle(io, of_w, w.T if backward else w, v, back if backward else limits, backward)
        # With swap_xd, the adapter is transposed: its forward read serves the backward pass.
        own = backward != swap
        first, second = ((of_a, a.T), (of_b, b.T)) if own else ((of_b, b), (of_a, a))
        inner = oracle(io, *first, v, back if backward else limits, own)
        return y + 0.7 * oracle(io, *second, inner, back if backward else limits, own)

    y, dx = read(tile, x, d)
    np.testing.assert_allclose(y, injected(x, backward=False), rtol=0, atol=2e-5)
    np.testing.assert_allclose(dx, injected(d, backward=True), rtol=0, atol=2e-5)


@pytest.mark.parametrize("swap", [False, True])
def test_projections_and_reads_for_a_transfer_are_cut_too(swap: bool, device: str) -> None:
    values: dict[str, Any] = EXACT | {"inp_noise": 0.05}
    made = config(
        values, swap_xd=swap, transfer_every=0, transfer_mode="exact", transfer_read="analog",
        transfer_lr=1.0, a_lr=0.5, b_lr=0.25, reinit="none",
        update=pl.UpdateParameters(pulse_type="none"),
    )  # fmt: skip
    tile = tile_of(made, device=device)
    tile.arrays["visible"] = np.zeros((D, X), np.float32)
    a, b = (tile.arrays[name].astype(np.float64) for name in ("fast_a", "fast_b"))
    io = IO(**values)
    x, d = (each.astype(np.float64) for each in batch(1))
    into, out = (d, x) if swap else (x, d)
    limits = (8, 7) if swap else (7, 8)  # of B and A in their own forward direction
    tile.update(on(tile, x), on(tile, d), 0.1)
    g = oracle(io, 20, b, into, limits, backward=False)
    e = oracle(io, 19, a.T, out, limits[::-1], backward=True)
    np.testing.assert_allclose(tile.arrays["fast_a"], a - 0.05 * out.T @ g, rtol=0, atol=2e-6)
    np.testing.assert_allclose(tile.arrays["fast_b"], b - 0.025 * e.T @ into, rtol=0, atol=2e-6)

    a, b = (tile.arrays[name].astype(np.float64) for name in ("fast_a", "fast_b"))
    tile.adapter.transfer()
    columns = oracle(io, 21, a, np.eye(K), limits, backward=False)
    rows = oracle(io, 22, b.T, np.eye(K), limits[::-1], backward=True)
    moved = columns.T @ rows
    np.testing.assert_allclose(
        tile.arrays["visible"], moved.T if swap else moved, rtol=0, atol=1e-5
    )


def test_one_block_is_the_read_of_a_tile_that_is_not_cut(device: str) -> None:
    plain = tile_of(
        config(adapter_span="tile", max_output_size=0, max_input_size=0, transfer_every=3),
        device=device,
    )
    whole = tile_of(config(max_output_size=D, max_input_size=X, transfer_every=3), device=device)
    assert same_bits(steps(whole), steps(plain))


def test_a_perfect_read_in_blocks_is_the_product(device: str) -> None:
    tile = tile_of(config({"is_perfect": True}), device=device)
    x, d = batch(9)
    w = tile.weights.astype(np.float64)
    scale = np.abs(w).sum(1).max()
    y, dx = read(tile, x, d)
    np.testing.assert_allclose(y, x @ w.T, rtol=0, atol=3e-6 * scale)
    np.testing.assert_allclose(dx, d @ w, rtol=0, atol=3e-6 * scale)


def test_variances_of_the_blocks_of_a_row_add_up() -> None:
    tile = pl.Tile(D, X, config(EXACT | {"out_noise": 0.1}, rank=0), seed=3)
    samples = 2000
    x = np.ones((samples, X), np.float32)
    blocks = np.array([part.stop - part.start for part in edges(X, LIMITS["max_input_size"])])
    x[:, : blocks[0]] *= 2.0  # the scale of a block is its own largest input
    y = tile.forward(x) - x @ tile.weights.T
    variance = 0.1**2 * (2.0**2 + 1.0 + 1.0)
    off = (y.var(axis=0) / variance - 1.0) / np.sqrt(2.0 / samples)
    assert np.abs(off).max() < 5.0  # 13 statistics
    correlation = np.corrcoef(y.T)[np.triu_indices(D, 1)] * np.sqrt(samples)
    assert np.abs(correlation).max() < 5.0  # 78 statistics


def test_bits_depend_neither_on_threads_nor_on_parts_of_a_batch() -> None:
    made = config({"inp_noise": 0.05, "out_sto_round": True, "inp_sto_round": True})
    x, d = batch(130)
    one, two, first, second = (tile_of(made, threads=1 + (i == 1)) for i in range(4))
    whole = [one.forward(x), one.backward(d)]
    assert same_bits([two.forward(x), two.backward(d)], whole)
    parts = [
        (
            tile.forward(x[rows], first=rows.start, of=130),
            tile.backward(d[rows], first=rows.start, of=130),
        )
        for tile, rows in ((first, slice(0, 47)), (second, slice(47, 130)))
    ]  # fmt: skip
    assert same_bits([np.concatenate(each) for each in zip(*parts, strict=True)], whole)


@pytest.mark.parametrize(
    "changes",
    [
        {"io": PERIPHERIES["mean"], "transfer_read": "analog"},
        {"projection": "reuse", "swap_xd": True},
        {"ab_update": "accumulated", "chopper": "reinit", "reinit_write": "pulsed"},
    ],
)  # fmt: skip
def test_a_tile_goes_on_exactly_where_it_stood(changes: dict[str, Any], device: str) -> None:
    tile = tile_of(config(**changes, transfer_every=3), device=device)
    steps(tile, 4)
    other = pl.Tile.from_state(tile.state(), device=device)
    assert same_bits(steps(tile, 4, first=4), steps(other, 4, first=4))
    assert tile.counters == other.counters


def test_a_transfer_over_the_whole_layer_loses_nothing(device: str) -> None:
    sure = pl.devices.ConstantStep(
        dw_min_std=0.0, dw_min_dtod=0.0, w_max=2.0, w_min=-2.0, w_max_dtod=0.0, w_min_dtod=0.0
    )
    tile = tile_of(config(visible=sure, transfer_every=0, lora_alpha=0.5), device=device)
    before = tile.weights
    wanted = 0.5 * tile.arrays["fast_a"] @ tile.arrays["fast_b"]
    visible = tile.arrays["visible"]
    tile.adapter.transfer()
    moved = tile.arrays["visible"] - visible
    assert np.abs(moved - wanted).max() < 0.2 * np.abs(wanted).max()
    assert np.corrcoef(moved.ravel(), wanted.ravel())[0, 1] > 0.99
    stats = tile.adapter.transfer_stats["total"]
    assert (stats["clipped_components"], stats["undelivered"]) == (0, 0.0)
    assert abs(stats["gain"] - 1.0) < 0.03
    assert np.abs(tile.weights - before).max() < 0.2 * np.abs(wanted).max()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"inject_io": "shared"},
            r"inject_io is 'shared'.*\[13, 20\] is read in 6 blocks.*set inject_io to 'per_array'",
        ),
        (
            {"adapter_span": "tile"},
            "max_input_size is 8 and lrtt.adapter_span is 'tile'.*set adapter_span to 'layer'",
        ),
        ({"max_input_size": -1}, "max_input_size.*-1"),
    ],
)  # fmt: skip
def test_settings_without_meaning_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(pl.ConfigError, match=message):
        pl.Tile(D, X, config(**changes), seed=1)
    pl.Tile(7, 8, config(inject_io="shared"), seed=1)  # a single block


def test_too_many_blocks_are_refused() -> None:
    with pytest.raises(pl.ConfigError, match="more than 4096 blocks; raise them"):
        pl.Tile(65, 64, config(max_input_size=1, max_output_size=1), seed=1)


LAYER = pl.LRTTConfig(rank=4, adapter_span="layer", transfer_every=5)


def layer_of(device: str = "cpu", **changes: Any) -> AnalogLinear:
    return AnalogLinear(
        70, 40, config=LAYER.replace(**changes), seed=3, device=device,
        max_input_size=32, max_output_size=32,
    )  # fmt: skip


def losses_of(layer: torch.nn.Module, device: str, count: int = 40) -> list[float]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(32, 70, generator=generator).to(device)
    left, right = (torch.randn(size, generator=generator) for size in ((32, 3), (3, 40)))
    target = (left @ right).to(device)
    optimizer = pl.optim.AnalogSGD(layer.parameters(), lr=0.5)
    losses = []
    for _ in range(count):
        optimizer.zero_grad()
        loss = (layer(x) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_layer_has_one_a_and_one_b_and_learns(device: str) -> None:
    layer = layer_of(device)
    (tile,) = layer.tiles
    assert tile.arrays["fast_a"].shape == (40, 4)
    assert tile.arrays["fast_b"].shape == (4, 70)
    assert (tile.config.max_input_size, tile.config.max_output_size) == (32, 32)
    assert layer.config == LAYER
    losses = losses_of(layer, device)
    assert losses[-1] < 0.6 * losses[0]
    assert tile.statistics()["transfers"] == 8


def test_a_layer_is_saved_loaded_copied_and_moved(device: str) -> None:
    layer = layer_of(device)
    losses_of(layer, device, 3)
    copied, loaded = copy.deepcopy(layer), layer_of(device)
    loaded.load_state_dict(layer.state_dict())
    moved = copy.deepcopy(layer).to("cpu").to(device)
    again = losses_of(layer, device, 7)
    for other in (copied, loaded, moved):
        assert losses_of(other, device, 7) == again
    tiles = AnalogLinear(
        70, 40, config=LAYER.replace(adapter_span="tile"), max_input_size=32, max_output_size=32
    )
    with pytest.raises(
        RuntimeError, match=r"was saved with size .40, 70., but here it has .20, 23."
    ):
        tiles.load_state_dict(layer.state_dict())


def test_gates_and_groups(device: str) -> None:
    gated = GatedAdapter(layer_of(device), gate=LearnedGate(70, 4).to(device))
    assert gated.components == 4
    losses = losses_of(gated, device, 40)
    assert losses[-1] < losses[0]
    conv = AnalogConv2d(
        4, 6, 3, groups=2, config=LAYER.replace(rank=2), device=device, max_input_size=8, seed=1
    )
    assert [tile.arrays["fast_b"].shape for tile in conv.tiles] == [(2, 18), (2, 18)]
    x = torch.randn(2, 4, 5, 5, device=device)
    weight, bias = conv.get_weights()
    expected = torch.nn.functional.conv2d(x, weight.view(6, 2, 3, 3), bias, groups=2)
    assert (conv(x) - expected).abs().max() < 1.0
    assert conv(x).std() > 0.1


@pytest.mark.parametrize("spans_by", ["config", "argument"])
def test_a_file_of_rank_k_goes_through_four_blocks_and_back(
    spans_by: str, tmp_path: Path, device: str
) -> None:
    pytest.importorskip("safetensors")
    arrays = pl.LRTTConfig(visible=WIDE, fast=WIDE, transfer_every=0, **PERFECT)
    torch.manual_seed(1)
    plain = torch.nn.Sequential(torch.nn.Linear(20, 14), torch.nn.Tanh(), torch.nn.Linear(14, 3))
    first = pl.peft.add_adapters(
        plain, "analog_base_digital_adapter", rank=3, targets=["0"],
        base_config=pl.SingleConfig(device=WIDE, **PERFECT), seed=1,
    )  # fmt: skip
    with torch.no_grad():
        first.get_submodule("0").a.normal_(std=0.3)
    pl.peft.save_adapter(first, tmp_path / "there")
    span: dict[str, Any] = {"adapter_span": "layer"}
    by_argument = spans_by == "argument"
    how = {"config": arrays} | span if by_argument else {"config": arrays.replace(**span)}
    made, report = pl.peft.load_adapter(
        plain.to(device), tmp_path / "there", "analog_base", seed=1,
        max_input_size=10, max_output_size=7, **how,
    )  # fmt: skip
    assert report.error < 1e-6
    assert len(made.get_submodule("0").tiles) == 1
    x = torch.randn(5, 20)
    wanted = first(x)
    torch.testing.assert_close(made(x.to(device)).cpu(), wanted, rtol=1e-5, atol=1e-5)
    (row,) = pl.peft.save_adapter(made, tmp_path / "back")
    assert (row.rank, row.how, row.error) == (3, "as they are", 0.0)
    again, _ = pl.peft.load_adapter(
        plain.cpu(), tmp_path / "back", "analog_base_digital_adapter",
        base_config=pl.SingleConfig(device=WIDE, **PERFECT), seed=1,
    )  # fmt: skip
    torch.testing.assert_close(again(x), wanted, rtol=1e-5, atol=1e-5)


def test_the_noise_of_explain_is_that_of_reads_in_blocks() -> None:
    """The noise of the adapter and of W, against the noise of reads."""
    io = EXACT | {"out_noise": 0.05, "bound_management": "none", "out_bound": 0.0}
    rows = 4000
    x = np.tile(batch(1)[0], (rows, 1))
    tile = tile_of(config(io, lora_alpha=1.5))
    with_adapter = tile.forward(x).astype(np.float64).var(axis=0).sum()
    without = tile_of(config(io, rank=0)).forward(x).astype(np.float64).var(axis=0).sum()
    told = float(tile.explain(x[:1], batch(1)[1], 0.1)["adapter_noise"])
    measured = with_adapter / without - 1.0
    # 5 sigma of the two variances are 0.051; a noisy B x has a little larger scale than explain's.
    assert abs(told**2 / measured - 1.0) < 0.06  # 1 statistic
