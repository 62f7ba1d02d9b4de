"""Replays recorded results of update rules: their inputs, their devices and their settings.

A case in tests/data/compound_cases has been computed by another simulator (AIHWKit 1.2.0) from
inputs that follow from a seed. Its numbers are weights of all arrays after some mini-batches, or
means and variances over independent runs. Where that simulator errs, the case also has "corrected"
numbers, of a separate model of the rules.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import pulsora as pl

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]

FOLDER = Path(__file__).resolve().parents[1] / "data" / "compound_cases"

PULSE_TYPES = {
    "StochasticCompressed": "stochastic_compressed",
    "MeanCount": "mean_count",
    "DeterministicImplicit": "deterministic_implicit",
    "NoneWithDevice": "none_with_device",
}

TOLERANCE = 2e-5
"""Of a weight, relative to the largest of its array, or 1; no decision lies as close as that."""


def cases(name: str) -> list[dict[str, Any]]:
    """The cases of a file, in order."""
    listed: list[dict[str, Any]] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return listed


def device(settings: dict[str, Any]) -> pl.devices.Device:
    """A device without spreads, noise or other effects but those of `settings`."""
    rest = {name: value for name, value in settings.items() if name != "type"}
    model = getattr(pl.devices, settings["type"])
    off = {name: 0.0 for name in model().to_dict() if name.endswith("_dtod")}
    made: pl.devices.Device = model(**{**off, "dw_min_std": 0.0, "reset_std": 0.0, **rest})
    return made


def granularity(settings: dict[str, Any]) -> float:
    """The step by which Pulsora scales pulse trains: the mean of both directions at weight 0."""
    return float(settings["dw_min"]) * (1.0 - 0.5 * abs(settings.get("up_down", 0.0)))


def update(settings: dict[str, Any]) -> pl.UpdateParameters:
    """Settings of a pulsed update."""
    names = {
        "desired_bl": "desired_bl",
        "fixed_bl": "fixed_bl",
        "update_management": "update_management",
        "update_bl_management": "update_bl_management",
    }
    given = {ours: settings[theirs] for theirs, ours in names.items() if theirs in settings}
    return pl.UpdateParameters(pulse_type=PULSE_TYPES[settings["pulse_type"]], **given)


def inputs(case: dict[str, Any]) -> tuple[Matrix, Matrix, Matrix]:
    """x [n, x_size], d [n, d_size] and the weights at the start; checked against the case."""
    given, sizes = case["inputs"], (case["x_size"], case["d_size"])
    count = given["n_vectors"]
    rng = np.random.default_rng(given["seed"])
    if given["generator"] == "uniform":
        x, d = (rng.uniform(-1, 1, (count, size)) for size in sizes)
    else:
        means = [rng.uniform(-1, 1, size) for size in sizes]
        x, d = (
            np.clip(mean + 0.5 * rng.uniform(-1, 1, (count, len(mean))), -1, 1) for mean in means
        )
    start = np.random.default_rng(given["seed"] + 1_000_000)
    reach = given["w_range"]
    weights = start.uniform(-reach, reach, sizes[::-1])
    x32, d32 = x.astype(np.float32), (d * given["d_scale"]).astype(np.float32)
    known = case["check_inputs"]
    ends = {"x_first": x32[0], "x_last": x32[-1], "d_first": d32[0], "d_last": d32[-1]}
    for name, row in (ends | {"w_start_first_row": weights[0]}).items():
        if name in known:
            np.testing.assert_allclose(row, known[name], rtol=1e-6)
    return x32, d32, weights.astype(np.float32)


def replay(case: dict[str, Any], tile: pl.Tile, pulsed: list[int]) -> Iterator[int]:
    """Writes the weights, trains, and yields the number of mini-batches so far.

    `pulsed` are the devices that take pulses. The other simulator scales pulse trains by the mean
    of their `dw_min`; the learning rate is changed so that the numbers of pulses are equal.
    """
    x, d, weights = inputs(case)
    devices = [case["config"]["devices"][k] for k in pulsed]
    ratio = sum(map(granularity, devices)) / sum(each["dw_min"] for each in devices)
    tile.weights = weights
    size = case["inputs"]["m_batch"]
    for number, first in enumerate(range(0, len(x), size), start=1):
        tile.update(x[first : first + size], d[first : first + size], case["lr"] * ratio)
        yield number


def assert_close(found: Matrix, expected: Any, where: str) -> None:  # noqa: ANN401 - of a file
    wanted = np.asarray(expected, np.float64)
    bound = TOLERANCE * max(1.0, float(np.abs(wanted).max()))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=bound, err_msg=where)
