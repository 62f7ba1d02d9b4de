"""The configurations of recorded mixed-precision cases (see recorded_cases)."""

from __future__ import annotations

from typing import Any

import numpy as np

import pulsora as pl
from conftest import PERFECT
from recorded_cases import PULSE_TYPES, device, granularity

CELLS = {
    None: "single",
    "OneSidedUnitCell": "one_sided",
    "VectorUnitCell": "vector",
    "ReferenceUnitCell": "reference",
}


def config_of(case: dict[str, Any]) -> pl.MixedPrecisionConfig:
    """The configuration of a case.

    A unit is counted in steps of dw_min there, and in the mean of a device's two steps here:
    `transfer_lr` makes the numbers of pulses equal.
    """
    given = case["config"]
    inner = given.get("inner", {})
    assert not inner.get("gamma_vec")
    assert inner.get("update_policy", "All") == "All"
    step = float(np.mean([each["dw_min"] for each in given["devices"]]))
    ours = float(np.mean([granularity(each) for each in given["devices"]]))
    unit = given["granularity"] or step
    rows = given["n_rows_per_transfer"]
    made = [device(each) for each in given["devices"]]
    settings: dict[str, Any] = {"others": made[1:]} if len(made) > 1 else {}
    if inner.get("algorithm") == "OneSidedUnitCell":
        settings["refresh_every"] = inner.get("refresh_every", 0)
    same = {
        "transfer_every": True,
        "random_row": rows > 0,
        "n_x_bins": True,
        "n_d_bins": True,
        "stoc_round_x": given["n_x_bins"] > 0,
        "stoc_round_d": given["n_d_bins"] > 0,
    }
    settings |= {name: given[name] for name, matters in same.items() if matters}
    pulse_type = PULSE_TYPES[case["update"]["pulse_type"]]
    return pl.MixedPrecisionConfig(
        visible=made[0],
        cells=CELLS[inner.get("algorithm")],
        digital_weight=False,
        granularity=unit,
        transfer_lr=given["transfer_lr"] * ours / step,
        n_rows_per_transfer=max(rows, 0),
        bl_max=65536,
        exact_counts=pulse_type != "stochastic_compressed",
        update=pl.UpdateParameters(pulse_type=pulse_type, desired_bl=case["update"]["desired_bl"]),
        **settings,
        **PERFECT,
    )


def weights_of(tile: pl.Tile) -> dict[str, Any]:
    """The weights by their recorded names; chi has the sign of gradients."""
    arrays = dict(tile.arrays)
    found = {"W": tile.weights.copy(), "hidden_weights_chi": -tile.state().tensors["owed"]}
    if "minus" in arrays:
        arrays = {"minus": arrays["minus"], "plus": arrays["plus"]}
    if len(arrays) > 1:
        found |= {f"hidden_weights_{k}": w.copy() for k, w in enumerate(arrays.values())}
    return found
