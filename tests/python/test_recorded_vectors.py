"""Recorded results of vector, reference and one-sided cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pulsora as pl
from conftest import PERFECT
from recorded_cases import assert_close, cases, device, inputs, replay, update
from reference_one_sided import OneSided

CASES = cases("vector")
# The other simulator writes these pulses of a refresh down instead of up; see the last test.
WRITTEN_DOWN = {"onesided_refresh_one_pulse_1"}
EXACT = [case for case in CASES if "repeats" not in case and case["name"] not in WRITTEN_DOWN]
ONE_SIDED = [
    case
    for case in CASES
    if case["algorithm"] == "OneSidedUnitCell"
    and "repeats" not in case
    and case["config"]["devices"][0]["type"] == "ConstantStep"
]
RANDOM = [case for case in CASES if "repeats" in case]
POLICIES = {
    "All": "all",
    "SingleFixed": "single_fixed",
    "SingleSequential": "single_sequential",
    "SingleRandom": "single_random",
}
RUNS = 600
SIGMA = 5.0


def config_of(case: dict[str, Any]) -> pl.TileConfig:
    given = case["config"]
    devices = [device(each) for each in given["devices"]]
    around = {"update": update(case["update"]), **PERFECT}
    if case["algorithm"] == "ReferenceUnitCell":
        return pl.ReferenceConfig(visible=devices[0], reference=devices[1], **around)
    if case["algorithm"] == "VectorUnitCell":
        return pl.VectorConfig(
            devices=devices,
            gamma_vec=given["gamma_vec"],
            update_policy=POLICIES[given["update_policy"]],
            first_update_idx=given.get("first_update_idx", 0),
            **around,
        )
    assert given["refresh_forward"] == {"is_perfect": True}
    same = ("refresh_every", "units_in_mbatch", "refresh_upper_thres", "refresh_lower_thres")
    return pl.OneSidedConfig(
        device=devices[0],
        refresh_update=update(given["refresh_update"]),
        **{name: given[name] for name in same},
        **around,
    )


def pulsed(case: dict[str, Any]) -> list[int]:
    """The devices whose steps scale the pulse trains."""
    given = case["config"]
    if given.get("update_policy") == "SingleFixed":
        return [given.get("first_update_idx", 0)]
    return list(range(len(given["devices"])))


def weights_of(case: dict[str, Any], tile: pl.Tile) -> dict[str, Any]:
    """The weights by their recorded names: W, and the arrays by number."""
    arrays = list(tile.arrays.values())
    if case["algorithm"] == "OneSidedUnitCell":
        arrays.reverse()  # recorded: minus first
    return {"W": tile.weights} | {f"hidden_weights_{k}": array for k, array in enumerate(arrays)}


@pytest.mark.parametrize("case", EXACT, ids=lambda case: case["name"])
def test_exact_cases(case: dict[str, Any]) -> None:
    points = {point["after_minibatches"]: point for point in case["expected"]}
    tile = pl.Tile(case["d_size"], case["x_size"], config_of(case), threads=1)
    met = 0
    for number in replay(case, tile, pulsed(case)):
        if number not in points:
            continue
        expected = points[number].get("corrected", points[number]["peer"])
        found = weights_of(case, tile)
        assert found.keys() == expected.keys()
        for name, weights in found.items():
            assert_close(weights, expected[name], f"{name} after {number} mini-batches")
        met += 1
    assert met == len(points)


@pytest.mark.parametrize("case", RANDOM, ids=lambda case: case["name"])
def test_random_cases(case: dict[str, Any]) -> None:
    """Mean and variance of each cell over RUNS runs; the recorded ones are of 1500."""
    runs: dict[str, list[Any]] = {name: [] for name in case["expected"]}
    for seed in range(RUNS):
        tile = pl.Tile(case["d_size"], case["x_size"], config_of(case), seed=seed, threads=1)
        for _ in replay(case, tile, pulsed(case)):
            pass
        for name, weights in weights_of(case, tile).items():
            runs[name].append(weights.astype(np.float64))
    for name, expected in case["expected"].items():
        found = np.array(runs[name])
        mean, var = found.mean(0), found.var(0, ddof=1)
        centred = found - mean
        of_mean = np.hypot(np.sqrt(var / RUNS), expected["se_mean"])
        fourth = (centred**4).mean(0)
        of_var = np.hypot(np.sqrt(np.maximum(fourth - var**2, 0.0) / RUNS), expected["se_var"])
        of_var = np.maximum(of_var, 0.01 / SIGMA * np.asarray(expected["var"]))
        assert (np.abs(mean - expected["mean"]) <= SIGMA * of_mean + 2e-6).all(), name
        assert (np.abs(var - expected["var"]) <= SIGMA * of_var + 1e-9).all(), name


@pytest.mark.parametrize("case", ONE_SIDED, ids=lambda case: case["name"])
def test_one_sided_cells_follow_the_oracle_and_the_oracle_the_records(case: dict[str, Any]) -> None:
    x, d, weights = inputs(case)
    recorded = OneSided(case, weights, writes_down=case["name"] in WRITTEN_DOWN)
    right = OneSided(case, weights, writes_down=False)
    points = {point["after_minibatches"]: point["peer"] for point in case["expected"]}
    tile = pl.Tile(case["d_size"], case["x_size"], config_of(case), threads=1)
    size = case["inputs"]["m_batch"]
    for number in replay(case, tile, pulsed(case)):
        for s in range((number - 1) * size, number * size):
            for oracle in (recorded, right):
                oracle.sample(x[s].astype(np.float64), d[s].astype(np.float64))
        assert_close(tile.arrays["plus"], right.plus, f"plus after {number}")
        assert_close(tile.arrays["minus"], right.minus, f"minus after {number}")
        if number in points:
            assert_close(recorded.plus, points[number]["hidden_weights_1"], f"recorded, {number}")
            assert_close(recorded.minus, points[number]["hidden_weights_0"], f"recorded, {number}")
    if case["config"]["refresh_every"]:
        assert right.refreshed > 0
