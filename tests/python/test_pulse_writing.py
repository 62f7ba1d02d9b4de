"""Programming by pulses: cells of a device model that are read and pulsed towards their targets."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import pulsora as pl
from host_reads import HostReads

Array = Any
Device = Any
ProgrammedTile = Any
D, X = 9, 14
SEED, TILE = 5, 3
G_MIN, G_MAX = 5.0, 25.0
STILL = pl.noise_models.PCMLike(
    g_min=G_MIN, g_max=G_MAX, prog_noise_scale=0, read_noise_scale=0, drift_scale=0
)
W = (0.1 * np.random.default_rng(4).standard_normal((D, X))).astype(np.float32)
INPUTS = np.random.default_rng(1).standard_normal((6, X)).astype(np.float32)
NO_SPREAD = {
    "dw_min_dtod": 0.0, "dw_min_std": 0.0, "w_max_dtod": 0.0, "w_min_dtod": 0.0,
    "up_down_dtod": 0.0,
}  # fmt: skip
STEP = 0.01
EVEN = pl.devices.ConstantStep(dw_min=STEP, w_max=1.0, w_min=-1.0, **NO_SPREAD)
"""Cells whose conductance is a number of 200 equal steps."""
NOISY = pl.devices.SoftBounds(
    dw_min=0.01, w_max=0.8, w_min=-0.7, dw_min_std=0.5, w_max_dtod=0.02, w_min_dtod=0.02
)


def made(
    device: Device = EVEN, place: str = "cpu", weights: Array = W, **settings: Any
) -> ProgrammedTile:
    """A tile that is programmed by pulses."""
    given = {"noise_model": STILL, "write": "pulses", "device": device, "compensation": "none"}
    config = pl.InferenceConfig(**(given | settings))
    tile: Any = HostReads(pl.Tile(*weights.shape, config, seed=SEED, tile_id=TILE, device=place))
    tile.weights = weights
    tile.programming.program()
    return tile


def shares(tile: ProgrammedTile, which: str = "programmed") -> Array:
    """Conductances as shares of the range."""
    return (tile.programming.conductances(which).astype(np.float64) - G_MIN) / (G_MAX - G_MIN)


def test_even_steps_end_at_the_nearest_level(device: str) -> None:
    tile = made(place=device, write_tolerance=1e-4)
    steps = shares(tile, "target") * 200
    between = np.abs(steps % 1 - 0.5) < 1e-3
    assert between.mean() < 0.02
    wanted = np.rint(steps)
    found = shares(tile) * 200
    assert np.abs(np.where(between, wanted, found) - wanted).max() < 1e-2
    statistics = tile.statistics()
    assert statistics["write_pulses"] == pytest.approx(wanted.sum(), abs=2 * int(between.sum()))
    # Each cell is read before its pulses, and those that get some after them too.
    assert statistics["write_reads"] == steps.size + (wanted > 0).sum()
    outside = (np.abs(steps - wanted) > 200 * 1e-4).mean()
    assert statistics["write_outside"] == pytest.approx(outside, abs=0.01)
    # Lines are pulsed one after another: a line's round takes as many slots as its largest number.
    assert statistics["write_slots"] == pytest.approx(
        wanted.reshape(D, -1).max(axis=1).sum(), abs=int(between.sum())
    )
    g = shares(tile)
    scale = np.abs(W).max(axis=1, keepdims=True)
    np.testing.assert_allclose(tile.weights, scale * (g[..., 0] - g[..., 1]), atol=1e-6)


def test_rounds_pulses_and_tolerance_limit_the_writing() -> None:
    few = made(write_tolerance=1e-4, write_rounds=1, write_max_pulses=50)
    steps = np.rint(shares(few, "target") * 200)
    assert np.abs(shares(few) * 200 - np.minimum(steps, 50)).max() < 0.51
    # The second round may send half as many, the third a third.
    more = made(write_tolerance=1e-4, write_rounds=3, write_max_pulses=50)
    assert shares(more).max() * 200 == pytest.approx(50 + 25 + 17, abs=0.01)
    rough = made(write_tolerance=0.25)
    near = shares(rough, "target") <= 0.25 - 1e-5
    assert (shares(rough)[near] == 0.0).all()
    assert np.abs(shares(rough) - shares(rough, "target"))[~near].max() < 0.0026


def simulated(targets: Array, seed: int) -> tuple[Array, float]:
    """Errors and mean pulses of cells with steps and bounds of their own, in numpy.

    Steps d (1 + 0.3 xi), noise of a pulse 0.4 of a step, bounds at (1 + 0.05 xi); tolerance 0.01 of
    the range 2, and in the last 32 of 64 rounds as much as 64 over the rounds that are left.
    """
    rng = np.random.default_rng(seed)
    n = targets.size
    step = np.abs(STEP * (1 + 0.3 * rng.standard_normal(n)))
    high = 1 + 0.05 * rng.standard_normal(n)
    low = -(1 + 0.05 * rng.standard_normal(n))
    w = np.maximum(low, -1.0)
    sent = np.zeros(n)
    going = np.ones(n, dtype=bool)
    for turn in range(64):
        error = targets - w
        up = error > 0
        going &= np.abs(error) > 0.02 * (1 if turn < 32 else 64 / (64 - turn))
        inside = np.where(up, np.minimum(w + step, high) - w, w - np.maximum(w - step, low))
        going &= inside > 0
        most = 1000 / (turn + 1)
        pulses = np.maximum(
            np.rint(np.minimum(np.abs(error) / np.where(going, inside, 1), most)), 1
        )
        pulses = np.where(going, pulses, 0).astype(int)
        for k in range(pulses.max()):
            on = k < pulses
            change = np.where(up, 1, -1) * step * (1 + 0.4 * rng.standard_normal(n))
            w = np.where(on, np.clip(w + change, low, high), w)
        sent += pulses
    return targets - w, float(sent.mean())


def test_errors_are_those_of_the_cells() -> None:
    weights = np.random.default_rng(7).uniform(-1, 1, (100, 200)).astype(np.float32)
    cells = pl.devices.ConstantStep(
        dw_min=STEP, dw_min_dtod=0.3, dw_min_std=0.4, w_max=1.0, w_min=-1.0, w_max_dtod=0.05,
        w_min_dtod=0.05, up_down_dtod=0.0,
    )  # fmt: skip
    tile = made(cells, weights=weights, write_tolerance=0.01)
    target = shares(tile, "target").ravel() * 2 - 1
    found = target - (shares(tile).ravel() * 2 - 1)
    wanted, pulses = simulated(target, seed=1)
    n = target.size
    for moment in (np.abs, np.square, lambda e: np.abs(e) > 0.02 + 1e-5):
        a, b = moment(found).astype(float), moment(wanted).astype(float)
        assert abs(a.mean() - b.mean()) < 5 * np.sqrt((a.var() + b.var()) / n)
    assert abs(tile.statistics()["write_pulses"] / n - pulses) < 0.02 * pulses
    outside = (np.abs(found) > 0.02 + 1e-5).mean()
    assert tile.statistics()["write_outside"] == pytest.approx(outside, abs=2e-3)


def test_property_61_writing_is_a_function_of_the_programming_and_the_chip(device: str) -> None:
    tile = made(NOISY, place=device)
    first = tile.programming.conductances("programmed")
    tile.programming.program(3)
    third = tile.programming.conductances("programmed")
    assert not np.array_equal(first, third)
    tile.programming.program(0, chip=2)
    other = tile.programming.conductances("programmed")
    tile.programming.unprogram()
    tile.programming.program(3)
    assert np.array_equal(tile.programming.conductances("programmed"), third)
    alone = made(NOISY)  # on the CPU, whatever the device
    assert np.array_equal(alone.programming.conductances("programmed"), first)
    alone.programming.program(0, chip=2)
    assert np.array_equal(alone.programming.conductances("programmed"), other)
    # Cells that no pulse changes by chance end alike in each programming, but not on another chip.
    spread = pl.devices.SoftBounds(dw_min=0.01, w_max=0.8, w_min=-0.7, dw_min_std=0.0)
    still = made(spread, place=device)
    one = still.programming.conductances("programmed")
    still.programming.program(8)
    assert np.array_equal(still.programming.conductances("programmed"), one)
    still.programming.program(0, chip=1)
    assert not np.array_equal(still.programming.conductances("programmed"), one)


@pytest.mark.parametrize(
    "settings",
    [
        {"cell": "pairs", "significance": [1.0, 3.0]},
        {"cell": "single", "single_span": "data"},
        {"cell": "slices"},
        {"cell": "slices", "slice_converters": "shared"},
        {"cell": "table", "table_w": [-1, 0, 1], "table_g": [0, 0.5, 1, 1, 0.5, 0]},
        {"cell": "two_sided_pair", "read_window": 1.0},
    ],
)
def test_all_cells_are_written(device: str, settings: dict[str, Any]) -> None:
    given = {"noise_model": pl.noise_models.PCMLike(), "compensation": "global"} | settings
    tile = made(NOISY, device, **given)
    target = tile.programming.conductances("target").astype(np.float64)
    written = tile.programming.conductances("programmed").astype(np.float64)
    assert 0.1 < np.abs(target - written).max() < 5.0
    assert np.abs(target - written).mean() < 0.02 * 25.0 * 1.5
    tile.programming.drift(1e4)
    seen = tile.weights
    # A state is programmed anew, and several points are read as one by one.
    other: Any = HostReads(pl.Tile.from_state(tile.state(), device=device))
    assert np.array_equal(other.weights, seen)
    assert np.array_equal(other.programming.conductances("programmed"), written)
    assert np.array_equal(copy.deepcopy(tile).weights, seen)
    core = tile._core
    core.program_many([(0, 1e4), (2, 60.0), (2, 0.0)], 0)
    together = tile.forward(np.concatenate([INPUTS] * 3), evaluation=True)
    for k, (number, time) in enumerate([(0, 1e4), (2, 60.0), (2, 0.0)]):
        other.programming.program(number)
        other.programming.drift(time)
        alone = other.forward(INPUTS, evaluation=True)
        assert np.array_equal(together[k * len(INPUTS) : (k + 1) * len(INPUTS)], alone)


def test_written_conductances_drift_as_those_of_the_model() -> None:
    memory = pl.noise_models.PCMLike(read_noise_scale=0.0)
    ratios = []
    for settings in ({"write": "pulses", "device": NOISY}, {}):
        config = pl.InferenceConfig(noise_model=memory, compensation="none", **settings)
        tile = pl.Tile(D, X, config, seed=SEED, tile_id=TILE)
        tile.weights = W
        tile.programming.program(2)
        start = tile.programming.conductances("programmed").astype(np.float64)
        tile.programming.drift(1e5)
        now = tile.programming.conductances("now").astype(np.float64)
        used = start > 1.0
        ratios.append(np.where(used, now / np.where(used, start, 1.0), np.nan))
    both = np.isfinite(ratios[0]) & np.isfinite(ratios[1])
    assert both.mean() > 0.3
    np.testing.assert_allclose(ratios[0][both], ratios[1][both], rtol=1e-5)


def test_stuck_and_measured_devices() -> None:
    tile = made(stuck_low=0.1, stuck_high=0.2)
    free = made()
    g, wanted = (t.programming.conductances("programmed") for t in (tile, free))
    is_low, is_high = g == G_MIN, g == G_MAX
    assert 0.1 < is_high.mean() < 0.35  # 126 pairs
    assert np.array_equal(g[~(is_low | is_high)], wanted[~(is_low | is_high)])
    measured = np.full_like(g, 12.5)
    tile.programming.program_measured(measured)
    assert np.array_equal(tile.programming.conductances("programmed"), measured)
    tile.programming.program()
    assert np.array_equal(tile.programming.conductances("programmed"), g)


def test_presets_of_cells_are_written_within_their_reach() -> None:
    errors = {}
    for name in ("EcRam", "ReRamES", "GokmenVlasov"):
        tile = made(pl.presets.device(name), write_tolerance=0.01)
        errors[name] = tile.programming.statistics()["weight_error"]
    assert errors["EcRam"] < 0.1
    assert errors["EcRam"] < errors["ReRamES"]


def test_explain_tells_the_error_of_the_cells() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    config = pl.InferenceConfig(write="pulses", device=EVEN, write_tolerance=0.1)
    model = pl.convert_to_analog(torch.nn.Linear(X, D), config, seed=1).eval()
    rough = pl.inference.explain(model, torch.randn(64, X), time=0.0).of_layer("")
    # A uniform error within a tenth of the range for most devices.
    assert 0.02 < rough["programming"] < 0.3
    fine = config.replace(write_tolerance=0.003)
    model = pl.convert_to_analog(torch.nn.Linear(X, D), fine, seed=1).eval()
    assert pl.inference.explain(model, torch.randn(64, X)).of_layer("")["programming"] < 0.01
    report = pl.inference.sweep(
        model, [(torch.randn(8, X), torch.zeros(8, dtype=torch.long))],
        {"write_tolerance": [0.01, 0.1]}, programmings=2, times=[0.0],
    )  # fmt: skip
    assert report is not None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"device": EVEN}, "device is set, and .*write is 'model'"),
        ({"write_tolerance": 0.1}, "write_tolerance is set, and .* choose write='pulses'"),
        ({"write_rounds": 3}, "write_rounds is set, and"),
        ({"write_max_pulses": 3}, "write_max_pulses is set, and"),
        ({"write": "pulses", "write_tolerance": 0.0}, "write_tolerance is 0"),
        ({"write": "pulses", "write_rounds": 0}, "write_rounds is 0"),
        ({"write": "pulses", "cell": "single", "cell_reference": "column"}, "choose 'digital'"),
        ({"write": "pulses", "modifier": "noise_model"}, "pulse all cells in each mini-batch"),
        ({"write": "laser"}, "write"),
    ],
)  # fmt: skip
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(pl.ConfigError, match=message):
        pl.Tile(2, 3, pl.InferenceConfig(**settings))
