"""The configurations of recorded chains of arrays, and their results (see recorded_cases)."""

from __future__ import annotations

from typing import Any

import numpy as np

import pulsora as pl
from conftest import PERFECT
from recorded_cases import device, granularity, update

BUFFERS = {
    "TransferCompound": "none",
    "BufferedTransferCompound": "sum",
    "ChoppedTransferCompound": "chopped",
    "DynamicTransferCompound": "dynamic",
}
EXACT_READ = pl.IOParameters(is_perfect=True)


def reads(settings: dict[str, Any]) -> pl.IOParameters:
    if settings.get("is_perfect"):
        return EXACT_READ
    plain = {"noise_management": "none", "bound_management": "none", "inp_res": 0.0}
    return pl.IOParameters(**(plain | {"out_noise": 0.0, "out_res": 0.0} | settings))


def config_of(case: dict[str, Any]) -> pl.TransferConfig:
    settings = dict(case["config"])
    devices = settings.pop("devices")
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
    settings["buffer"] = BUFFERS[case["algorithm"]]
    count_by_mean_steps(settings, [granularity(each) / each["dw_min"] for each in devices])
    for name in ("gamma", "transfer_every", "transfer_lr"):
        if settings.get(f"{name}_vec"):
            settings.pop(name, None)
    made = [device(each) for each in devices]
    around = {"update": update(case["update"]), **PERFECT}
    return pl.TransferConfig(visible=made[-1], fast=made[:-1], **settings, **around)


def count_by_mean_steps(settings: dict[str, Any], ratio: list[float]) -> None:
    """Changes rates and thresholds so that pulses are counted in units of dw_min.

    Pulsora counts by the mean of a device's two steps, which is `ratio` dw_min.
    """
    if not settings.get("auto_scale"):
        settings["fast_lr"] *= ratio[0]
    buffer = settings["buffer"]
    if buffer == "none" and settings["transfer_update"].pulse_type != "none_with_device":
        settings["transfer_lr"] *= ratio[-1]
    elif buffer == "sum":
        settings["thres_scale"] = settings.get("thres_scale", 1.0) / ratio[-1]
    elif buffer in ("chopped", "dynamic"):
        threshold = settings.get("buffer_granularity", 1.0) / ratio[0]
        if settings.get("correct_gradient_magnitudes"):
            threshold *= (ratio[0] if settings.get("auto_scale") else 1.0) / ratio[-1]
        settings["buffer_granularity"] = threshold


def arrays_of(tile: pl.Tile) -> dict[str, np.ndarray]:
    """W and the arrays of a chain under the names of the recorded results."""
    names = [f"fast_{k}" for k in range(len(tile.arrays) - 1)] + ["visible"]
    hidden = {f"hidden_weights_{k}": tile.arrays[name].copy() for k, name in enumerate(names)}
    return {"W": tile.weights.copy(), **hidden}


def difference(found: dict[str, np.ndarray], expected: dict[str, Any]) -> float:
    """The largest difference, relative to the largest value of its array if that is above 1."""
    worst = 0.0
    for name, values in found.items():
        if name in expected:
            wanted = np.array(expected[name])
            worst = max(worst, float(np.abs(values - wanted).max() / max(1, np.abs(wanted).max())))
    return worst


def to_meet(case: dict[str, Any]) -> list[str]:
    """The keys of a case's results of which one has to be met."""
    corrected = [k for k in ("corrected", "corrected_plain_errors") if k in case["expected"][0]]
    return corrected if case.get("to_meet") == "corrected" else ["peer", *corrected]
