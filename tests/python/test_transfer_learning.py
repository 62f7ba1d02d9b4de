"""Learning on cells with symmetric points, beside recorded outcomes: chains, mixed precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mixed_precision_cases
import pulsora as pl
from recorded_cases import cases
from transfer_cases import config_of

OUTCOMES = [case for case in cases("learning") if case["algorithm"] != "sgd"]


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
    tile = pl.Tile(10, 20, chain_of(case), seed=seed)
    sizes = []
    for step in range(case["n_steps"]):
        weights = tile.weights
        sizes.append(float(((weights - target) ** 2).sum() / (target**2).sum()))
        d = (weights - target) @ x[step] + noise[step]
        tile.update(x[step : step + 1].astype("f"), d[None].astype("f"), lr=case["lr"])
    return [float(np.mean(sizes[point - 200 : point])) for point in case["points"]]


def name_of(case: dict[str, Any]) -> str:
    spreads = "-".join(f"{k}={v}" for k, v in case["condition"].items())
    return f"{case['algorithm']}-{spreads}"


@pytest.mark.nightly
@pytest.mark.parametrize("case", OUTCOMES, ids=[name_of(case) for case in OUTCOMES])
def test_errors_are_those_recorded(case: dict[str, Any]) -> None:
    """Means over 10 seeds agree within 4 standard errors of their difference."""
    found = np.array([errors(case, seed) for seed in case["seeds"]])
    combined = np.sqrt((found.var(axis=0, ddof=1) + np.array(case["std"]) ** 2) / len(found))
    assert (np.abs(found.mean(axis=0) - case["mean"]) <= 4 * combined).all(), found.mean(axis=0)
