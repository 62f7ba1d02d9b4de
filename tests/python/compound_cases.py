"""Recorded results of compounds, tests/data/compound_cases.json, and the tiles that replay them.

Matrices are [d, x]; an update with a learning rate > 0 moves W by about -lr d x^T. A case gives
the devices, the settings, a generator of inputs, and the arrays after some mini-batches.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import numpy as np

import pulsora as pl

FILE = Path(__file__).parent.parent / "data" / "compound_cases.json"

PULSE_TYPES = {
    "NoneWithDevice": "none_with_device",
    "StochasticCompressed": "stochastic_compressed",
    "MeanCount": "mean_count",
    "DeterministicImplicit": "deterministic_implicit",
}
BUFFERS = {
    "TransferCompound": "none",
    "BufferedTransferCompound": "sum",
    "ChoppedTransferCompound": "chopped",
    "DynamicTransferCompound": "dynamic",
}
PERFECT = pl.IOParameters(is_perfect=True)


@functools.cache
def all_cases() -> dict[str, Any]:
    return json.loads(FILE.read_text())


def cases(group: str, algorithms: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    return [case for case in all_cases()[group] if case["algorithm"] in algorithms]


def device(settings: dict[str, Any]) -> Any:  # noqa: ANN401 - the class follows from the case
    """A device without spreads and noise but for `settings`."""
    made = getattr(pl.devices, settings["type"])
    names = [f.name for f in dataclasses.fields(made)]
    quiet = {n: 0.0 for n in names if n.endswith("_dtod")} | {"dw_min_std": 0.0, "reset_std": 0.0}
    return made(**(quiet | {k: v for k, v in settings.items() if k != "type"}))


def step_ratio(settings: dict[str, Any]) -> float:
    """The mean of a device's steps up and down at 0, by which Pulsora counts pulses, per dw_min."""
    return 1 - abs(settings.get("up_down", 0.0)) / 2


def update(settings: dict[str, Any]) -> pl.UpdateParameters:
    return pl.UpdateParameters(**(settings | {"pulse_type": PULSE_TYPES[settings["pulse_type"]]}))


def reads(settings: dict[str, Any]) -> pl.IOParameters:
    if settings.get("is_perfect"):
        return PERFECT
    plain = {"noise_management": "none", "bound_management": "none", "inp_res": 0.0}
    return pl.IOParameters(**(plain | {"out_noise": 0.0, "out_res": 0.0} | settings))


def inputs(case: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x [n, x], d [n, d] and the first weights [d, x] of a case."""
    how = case["inputs"]
    rng = np.random.default_rng(how["seed"])
    n, x_size, d_size = how["n_vectors"], case["x_size"], case["d_size"]
    if how["generator"] == "uniform":
        x, d = rng.uniform(-1, 1, (n, x_size)), rng.uniform(-1, 1, (n, d_size))
    else:
        a, b = rng.uniform(-1, 1, x_size), rng.uniform(-1, 1, d_size)
        x = np.clip(a + 0.5 * rng.uniform(-1, 1, (n, x_size)), -1, 1)
        d = np.clip(b + 0.5 * rng.uniform(-1, 1, (n, d_size)), -1, 1)
    start = np.random.default_rng(how["seed"] + 1000000)
    weights = start.uniform(-how["w_range"], how["w_range"], (d_size, x_size))
    return x.astype("f"), (d * how["d_scale"]).astype("f"), weights.astype("f")


def transfer_config(case: dict[str, Any]) -> pl.TransferConfig:
    """The configuration of a transfer compound.

    Pulsora counts pulses by the mean of both steps, where the recorded ones count by dw_min:
    learning rates and thresholds are given in units of dw_min.
    """
    settings = dict(case["config"])
    devices = settings.pop("devices")
    ratio = [step_ratio(each) for each in devices]
    buffer = BUFFERS[case["algorithm"]]
    settings["transfer_forward"] = reads(settings["transfer_forward"])
    settings["transfer_update"] = update(settings["transfer_update"])
    every = settings["transfer_every"]
    if every < 0 or (settings["units_in_mbatch"] and every != int(every)):
        settings["units_in_mbatch"] = False
        if every > 0:
            settings["transfer_every"] = float(np.ceil(every * case["inputs"]["m_batch"]))
    for name in ("transfer_every_vec", "transfer_lr_vec"):
        if name in settings:
            settings[name] = settings[name][: len(devices) - 1]
    if "experimental_correct_accumulation" in settings:
        settings["correct_accumulation"] = settings.pop("experimental_correct_accumulation")
    if settings["fast_lr"] <= 0:
        settings |= {"fast_lr": 1.0, "scale_fast_lr": True}
    if not settings.get("auto_scale"):
        settings["fast_lr"] *= ratio[0]
    count_by_mean_steps(settings, buffer, ratio)
    fixed = {"forward": PERFECT, "backward": PERFECT, "update": update(case["update"])}
    made = [device(each) for each in devices]
    return pl.TransferConfig(visible=made[-1], fast=made[:-1], buffer=buffer, **settings, **fixed)


def count_by_mean_steps(settings: dict[str, Any], buffer: str, ratio: list[float]) -> None:
    """Gives the thresholds of a buffer, and the rate of pulsed writes, in units of dw_min."""
    if buffer == "none" and settings["transfer_update"].pulse_type != "none_with_device":
        settings["transfer_lr"] *= ratio[-1]
    elif buffer == "sum":
        settings["thres_scale"] = settings.get("thres_scale", 1.0) / ratio[-1]
    elif buffer in ("chopped", "dynamic"):
        threshold = settings.get("buffer_granularity", 1.0) / ratio[0]
        if settings.get("correct_gradient_magnitudes"):
            threshold *= (ratio[0] if settings.get("auto_scale") else 1.0) / ratio[-1]
        settings["buffer_granularity"] = threshold


def arrays_of_chain(tile: pl.Tile) -> dict[str, np.ndarray]:
    """W and the arrays of a chain under the names of the recorded results."""
    names = [f"fast_{k}" for k in range(len(tile.arrays) - 1)] + ["visible"]
    hidden = {f"hidden_weights_{k}": tile.arrays[name].copy() for k, name in enumerate(names)}
    return {"W": tile.weights.copy(), **hidden}


def differences(found: dict[str, np.ndarray], expected: dict[str, Any]) -> float:
    """The largest difference, relative to the largest value of its array if that is above 1."""
    worst = 0.0
    for name, values in found.items():
        if name in expected:
            wanted = np.array(expected[name])
            worst = max(worst, float(np.abs(values - wanted).max() / max(1, np.abs(wanted).max())))
    return worst


def accepted(case: dict[str, Any]) -> list[str]:
    """The keys of a case's results of which one has to be met."""
    rules = [all_cases()["defects"][tag] for tag in case.get("defects") or []]
    keys = [k for k in ("corrected", "corrected_plain_errors") if k in case["expected"][0]]
    return keys if any(rule == "corrected" for rule in rules) else ["peer", *keys]
