"""Recorded results of one array, the control of the compounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pulsora as pl
from conftest import PERFECT
from recorded_cases import assert_close, cases, device, replay, update
from recorded_moments import of_case, of_runs, require_equal

if TYPE_CHECKING:
    from collections.abc import Iterator

CASES = cases("single")
EXACT = [case for case in CASES if "repeats" not in case]
NOISY = [case for case in CASES if "repeats" in case]
RUNS = 1500


def replayed(case: dict[str, Any], seed: int) -> Iterator[tuple[int, pl.Tile]]:
    """The number of mini-batches so far and the tile, after each of them."""
    (cell,) = case["config"]["devices"]
    config = pl.SingleConfig(device=device(cell), update=update(case["update"]), **PERFECT)
    tile = pl.Tile(case["d_size"], case["x_size"], config, seed=seed, threads=1)
    for number in replay(case, tile, [0]):
        yield number, tile


@pytest.mark.parametrize("case", EXACT, ids=lambda case: case["name"])
def test_exact_cases(case: dict[str, Any]) -> None:
    points = {point["after_minibatches"]: point["peer"]["W"] for point in case["expected"]}
    met = 0
    for number, tile in replayed(case, 1):
        if number in points:
            assert_close(tile.weights, points[number], f"W after {number} mini-batches")
            met += 1
    assert met == len(points) > 0


@pytest.mark.parametrize("case", NOISY, ids=lambda case: case["name"])
def test_noisy_cases(case: dict[str, Any]) -> None:
    ends = []
    for seed in range(RUNS):
        *_, (_, tile) = replayed(case, seed)
        ends.append(tile.weights.astype(np.float64))
    require_equal({"W": of_runs(np.array(ends))}, of_case(case))
