"""Counts of what hardware would have done: by hand, by statistics, in states, on a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pulsora as pl
from conftest import CONFIGS, DEVICES, make_tile

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

OUTPUTS, INPUTS, SAMPLES, STEPS = 5, 7, 4, 3
CELLS = OUTPUTS * INPUTS
ALL = STEPS * SAMPLES
SOFT = pl.devices.SoftBounds()
NOISELESS = pl.IOParameters(inp_res=0.0, out_res=0.0, out_noise=0.0)

COMPOUNDS: dict[str, Callable[[], pl.TileConfig]] = {
    **CONFIGS,
    "tiki_taka": lambda: pl.TikiTaka(SOFT),
    "ttv2": lambda: pl.TTv2(SOFT),
    "chopped": lambda: pl.ChoppedTTv2(SOFT),
    "agad": lambda: pl.AGAD(SOFT),
    "write_verify": lambda: pl.LRTTConfig(rank=2, transfer_every=1, transfer_mode="write_verify"),
    "reuse": lambda: pl.LRTTConfig(
        rank=2, projection="reuse", transfer_every=3, units_in_mbatch=False
    ),
    "inference": pl.InferenceConfig,
    "mixed_precision": lambda: pl.MixedPrecisionConfig(digital_weight=False),
}


def batch(step: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    rng = np.random.default_rng(step)
    x = rng.uniform(-1, 1, (SAMPLES, INPUTS)).astype(np.float32)
    return x, rng.uniform(-1, 1, (SAMPLES, OUTPUTS)).astype(np.float32)


def step(tile: pl.Tile, number: int, lr: float = 0.1) -> None:
    x, d = batch(number)
    tile.forward(x)
    tile.backward(d)
    tile.update(x, d, lr)


def trained(config: pl.TileConfig, **settings: Any) -> pl.Tile:
    tile = pl.Tile(OUTPUTS, INPUTS, config, seed=3, **settings)
    for number in range(STEPS):
        step(tile, number)
    return tile


def reads_of(tile: pl.Tile, array: str, use: str) -> dict[str, Any]:
    reads: list[dict[str, Any]] = tile.hardware_counts()["reads"]
    return next(one for one in reads if (one["array"], one["use"]) == (array, use))


def arrays_of(tile: pl.Tile) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in tile.hardware_counts()["arrays"]}


# Five cases by hand


def test_a_single_array_by_hand() -> None:
    update = pl.UpdateParameters(desired_bl=10, update_bl_management=False)
    tile = trained(pl.SingleConfig(device=SOFT, update=update))
    forward, backward = (reads_of(tile, "visible", use) for use in ("forward", "backward"))
    assert (forward["dac"], forward["adc"]) == (ALL * INPUTS, ALL * OUTPUTS)
    assert (backward["dac"], backward["adc"]) == (ALL * OUTPUTS, ALL * INPUTS)
    assert forward["array_reads"] == backward["array_reads"] == ALL
    assert forward["cell_reads"] == backward["cell_reads"] == ALL * CELLS
    assert arrays_of(tile)["visible"]["slots"] == 10 * ALL  # no sample of these is 0


def test_two_passes_convert_twice_by_hand() -> None:
    for kind, adc in (("pos_neg_separate", 1), ("pos_neg_separate_digital_sum", 2)):
        io = pl.IOParameters(mv_type=kind, bound_management="none")
        read = reads_of(trained(pl.SingleConfig(forward=io)), "visible", "forward")
        assert read["dac"] == 2 * ALL * INPUTS
        assert read["adc"] == adc * ALL * OUTPUTS
        assert read["array_reads"] == 2 * ALL


def test_bits_are_converted_one_by_one_by_hand() -> None:
    # 252 steps are 126 levels on each side, of 7 bits.
    for bits, slices in ((1, 7), (3, 3)):
        io = pl.IOParameters(
            mv_type="bit_serial", inp_res=252, input_slice_bits=bits, bound_management="none"
        )
        read = reads_of(trained(pl.SingleConfig(forward=io)), "visible", "forward")
        assert read["dac"] == slices * ALL * INPUTS
        assert read["adc"] == slices * ALL * OUTPUTS
        assert read["array_reads"] == slices * ALL
        added = io.replace(mv_type="bit_serial_analog_sum")
        read = reads_of(trained(pl.SingleConfig(forward=added)), "visible", "forward")
        assert read["dac"] == slices * ALL * INPUTS
        assert read["adc"] == ALL * OUTPUTS


def test_repeats_of_bound_management_by_hand() -> None:
    # Each of 100 inputs is 1 and each weight 0.5: sums of 50, 25 and 12.5 leave the range of 12.
    cells = pl.devices.ConstantStep(w_max_dtod=0.0, w_min_dtod=0.0)
    tile = pl.Tile(3, 100, pl.SingleConfig(device=cells, forward=NOISELESS))
    tile.weights = np.full((3, 100), 0.5, np.float32)
    x = np.ones((4, 100), np.float32)
    x[1, 20:] = 0.0  # 10 fits
    x[2, 40:] = 0.0  # 20 needs one repeat
    tile.forward(x)
    read = reads_of(tile, "visible", "forward")
    assert read["repeats"] == 3 + 0 + 1 + 3
    assert read["dac"] == (4 + 7) * 100
    assert read["adc"] == (4 + 7) * 3
    assert read["cell_reads"] == (4 + 7) * 300


def test_transfers_of_lines_by_hand() -> None:
    config = pl.TTv2(SOFT, transfer_every=2, units_in_mbatch=False)
    tile = trained(config)
    read = reads_of(tile, "fast_0", "transfer")
    assert read["samples"] == ALL // 2
    assert read["adc"] == ALL // 2 * OUTPUTS
    assert arrays_of(tile)["visible"]["lines"] == ALL // 2
    counts = tile.hardware_counts()
    assert counts["transfers"] == ALL // 2
    assert counts["digital_operations"] == ALL // 2 * OUTPUTS
    assert counts["digital_bytes"] == 8 * (ALL // 2) * OUTPUTS


def test_an_adapter_by_hand() -> None:
    rank = 2
    tile = trained(pl.LRTTConfig(rank=rank, transfer_every=2, projection="analog"))
    assert tile.hardware_counts()["transfers"] == STEPS // 2
    for array, rows, columns in (("fast_a", OUTPUTS, rank), ("fast_b", rank, INPUTS)):
        assert reads_of(tile, array, "forward")["cell_reads"] == ALL * rows * columns
        projection = reads_of(tile, array, "projection")
        assert projection["samples"] == ALL
        transfer = reads_of(tile, array, "transfer")
        assert transfer["samples"] == rank
        assert transfer["adc"] == rank * (rows + columns - rank)


def test_digital_weights_by_hand() -> None:
    counts = trained(pl.IdealConfig()).hardware_counts()
    assert counts["arrays"] == counts["reads"] == []
    assert counts["digital_operations"] == 3 * ALL * CELLS
    assert counts["digital_bytes"] == 16 * STEPS * CELLS


# All compounds


@pytest.mark.parametrize("name", list(COMPOUNDS))
def test_counts_agree_with_statistics(name: str) -> None:
    tile = trained(COMPOUNDS[name]())
    counts, statistics = tile.hardware_counts(), tile.statistics()
    assert sum(one["pulses"] for one in counts["arrays"]) == statistics["pulses"]
    assert counts["forward_samples"] == counts["update_samples"] == ALL
    lines = [
        one["samples"] for one in counts["reads"] if one["use"] == "transfer" and one["samples"]
    ]
    if "lines_read" in statistics:
        assert lines == statistics["lines_read"]
    if "transfers" in statistics:
        assert counts["transfers"] == statistics["transfers"]
    if name == "one_sided":
        assert counts["transfers"] == statistics["refreshes"]
    if name == "mixed_precision":
        assert counts["arrays"][0]["lines"] == statistics["rows_sent"] == STEPS * OUTPUTS
    for array in counts["arrays"]:
        if not array["lines"]:
            cells = array["rows"] * array["columns"]
            assert array["pulses"] <= array["slots"] * cells


@pytest.mark.parametrize("name", list(COMPOUNDS))
def test_a_state_carries_the_counts(name: str) -> None:
    whole, tile = (pl.Tile(OUTPUTS, INPUTS, COMPOUNDS[name](), seed=3) for _ in range(2))
    for number in range(STEPS):
        step(whole, number)
        step(tile, number)
        tile = pl.Tile.from_state(tile.state())
    assert tile.hardware_counts() == whole.hardware_counts()


def test_states_of_earlier_versions_load_with_zeros() -> None:
    tile = trained(CONFIGS["lrtt"]())
    state = tile.state()
    new = ("pulse_slots", "repeated_reads")
    added = [key for key in state.values if key.endswith(new)]
    assert len(added) > len(tile.arrays)
    for key in added:
        del state.values[key]
    values = {**state.values, "version": 2}
    del values["checksum"]
    tile.load_state(pl.State(state.tensors, values))
    assert all(one["slots"] == 0 for one in tile.hardware_counts()["arrays"])
    assert all(one["repeats"] == 0 for one in tile.hardware_counts()["reads"])


# What is no read of the hardware


def often_repeated(**settings: Any) -> pl.Tile:
    io = NOISELESS.replace(out_bound=0.2, bm_backward=True)
    tile = pl.Tile(OUTPUTS, INPUTS, pl.SingleConfig(forward=io, backward=io), seed=3, **settings)
    tile.weights = np.full((OUTPUTS, INPUTS), 0.3, np.float32)
    return tile


def test_evaluations_and_repeated_and_refused_reads_do_not_count() -> None:
    tile = often_repeated()
    x, _ = batch(0)
    tile.forward(x)
    before = tile.hardware_counts()
    assert reads_of(tile, "visible", "forward")["repeats"] > 0
    tile._core.forward(x, evaluation=True)
    tile._core.forward_again(x, np.zeros((SAMPLES, OUTPUTS), np.float32), 0)
    with pytest.raises(pl.InputError):
        tile.forward(np.full((2, INPUTS), np.inf, np.float32))
    with pytest.raises(pl.InputError, match="beyond single precision"):  # by repeats
        tile.forward(np.full((2, INPUTS), 3e38, np.float32))
    assert tile.hardware_counts() == before


def test_the_counts_depend_on_neither_threads_nor_cuts() -> None:
    one, two, cut = (often_repeated(threads=threads) for threads in (1, 2, 1))
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (200, INPUTS)).astype(np.float32)
    one.forward(x)
    two.forward(x)
    cut.forward(x[:70])
    cut.forward(x[70:])
    repeats = reads_of(one, "visible", "forward")["repeats"]
    assert repeats > 100
    assert one.hardware_counts() == two.hardware_counts() == cut.hardware_counts()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", list(COMPOUNDS))
def test_counts_of_a_gpu_are_those_of_the_cpu(name: str, device: str) -> None:
    if device == "cpu":
        pytest.skip("compares a GPU with the CPU")
    import torch  # noqa: PLC0415 - for a GPU alone

    io = pl.IOParameters(out_bound=0.5, bm_backward=True).to_dict()
    config = COMPOUNDS[name]()
    config = type(config).from_dict({**config.to_dict(), "forward": io, "backward": io})
    tiles = [make_tile(config, device=where) for where in ("cpu", device)]
    for tile in tiles:
        tile.gpu_products = "reproducible"
        for number in range(STEPS):
            rng = np.random.default_rng(number)
            x, d = (
                torch.from_numpy(rng.uniform(-1, 1, (SAMPLES, size)).astype(np.float32))
                for size in (tile.x_size, tile.d_size)
            )
            x, d = x.to(tile.device), d.to(tile.device)
            tile.forward(x)
            tile.backward(d)
            tile.update(x, d, 0.1)
    host, gpu = (tile.hardware_counts() for tile in tiles)
    assert gpu == host
