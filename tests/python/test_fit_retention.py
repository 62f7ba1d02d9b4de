"""Noise models from conductances that were read at several times: made data are recovered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import pulsora as pl

pytest.importorskip("scipy")

if TYPE_CHECKING:
    from pathlib import Path

TARGETS = (2.5, 10.0, 25.0)
TIMES = (1.0, 30.0, 600.0, 1e4, 1e6)
POWER = {
    "g": [0.1, 0.4, 1.0],
    "sigma": [0.3, 0.8, 1.1],
    "nu_mean": [0.09, 0.07, 0.05],
    "nu_std": [0.02, 0.015, 0.01],
    "read_noise": [0.02, 0.012, 0.009],
}
SHIFT = {
    "g": [0.1, 0.4, 1.0],
    "times": list(TIMES),
    "shift": (np.outer(np.log(TIMES), [-0.02, -0.05, -0.1])).ravel().tolist(),
    "sigma": (np.outer(1 + 0.1 * np.log(TIMES), [0.2, 0.5, 0.8])).ravel().tolist(),
    "persistence": 0.7,
}


def made_readings(model: object, cells: int, seed: int) -> dict[str, np.ndarray]:
    """Readings of devices of a noise model, as a tile draws them."""
    columns: dict[str, list[np.ndarray]] = {
        name: [] for name in ("cell", "target", "time", "conductance")
    }
    config = pl.InferenceConfig(noise_model=model, compensation="none")
    for number, target in enumerate(TARGETS):
        tile = pl.Tile(1, cells + 1, config, seed=seed, tile_id=number)
        weights = np.full((1, cells + 1), target / 25.0, dtype=np.float32)
        weights[0, -1] = 1.0
        tile.weights = weights
        tile.programming.program()
        for time in TIMES:
            tile.programming.drift(time)
            columns["cell"].append(1000 * number + np.arange(cells))
            columns["target"].append(np.full(cells, target))
            columns["time"].append(np.full(cells, time))
            columns["conductance"].append(tile.programming.conductances()[0, :-1, 0])
    return {name: np.concatenate(values) for name, values in columns.items()}


def true_value(name: str, table: dict[str, object]) -> float:
    """The value of "sigma[2]" in the tables of a model."""
    if "[" not in name:
        return float(table[name])  # type: ignore[arg-type]
    parameter, entry = name.rstrip("]").split("[")
    return float(table[parameter][int(entry)])  # type: ignore[index]


@pytest.mark.parametrize(
    "sets",
    [pytest.param(8, id="few"), pytest.param(100, id="hundred", marks=pytest.mark.nightly)],
)
@pytest.mark.parametrize("law", ["power_law", "shift"])
def test_property_68_parameters_lie_within_three_standard_errors(law: str, sets: int) -> None:
    # 95 of 100 sets; a normal estimate of 12 (31) numbers has all of them within three standard
    # errors in 97 (92) of 100 sets, so that each parameter is counted by itself.
    table = POWER if law == "power_law" else SHIFT
    model = (pl.noise_models.PowerLaw if law == "power_law" else pl.noise_models.Shift)(**table)
    within: dict[str, int] = {}
    for seed in range(sets):
        fit = pl.fit.retention(made_readings(model, 120, seed), law=law)
        for name, value in fit.values.items():
            error = abs(value - true_value(name, table))
            within[name] = within.get(name, 0) + (error <= 3 * fit.standard_errors[name])
    # Of eight sets, one may miss: 2 of 8 beyond three standard errors have the probability 2e-4.
    needed = 0.95 * sets if sets >= 100 else sets - 1
    assert {name: count for name, count in within.items() if count < needed} == {}


@pytest.mark.parametrize("law", ["power_law", "shift"])
def test_the_law_of_the_data_is_found(law: str, tmp_path: Path) -> None:
    table = POWER if law == "power_law" else SHIFT
    model = (pl.noise_models.PowerLaw if law == "power_law" else pl.noise_models.Shift)(**table)
    readings = made_readings(model, 60, 3)
    path = tmp_path / "readings.csv"
    names = list(readings)
    lines = [",".join(["note", *names])]
    lines += [
        "x," + ",".join(map(repr, row))
        for row in zip(*map(np.ndarray.tolist, readings.values()), strict=True)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    fit = pl.fit.retention(path)
    assert fit.law == law
    assert set(fit.likelihoods) == {"power_law", "shift"}
    assert fit.likelihoods[law] == max(fit.likelihoods.values())
    assert law in str(fit)
    fit.plot(tmp_path / "fit.png")
    assert (tmp_path / "fit.png").stat().st_size > 1000
    # The fitted model makes arrays with the error of the true one.
    errors = []
    for each in (model, fit.noise_model):
        tile = pl.Tile(40, 40, pl.InferenceConfig(noise_model=each, cell="single"), seed=1)
        tile.weights = np.random.default_rng(1).uniform(-0.8, 1, (40, 40))
        tile.programming.program()
        tile.programming.drift(1e5)
        errors.append(tile.programming.statistics()["weight_error"])
    assert errors[1] == pytest.approx(errors[0], rel=0.1)


def test_readings_that_tell_nothing_are_refused(tmp_path: Path) -> None:
    good = made_readings(pl.noise_models.PowerLaw(**POWER), 10, 0)
    few = {name: values[good["cell"] % 1000 < 3] for name, values in good.items()}
    early = {name: values[good["time"] <= 1.0] for name, values in good.items()}
    for readings, settings, text in (
        ({**good, "target": -good["target"]}, {}, "must be >= 0"),
        ({**good, "conductance": good["conductance"] * np.nan}, {}, "not finite"),
        ({**good, "cell": good["cell"][1:]}, {}, "different lengths"),
        ({**good, "cell": 0 * good["cell"]}, {}, "once at each time"),
        ({"cell": [1], "target": [1.0]}, {}, "no column 'time'"),
        ({name: [] for name in good}, {}, "no readings"),
        ({**good, "target": 0 * good["target"]}, {}, "target 0"),
        (few, {}, "3 cells"),
        (early, {"law": "power_law"}, "three times"),
        (good, {"law": "log"}, "law"),
        (good, {"held_out": 1.0}, "held_out"),
        (good, {"t_0": 0.0}, "t_0"),
        (good, {"g_max": 5.0}, "g_max"),
        ({**good, "conductance": -good["conductance"]}, {"law": "power_law"}, "positive"),
    ):
        with pytest.raises(ValueError, match=text):
            pl.fit.retention(readings, **settings)
    path = tmp_path / "bad.csv"
    path.write_text("cell,target,time\n1,2,3\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no 'conductance'"):
        pl.fit.retention(path)
    path.write_text("cell,target,time,conductance\na,2,3,high\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 2: conductance is 'high'"):
        pl.fit.retention(path)
