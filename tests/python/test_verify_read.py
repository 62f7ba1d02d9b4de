"""Program and verify by reads through the periphery: verify_read="analog"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pulsora as pl
from conftest import DEVICES, PERFECT

if TYPE_CHECKING:
    from numpy.typing import NDArray

STEP, TOLERANCE = 0.01, 0.03
NOISE = 0.05
QUIET: dict[str, Any] = {
    "inp_bound": 0.0,
    "inp_res": 0.0,
    "out_bound": 0.0,
    "out_res": 0.0,
    "out_noise": 0.0,
    "noise_management": "none",
    "bound_management": "none",
}
EQUAL = pl.devices.ConstantStep(
    dw_min=STEP,
    dw_min_dtod=0.0,
    dw_min_std=0.0,
    up_down_dtod=0.0,
    w_max=10.0,
    w_min=-10.0,
    w_max_dtod=0.0,
    w_min_dtod=0.0,
)
FINE = EQUAL.replace(dw_min=1e-5)


def tile(
    shape: tuple[int, int] = (56, 40),
    device: str = "cpu",
    io: dict[str, Any] | None = None,
    **settings: Any,
) -> pl.Tile:
    """A tile whose adapter holds a change of some steps; only one direction has a periphery."""
    periphery = pl.IOParameters(**{**QUIET, **({"out_noise": NOISE} if io is None else io)})
    driven = "forward" if shape[0] > shape[1] else "backward"
    config = pl.LRTTConfig(
        **{
            "rank": 4,
            "visible": EQUAL,
            "fast": FINE,
            "transfer_every": 0,
            "transfer_lr": 1.0,
            "transfer_tolerance": TOLERANCE,
            "verify_read": "analog",
            "reinit": "keep_b",
            **PERFECT,
            driven: periphery,
            **settings,
        }
    )
    made = pl.Tile(*shape, config, seed=5, device=device, threads=1)
    rng = np.random.default_rng(2)
    made.weights = (STEP * rng.integers(-40, 41, shape)).astype(np.float32)
    made.adapter.a = rng.normal(0, 0.25, (shape[0], 4)).astype(np.float32)
    made.adapter.b = rng.normal(0, 0.25, (4, shape[1])).astype(np.float32)
    return made


def change(made: pl.Tile) -> NDArray[np.float64]:
    a, b = (np.asarray(each, np.float64) for each in (made.adapter.a, made.adapter.b))
    found: NDArray[np.float64] = a @ b
    return found


def transferred(made: pl.Tile) -> tuple[NDArray[np.float64], dict[str, Any]]:
    """The change of W in a transfer, and the statistics."""
    before = np.asarray(made.arrays["visible"], np.float64)
    made.adapter.transfer()
    after = np.asarray(made.arrays["visible"], np.float64)
    return after - before, made.statistics()["last_transfer"]


def pulses_of(wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """The change of one round, for cells with equal steps."""
    counts = np.maximum(np.rint(np.abs(wanted) / STEP), 1)
    found: NDArray[np.float64] = np.sign(wanted) * counts * STEP * (np.abs(wanted) > TOLERANCE)
    return found


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(56, 40), (40, 56)])
@pytest.mark.parametrize("reads", [1, 9])
def test_a_single_round_knows_the_change_itself(
    device: str, shape: tuple[int, int], reads: int
) -> None:
    """The first reading is a part of the target, so that its error drops out of the first pulses.

    Of the reported error, a reading before and one after remain: twice the variance.
    """
    made = tile(shape, device, transfer_rounds=1, verify_reads=reads)
    wanted = change(made)
    moved, last = transferred(made)
    sent = pulses_of(wanted)
    np.testing.assert_allclose(moved, sent, atol=1e-5)
    pulsed = np.count_nonzero(sent)
    assert last["reads"] == reads * (wanted.size + pulsed)
    assert last["pulses"] == round(np.abs(sent).sum() / STEP)
    # A cell that is done at first has T left; the others, readings beside the rounding.
    variance = 2 * NOISE**2 / reads
    expected = (np.sum((wanted - sent) ** 2) + pulsed * variance) / wanted.size
    spread = np.sqrt(2 * pulsed) * variance / wanted.size
    assert abs(last["error"] ** 2 - expected) < 5.5 * spread


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("reads", [1, 9])
def test_a_second_round_follows_the_error_of_two_readings(device: str, reads: int) -> None:
    made = tile(device=device, transfer_rounds=2, verify_reads=reads, transfer_tolerance=STEP / 2)
    wanted = change(made)
    moved, last = transferred(made)
    pulsed = np.abs(wanted) > STEP / 2
    np.testing.assert_array_equal(moved[~pulsed], 0.0)
    error = (moved - wanted)[pulsed]
    variance = 2 * NOISE**2 / reads + STEP**2 / 12
    count = error.size
    assert abs(np.mean(error)) < 5 * np.sqrt(variance / count)
    # One of the two readings is the first of the cell alone, so errors are independent.
    assert abs(np.var(error) / variance - 1) < 5 * np.sqrt(2 / count) + 0.01
    assert last["outside_cells"] > 0
    assert last["most_pulses"] >= np.max(np.abs(moved)) / STEP - 0.5


@pytest.mark.parametrize("device", DEVICES)
def test_an_adc_rounds_what_is_read(device: str) -> None:
    bound, step = 1.0, 0.25
    io = {"out_bound": bound, "out_res": step / (2 * bound)}
    made = tile(device=device, io=io, transfer_rounds=1, verify_reads=1)

    def read(weights: NDArray[np.float64]) -> NDArray[np.float64]:
        found: NDArray[np.float64] = np.clip(step * np.rint(weights / step), -bound, bound)
        return found

    before = np.asarray(made.arrays["visible"], np.float64)
    halves = np.abs(np.abs(before / step) % 1 - 0.5) < 1e-3  # may be rounded either way
    wanted = change(made)
    moved, last = transferred(made)
    np.testing.assert_allclose(moved, pulses_of(wanted), atol=1e-5)
    error = read(before) + wanted - read(before + moved)
    error[moved == 0.0] = wanted[moved == 0.0]
    kept = ~halves & ~(np.abs(np.abs((before + moved) / step) % 1 - 0.5) < 1e-3)
    most = 256 * TOLERANCE
    assert np.max(np.abs(error)) < most
    low, high = np.sum(error[kept] ** 2), np.sum(error[kept] ** 2) + np.sum(~kept) * 0.4**2
    assert low * 0.99 < last["error"] ** 2 * wanted.size < high * 1.01
    assert last["error"] > 2 * TOLERANCE  # the converter is too coarse for the tolerance


def test_a_keeps_what_readings_miss() -> None:
    """Nothing is pulsed, so that A B stays what it was, whatever the noise of the reads."""
    made = tile(transfer_tolerance=5.0)
    wanted = change(made)
    moved, last = transferred(made)
    assert last["pulses"] == 0
    np.testing.assert_array_equal(moved, 0.0)
    np.testing.assert_allclose(change(made), wanted, atol=3e-4)


def test_a_perfect_periphery_reads_exactly() -> None:
    """Columns of a high tile are driven forward, rows of a wide one backward."""
    results = []
    for settings in ({"verify_read": "exact"}, {"backward": pl.IOParameters()}):
        given = {"forward": pl.IOParameters(is_perfect=True), **settings}
        made = tile((56, 40), **given)
        made.adapter.transfer()
        results.append(made.arrays["visible"])
    np.testing.assert_array_equal(*results)


def test_readings_are_averaged_as_the_tolerance_asks() -> None:
    x, d = np.ones((1, 40), np.float32), np.ones((1, 56), np.float32)

    def said(**settings: Any) -> pl.Explanation:
        return tile(**settings).explain(x, d, 0.1)

    transfer = said().settings["transfer"]
    assert transfer["verify_reads"] == np.ceil((NOISE / (TOLERANCE / 2)) ** 2)
    assert transfer["read_error"] == pytest.approx(NOISE / np.sqrt(12), rel=1e-6)
    assert said(transfer_tolerance=0.2).settings["transfer"]["verify_reads"] == 1
    least = said(transfer_tolerance=0.005)
    assert least.settings["transfer"]["verify_reads"] == 16
    assert any("use a larger verify_reads" in each for each in least.warnings)
    assert "verify_reads" not in said(verify_read="exact").settings["transfer"]


def test_the_number_of_threads_and_a_resume_do_not_matter() -> None:
    one = tile()
    other = pl.Tile.from_state(one.state(), threads=3)
    for each in (one, other):
        each.adapter.transfer()
    other = pl.Tile.from_state(other.state(), threads=2)
    for each in (one, other):
        each.adapter.a = np.full((56, 4), 0.2, np.float32)
        each.adapter.transfer()
    np.testing.assert_array_equal(one.arrays["visible"], other.arrays["visible"])
    assert one.statistics() == other.statistics()


def test_cpu_and_gpu_have_one_result() -> None:
    if len(DEVICES) < 2:
        pytest.skip("needs a GPU")
    cells = pl.presets.ReRamES()
    results = []
    for device in DEVICES:
        made = tile(device=device, visible=cells, forward=pl.IOParameters())
        for _ in range(3):
            made.adapter.transfer()
        results.append((made.arrays["visible"], made.adapter.a, made.statistics()["transfer"]))
    for left, right in zip(*results, strict=True):
        if isinstance(left, dict):
            assert left == right
        else:
            np.testing.assert_array_equal(left, right)


def test_noisy_cells_come_as_near_as_reads_are_exact() -> None:
    """The periphery by default: a mean of 11 readings has half the tolerance of 0.04 as error."""
    made = tile(visible=pl.presets.ReRamES(), forward=pl.IOParameters(), transfer_tolerance=0.04)
    rng = np.random.default_rng(4)
    made.weights = rng.normal(0, 0.2, (56, 40)).astype(np.float32)
    made.adapter.a = rng.normal(0, 0.3, (56, 4)).astype(np.float32)
    wanted = change(made)
    moved, last = transferred(made)
    error = np.sqrt(np.mean((moved - wanted) ** 2))
    assert error < 0.04
    assert last["outside_cells"] < 0.03 * wanted.size
    assert last["reads"] > 11 * wanted.size


def test_what_cannot_be_is_refused() -> None:
    def refused(message: str, **settings: Any) -> None:
        with pytest.raises(pl.ConfigError, match=message):
            tile(**settings)

    plain = {"transfer_tolerance": "auto"}
    refused(
        "'verified' *reads no cells one by one|reads no cells", transfer_mode="verified", **plain
    )
    none = pl.UpdateParameters(pulse_type="none")
    refused("a pulse_type that sends pulses", transfer_mode="auto", update=none, **plain)
    refused("between 1 and 1024", verify_reads=1025)
    refused("verify_reads", verify_reads=0)
    refused("verify_read is 'exact', which has no error", verify_read="exact", verify_reads=4)
    refused("read in 3 blocks", adapter_span="layer", max_output_size=20)
    refused("analog", verify_read="digital")
