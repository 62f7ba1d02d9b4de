"""Learning on cells with symmetric points, beside recorded outcomes of six algorithms."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

import mixed_precision_cases
import pulsora as pl
from conftest import PERFECT
from recorded_cases import cases, device, granularity, update
from transfer_cases import config_of

OUTCOMES = cases("learning")
CONDITIONS = {
    name: [case for case in OUTCOMES if case["condition"] == condition]
    for name, condition in {
        "points at 0": {"up_down": 0.0, "up_down_dtod": 0.01},
        "points beside 0": {"up_down": 0.3, "up_down_dtod": 0.01},
        "spread points": {"up_down": 0.0, "up_down_dtod": 0.3},
    }.items()
}
SIGMAS = 4.0


def made_of(case: dict[str, Any]) -> tuple[pl.TileConfig, float]:
    """The tile's configuration and learning rate.

    The other simulator scales pulse trains by dw_min, Pulsora by the mean of a cell's two steps.
    """
    if case["algorithm"] == "sgd":
        (cell,) = case["config"]["devices"]
        config = pl.SingleConfig(device=device(cell), update=update(case["update"]), **PERFECT)
        return config, case["lr"] * granularity(cell) / cell["dw_min"]
    return chain_of(case), case["lr"]


def chain_of(case: dict[str, Any]) -> pl.TileConfig:
    if case["algorithm"] == "mp":
        return mixed_precision_cases.config_of(case)
    settings = dict(case["config"])
    devices = settings["devices"]
    settings["devices"] = devices if len(devices) > 1 else devices * 2
    inputs = {"m_batch": 1}
    like = {"algorithm": case["unit"], "config": settings, "update": case["update"]}
    return config_of(like | {"inputs": inputs})


def errors(case: dict[str, Any], seed: int) -> list[float]:
    """|W - W*|^2 / |W*|^2 over the 200 steps before each point."""
    rng = np.random.default_rng(seed)
    target = rng.uniform(-0.4, 0.4, (10, 20))
    x = rng.uniform(-1, 1, (case["n_steps"], 20))
    noise = case["label_noise"] * rng.standard_normal((case["n_steps"], 10))
    config, lr = made_of(case)
    tile = pl.Tile(10, 20, config, seed=seed, threads=1)
    sizes = []
    for step in range(case["n_steps"]):
        weights = tile.weights
        sizes.append(float(((weights - target) ** 2).sum() / (target**2).sum()))
        d = (weights - target) @ x[step] + noise[step]
        tile.update(x[step : step + 1].astype("f"), d[None].astype("f"), lr=lr)
    return [float(np.mean(sizes[point - 200 : point])) for point in case["points"]]


def test_conditions_have_all_algorithms() -> None:
    for listed in CONDITIONS.values():
        assert {case["algorithm"] for case in listed} == {
            "sgd", "ttv1", "ttv2", "c-ttv2", "agad", "mp",
        }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("condition", CONDITIONS)
def test_errors_and_their_order_are_those_recorded(condition: str) -> None:
    """Means over 10 seeds agree within 4 standard errors of their difference, at each point.

    After the last step, two algorithms whose recorded means are further apart than that have the
    same order.
    """
    found, recorded = {}, {}
    for case in CONDITIONS[condition]:
        name, runs = case["algorithm"], len(case["seeds"])
        ends = np.array([errors(case, seed) for seed in case["seeds"]])
        mean, variance = ends.mean(axis=0), ends.var(axis=0, ddof=1) / runs
        known = np.array(case["std"]) ** 2 / runs
        off = np.abs(mean - case["mean"]) / np.sqrt(variance + known)
        assert (off <= SIGMAS).all(), (name, mean, off)
        found[name], recorded[name] = mean[-1], (case["mean"][-1], known[-1])
    told_apart = 0
    for (one, (mean, known)), (other, (higher, its)) in permutations(recorded.items(), 2):
        if higher - mean > SIGMAS * np.sqrt(known + its):
            assert found[one] < found[other], (one, other, found)
            told_apart += 1
    assert told_apart >= len(found)
