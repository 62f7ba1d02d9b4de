"""Noise models, encodings and compensation against recorded numbers (tests/data)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pulsora as pl

RECORDED = Path(__file__).resolve().parents[1] / "data" / "inference_cases.json"
CASES = json.loads(RECORDED.read_text(encoding="utf-8"))
DRAWS = 16384
RECORDED_DRAWS = 400_000

PERFECT = pl.IOParameters(is_perfect=True)
SAME = ("g_max", "prog_coeff", "t_0", "prog_noise_scale", "read_noise_scale", "drift_scale")


def noise_model(case: dict[str, Any], **changes: Any) -> pl.noise_models.NoiseModel:
    """The model of a case, with the numbers that were in force."""
    name, given = case["name"].split()[0], dict(case["attributes"])
    values = {key: given[key] for key in SAME if key in given}
    if name == "CustomDriftPCMLike":
        custom = given["custom_drift_model"]
        values["g"] = [g / given["g_max"] for g in custom["g_lst"]]
        values |= {"nu_mean": custom["nu_mean_lst"], "nu_std": custom["nu_std_lst"]}
        name = "CustomDrift"
    if name == "Hermes":
        del values["prog_coeff"]  # of the number of devices
        values["num_devices"] = given["num_devices"]
    if name == "StateIndependent":
        values |= {key: given[key] for key in ("drift_nu_mean", "drift_nu_std")}
    if name == "ReRamCMO":
        values["acceptance_range"] = given["acceptance_range"]
    made: pl.noise_models.NoiseModel = getattr(pl.noise_models, name)(**(values | changes))
    return made


def array_of(model: pl.noise_models.NoiseModel, targets: list[float]) -> pl.Tile:
    """A tile with a row of DRAWS cells for each target, which is that of their first device."""
    config = pl.InferenceConfig(
        noise_model=model, scaling_per="tile", compensation="none", forward=PERFECT
    )
    tile = pl.Tile(len(targets), DRAWS, config, seed=11)
    relative = (np.array(targets) - model.g_min) / (model.g_max - model.g_min)
    tile.weights = np.repeat(relative[:, np.newaxis], DRAWS, axis=1)
    tile.programming.program(1)
    return tile


def compare(
    found: np.ndarray, mean: float, std: float, clamps: tuple[float, ...], label: str
) -> None:
    """Mean and deviation of N = 16384 draws against 400000 recorded ones, at five sigma."""
    error = std * math.sqrt(1 / RECORDED_DRAWS + 1 / found.size)
    rounding = 2e-6 * abs(mean)
    values = found.astype(np.float64)
    assert values.mean() == pytest.approx(mean, abs=5 * error + rounding), label
    at_clamp = max((values == np.float32(clamp)).mean() for clamp in clamps)
    spread = 7.5 * error + rounding
    if at_clamp > 0.01:  # no longer normal
        spread = max(spread, 0.05 * std)
    assert values.std() == pytest.approx(std, abs=spread), label


@pytest.mark.parametrize("case", CASES["noise_models"], ids=lambda case: case["name"])
def test_property_60_noise_models_have_the_recorded_moments(case: dict[str, Any]) -> None:
    rows = case.get("corrected_rows", case["rows"])
    targets = [row["g_target"] for row in rows]
    model = noise_model(case)
    clamps = (0.0, model.g_min, model.g_max)
    tile = array_of(model, targets)
    programmed = tile.programming.conductances("programmed")[..., 0]
    for row, found in zip(rows, programmed, strict=True):
        compare(found, *row["programmed"], clamps, f"programmed {row['g_target']}")
    for i, time in enumerate(case["times"]):
        tile.programming.drift(time)
        now = tile.programming.conductances()[..., 0]
        for row, found in zip(rows, now, strict=True):
            mean, std = row["drifted_mean"][i], row["drifted_std"][i]
            compare(found, mean, std, clamps, f"{row['g_target']} at {time}")


@pytest.mark.parametrize(
    "case",
    [case for case in CASES["noise_models"] if case["rows"][0]["nu"] is not None],
    ids=lambda case: case["name"],
)
def test_property_60_drift_exponents_have_the_recorded_moments(case: dict[str, Any]) -> None:
    rows = [row for row in case["rows"] if row["g_target"] > 0]
    targets = [row["g_target"] for row in rows]
    model = noise_model(case, prog_noise_scale=0.0, read_noise_scale=0.0)
    tile = array_of(model, targets)
    later = model.t_0 * (math.e - 1)  # a factor e of time, so that G falls by e^-nu
    tile.programming.drift(later)
    now = tile.programming.conductances()[..., 0].astype(np.float64)
    for row, found in zip(rows, now, strict=True):
        nu = -np.log(found / row["g_target"])
        compare(nu, *row["nu"], (math.nan,), f"nu {row['g_target']}")


@pytest.mark.parametrize(
    "case",
    [case for case in CASES["noise_models"] if case["name"] != "ReRamWan2022"],
    ids=lambda case: case["name"],
)
def test_property_60_exact_devices_drift_by_the_recorded_moments(case: dict[str, Any]) -> None:
    model = noise_model(case, prog_noise_scale=0.0)
    clamps = (0.0, model.g_min, model.g_max)
    tile = array_of(model, [row["g_target"] for row in case["rows"]])
    for i, time in enumerate(case["times"]):
        tile.programming.drift(time)
        now = tile.programming.conductances()[..., 0]
        for row, found in zip(case["rows"], now, strict=True):
            mean, std = row["from_exact_mean"][i], row["from_exact_std"][i]
            compare(found, mean, std, clamps, f"{row['g_target']} at {time}")


ENCODINGS = {
    "SinglePair": {"cell": "pair"},
    "SinglePair g_min": {"cell": "pair"},
    "DualPair": {"cell": "pairs", "significance": [1.0, 3.0]},
    "NPair": {"cell": "pairs", "significance": [1.0, 2.0, 4.0]},
    "SingleDevice": {"cell": "single", "single_span": "data"},
}


@pytest.mark.parametrize("name", ENCODINGS)
def test_encodings_have_the_recorded_conductances(name: str) -> None:
    case = next(case for case in CASES["converters"] if case["name"] == name)
    model = pl.noise_models.PCMLike(
        g_max=case["arguments"].get("g_max", 88.2),  # the defaults of SingleDevice
        g_min=case["arguments"].get("g_min", 9.0),
        prog_noise_scale=0.0,
        read_noise_scale=0.0,
        drift_scale=0.0,
    )
    weights = np.array(case["weights"], dtype=np.float32)
    config = pl.InferenceConfig(
        noise_model=model, scaling_per="tile", compensation="none", **ENCODINGS[name]
    )
    tile = pl.Tile(*weights.shape, config)
    tile.weights = weights
    tile.programming.program()
    wanted = np.moveaxis(np.array(case["conductances"]), 0, -1)
    found = tile.programming.conductances("target")
    assert np.abs(found - wanted).max() <= 2e-6 * wanted.max()
    assert np.abs(tile.weights - weights).max() <= 2e-6 * np.abs(weights).max()


def test_a_recorded_table_that_does_not_invert_is_refused() -> None:
    # The recorded conductances are those of the table, and give the weights back with an error of
    # 7 % of the largest: between its nodes, the difference of the two devices is not the weight.
    case = next(case for case in CASES["converters"] if case["name"] == "CustomPair")
    up, down = np.array(case["arguments"]["g_lst"])
    nodes = np.linspace(-1.0, 1.0, len(up))
    weights = np.array(case["weights"])
    relative = weights / np.abs(weights).max()
    for table, recorded in zip((up, down), case["conductances"], strict=True):
        np.testing.assert_allclose(np.interp(relative, nodes, table), recorded, atol=2e-4)
    assert case["back_max_error"] > 0.05
    table_g = [*(up / 25.0), *(down / 25.0)]
    with pytest.raises(pl.ConfigError) as refusal:
        pl.InferenceConfig(cell="table", table_w=nodes.tolist(), table_g=table_g)
    reason = "table_w = -0.5 the devices differ by -0.400000006, but need -0.5; let them"
    assert reason in str(refusal.value)
    straight = np.maximum(nodes, 0.0)  # the same nodes with a difference that is the weight
    pl.InferenceConfig(cell="table", table_w=nodes.tolist(), table_g=[*straight, *straight[::-1]])


@pytest.mark.parametrize(
    ("name", "rule"),
    [("GlobalDriftCompensation", "global"), ("PerColumnDriftCompensation", "per_output")],
)
def test_property_62_factors_of_compensation_are_the_recorded_ones(name: str, rule: str) -> None:
    # The recorded reads are those of an array that has lost a share of each weight: a table of
    # exponents has these shares at the time at which it is read.
    case = next(case for case in CASES["drift_compensation"] if case["type"] == name)
    before = np.abs(np.array(case["weights_programmed"]))
    after = np.abs(np.array(case["weights_read"]))
    g = np.unique(before / before.max())
    order = np.argsort((before / before.max()).ravel())
    nu = -np.log(after.ravel()[order] / before.ravel()[order])
    model = pl.noise_models.PowerLaw(
        g=[0.0, *g],
        nu_mean=[0.0, *nu],
        sigma=[0.0] * (g.size + 1),
        nu_std=[0.0] * (g.size + 1),
        read_noise=[0.0] * (g.size + 1),
    )
    config = pl.InferenceConfig(
        noise_model=model, scaling_per="tile", compensation=rule, compensation_read="exact"
    )
    tile = pl.Tile(*before.shape, config)
    tile.weights = np.array(case["weights_programmed"])
    tile.programming.program()
    tile.programming.drift(model.t_0 * (math.e - 1))
    wanted = np.broadcast_to(case["alpha"], len(before))  # of each output, in their order
    # Conductances are rounded to 2^-24, which the steepest segment of the table enlarges.
    steepest = np.abs(np.diff(nu) / np.diff(g)).max()
    np.testing.assert_allclose(tile.programming.compensation, wanted, rtol=2e-6 + 2**-24 * steepest)


def exact_tile(weights: np.ndarray, per: str) -> Any:  # noqa: ANN401 - it has a programming
    """A programmed tile without errors."""
    exact = pl.noise_models.PCMLike(prog_noise_scale=0.0, read_noise_scale=0.0, drift_scale=0.0)
    config = pl.InferenceConfig(noise_model=exact, scaling_per=per, compensation="none")
    tile = pl.Tile(*weights.shape, config)
    tile.weights = weights.astype(np.float32)
    tile.programming.program()
    return tile


@pytest.mark.parametrize(
    ("number", "per"), [(0, "tile"), (1, "output")], ids=["layerwise", "channelwise"]
)
def test_scales_are_those_of_a_recorded_remap(number: int, per: str) -> None:
    # Scales follow from the weights whenever these are read, so that a remap is no event. By layer,
    # the scale is the factor that the recorded output scales have in common.
    case = CASES["hwa"]["remap"][number]
    weights = np.array(CASES["hwa"]["weights"])
    before, after = np.array(case["scales_before"]), np.array(case["scales_after"])
    own = before if per == "output" else np.ones(len(before))
    tile = exact_tile(weights * own[:, None], per)
    np.testing.assert_allclose(tile.programming.scales, own * after / before, rtol=2e-6)
    g = tile.programming.conductances("target").astype(np.float64) / 25.0
    np.testing.assert_allclose(g[..., 0] - g[..., 1], case["weights_after"], atol=2e-6)


def test_scales_are_those_of_a_recorded_remap_of_limited_scales_up_to_its_limit() -> None:
    # The third recorded remap keeps scales below 1.05 of the smallest one before it. Beyond that,
    # its weights exceed 1, which no pair of devices holds: here, outputs have scales of their own.
    case = CASES["hwa"]["remap"][2]
    assert case["arguments"]["max_scale_range"] == 1.05
    before, after = np.array(case["scales_before"]), np.array(case["scales_after"])
    whole = np.array(CASES["hwa"]["weights"]) * before[:, None]
    tile = exact_tile(whole, "output")
    scales = np.array(tile.programming.scales)
    limit = 1.05 * before.min()
    assert (scales > limit).tolist() == [False, False, True]
    np.testing.assert_allclose(np.minimum(scales, limit), after, rtol=2e-6)
    pairs = tile.programming.conductances("target").astype(np.float64) / 25.0
    relative = pairs[..., 0] - pairs[..., 1]
    kept, recorded = after / scales, np.array(case["weights_after"])
    np.testing.assert_allclose(relative, recorded * kept[:, None], atol=2e-6)
    np.testing.assert_allclose(np.abs(recorded).max(axis=1), 1.0 / kept, atol=2e-6)
    np.testing.assert_allclose(tile.weights, recorded * after[:, None], atol=2e-6)
