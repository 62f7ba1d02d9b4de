"""Rows of W with cells at their bounds: A holds what these miss, and the others make up for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pulsora as pl
from conftest import DEVICES
from pulsora import presets

RANK, SHAPE, BOUND, TOLERANCE = 6, (24, 32), 0.3, 2e-3
HELD = 0.04 * 2 * BOUND  # what a cell may miss before its row is held
MOST = RANK // 2  # cells of a row


def cells(bound: float, dw_min: float) -> pl.devices.ConstantStep:
    """Cells without noise or spread."""
    names = ("dw_min_dtod", "dw_min_std", "w_max_dtod", "w_min_dtod", "up_down_dtod")
    still: Any = dict.fromkeys(names, 0.0)
    return pl.devices.ConstantStep(dw_min=dw_min, w_max=bound, w_min=-bound, **still)


def tile_of(device: str, **settings: Any) -> pl.Tile:
    """A tile whose adapter asks for weights beyond the bounds of some cells."""
    given = {
        "rank": RANK,
        "visible": cells(BOUND, 1e-3),
        "fast": cells(4.0, 1e-3),
        "lora_alpha": 1.0,
        "transfer_every": 0,
        "transfer_mode": "write_verify",
        "transfer_tolerance": TOLERANCE,
        "reinit": "keep_b",
    }
    tile = pl.Tile(*SHAPE, pl.LRTTConfig(**given | settings), seed=3, device=device)
    rng = np.random.default_rng(5)
    swap = tile.config.swap_xd  # type: ignore[attr-defined]
    rows, cols = SHAPE[::-1] if swap else SHAPE
    tile.adapter.b = (0.5 * rng.standard_normal((RANK, cols))).astype("f")
    a = 0.14 * rng.standard_normal((rows, RANK))
    a[::3] *= 0.1  # rows within the bounds
    tile.adapter.a = a.astype("f")
    return tile


def held_rows(missing: np.ndarray, b: np.ndarray) -> dict[int, np.ndarray]:
    """The rows a of RowHolder, from the weights that cells at bounds miss."""
    found = {}
    for i, row in enumerate(missing):
        order = np.argsort(-np.abs(row), kind="stable")[:MOST]
        chosen = order[np.abs(row[order]) > HELD]
        if len(chosen):
            some = b[:, chosen]
            gram = some.T @ some
            gram += 1e-4 * np.trace(gram) / len(chosen) * np.eye(len(chosen))
            found[i] = some @ np.linalg.solve(gram, row[chosen])
    return found


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("chopper", ["none", "reinit"])
def test_rows_with_cells_at_bounds_are_held(device: str, chopper: str, *, swap: bool) -> None:
    tile = tile_of(device, swap_xd=swap, chopper=chopper, reinit="decay", reinit_decay=1.0)
    before = np.asarray(tile.weights, np.float64)
    tile.adapter.transfer()
    b, a = (np.asarray(each, np.float64) for each in (tile.adapter.b, tile.adapter.a))
    wanted = before.T if swap else before
    missing = wanted - np.clip(wanted, -BOUND, BOUND)
    expected = held_rows(missing, b)
    assert 8 <= len(expected) < len(wanted)
    for i, row in expected.items():
        # A has steps of its own where it is written by pulses; here it is written digitally.
        np.testing.assert_allclose(a[i], row, rtol=2e-3, atol=1e-4)
    now = np.asarray(tile.weights, np.float64)
    off = np.abs((now.T if swap else now) - wanted)
    # The weight is that of before, but in cells beyond the largest of their row.
    lost = np.abs(missing) > HELD
    for i in expected:
        lost[i, np.argsort(-np.abs(missing[i]), kind="stable")[:MOST]] = False
    assert np.max(off[~lost]) < HELD
    assert np.mean(off[~lost]) < TOLERANCE
    assert tile.statistics()["last_transfer"]["outside_cells"] <= 3 * np.sum(lost)


@pytest.mark.parametrize("device", DEVICES)
def test_the_weight_is_kept_better_than_by_the_closest_product(device: str) -> None:
    """An adapter that is not injected holds nothing: W alone has to be close to the weight."""
    norms = []
    for settings in ({}, {"forward_inject": False}, {"keep_rest": False}):
        tile = tile_of(device, **settings)
        injected = settings != {"forward_inject": False}
        a, b = (np.asarray(each, np.float64) for each in (tile.adapter.a, tile.adapter.b))
        before = np.asarray(tile.weights, np.float64) + (0.0 if injected else a @ b)
        tile.adapter.transfer()
        now = np.asarray(tile.weights, np.float64)
        norms.append(float(np.linalg.norm(now - before)))
    assert norms[0] < 0.5 * norms[1]
    assert norms[0] < 0.5 * norms[2]
    clipped = np.clip(before, -BOUND, BOUND)
    assert norms[1] == pytest.approx(float(np.linalg.norm(clipped - before)), rel=0.05)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("reads", ["exact", "analog"])
def test_pulses_and_reads_of_a_revision_are_counted(device: str, reads: str) -> None:
    tile = tile_of(device, verify_read=reads)
    tile.adapter.transfer()
    last = tile.statistics()["last_transfer"]
    assert last["pulses"] == tile.statistics()["pulses_visible"]
    total = tile.statistics()["transfer"]
    assert {name: total[name] for name in ("pulses", "reads", "slots", "outside_cells")} == {
        name: last[name] for name in ("pulses", "reads", "slots", "outside_cells")
    }
    assert last["reads"] >= np.prod(SHAPE)
    tile.adapter.transfer()
    assert tile.statistics()["transfer"]["pulses"] == tile.statistics()["pulses_visible"]


@pytest.mark.parametrize("device", DEVICES)
def test_without_a_held_row_nothing_is_programmed_again(device: str) -> None:
    """Cells that miss more than the tolerance, but less than what is held, get no more pulses."""
    tile = tile_of(device, transfer_rounds=1, transfer_max_pulses=1)
    tile.adapter.a = np.full((SHAPE[0], RANK), 0.003, np.float32)
    wanted = np.asarray(tile.adapter.a, np.float64) @ np.asarray(tile.adapter.b, np.float64)
    missed = np.abs(wanted) - 1e-3
    assert TOLERANCE < np.max(missed) < HELD
    tile.adapter.transfer()
    pulsed = np.asarray(tile.arrays["visible"])
    np.testing.assert_allclose(np.abs(pulsed[np.abs(wanted) > TOLERANCE]), 1e-3, rtol=1e-4)
    assert tile.statistics()["pulses_visible"] == np.sum(np.abs(wanted) > TOLERANCE)


@pytest.mark.parametrize("device", DEVICES)
def test_property_37_a_run_goes_on_from_a_state_after_a_revision(device: str) -> None:
    one = tile_of(device, visible=presets.ReRamSB(), transfer_tolerance="auto")
    one.adapter.transfer()
    other = pl.Tile.from_state(one.state(), device=device)
    for tile in (one, other):
        tile.adapter.a = np.full_like(tile.adapter.a, 0.3)
        tile.adapter.transfer()
    assert pl.state.dumps(one.state()) == pl.state.dumps(other.state())


@pytest.mark.skipif(len(DEVICES) < 2, reason="no GPU")
def test_property_34_a_revision_has_the_same_bits_on_a_gpu() -> None:
    states = []
    for device in DEVICES:
        tile = tile_of(device, visible=presets.ReRamSB(), transfer_tolerance="auto")
        tile.adapter.transfer()
        states.append(pl.state.dumps(tile.state()))
    assert states[0] == states[1]
