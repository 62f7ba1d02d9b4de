"""Recorded results of mixed precision: outer products that are added up, and sent as pulses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pulsora as pl
from mixed_precision_cases import config_of, weights_of
from recorded_cases import assert_close, cases, inputs

CASES = cases("mixed_precision")
EXACT = [case for case in CASES if "repeats" not in case]
RANDOM = [case for case in CASES if "repeats" in case]
RUNS = 600
SIGMA = 5.0


def run(case: dict[str, Any], tile: pl.Tile) -> dict[int, dict[str, Any]]:
    """Weights after each mini-batch."""
    x, d, weights = inputs(case)
    tile.weights = weights
    size = case["inputs"]["m_batch"]
    found = {}
    for number, first in enumerate(range(0, len(x), size), start=1):
        tile.update(x[first : first + size], d[first : first + size], case["lr"])
        found[number] = weights_of(tile)
    return found


@pytest.mark.parametrize("case", EXACT, ids=lambda case: case["name"])
def test_exact_cases(case: dict[str, Any]) -> None:
    tile = pl.Tile(case["d_size"], case["x_size"], config_of(case), threads=1)
    found = run(case, tile)
    assert case["expected"]
    for point in case["expected"]:
        number = point["after_minibatches"]
        for name, expected in point["corrected"].items():
            assert_close(found[number][name], expected, f"{name} after {number} mini-batches")


@pytest.mark.parametrize("case", RANDOM, ids=lambda case: case["name"])
def test_random_cases(case: dict[str, Any]) -> None:
    """Mean and variance of each cell over RUNS runs; the recorded ones are of 300 runs."""
    runs: dict[str, list[Any]] = {}
    for seed in range(RUNS):
        tile = pl.Tile(case["d_size"], case["x_size"], config_of(case), seed=seed, threads=1)
        last = run(case, tile)[len(inputs(case)[0]) // case["inputs"]["m_batch"]]
        for name, weights in last.items():
            runs.setdefault(name, []).append(weights.astype(np.float64))
    known, repeats = case["corrected"]["expected"], case["corrected"]["repeats"]
    for name, expected in known.items():
        found = np.array(runs[name])
        mean, var = found.mean(0), found.var(0, ddof=1)
        want_mean, want_var = np.asarray(expected["mean"]), np.asarray(expected["var"])
        of_mean = np.sqrt(var / RUNS + want_var / repeats)
        assert (np.abs(mean - want_mean) <= SIGMA * of_mean + 2e-6).all(), name
        # A variance of n values has the variance (kurtosis - 1) var^2 / n.
        kurtosis = ((found - mean) ** 4).mean(0) / np.maximum(var, 1e-30) ** 2
        relative = np.sqrt(np.maximum(kurtosis - 1.0, 0.0) * (1 / RUNS + 1 / repeats))
        bound = SIGMA * relative * np.maximum(var, want_var) + 1e-9
        assert (np.abs(var - want_var) <= bound).all(), name
