"""Noise models from conductances that were read at several times: made data are recovered."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

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
    "shift": (np.outer([0.0, 0.2, -0.4, 0.1, -1.0], [0.2, 0.5, 1.0])).ravel().tolist(),
    "sigma": (np.outer(1 + 0.1 * np.log(TIMES), [0.2, 0.5, 0.8])).ravel().tolist(),
    "persistence": 0.7,
}
LOG = {
    "g": [0.1, 0.4, 1.0],
    "times": [1.0, 1e6],
    "shift": [0.0, 0.1, 0.2, -0.3, -0.7, -1.4],
    "sigma": [0.2, 0.5, 0.8, 0.4, 1.2, 1.9],
    "persistence": 0.7,
    "extrapolate": True,
}
LEAK = {
    "g": [0.1, 0.4, 1.0],
    "sigma": [0.3, 0.8, 1.1],
    "tau": [3e3, 8e3, 2e4],
    "tau_std": [0.2, 0.15, 0.3],
    "read_noise": [0.02, 0.012, 0.009],
    "rest": 1.5,
}
LAWS = {
    "power_law": pl.noise_models.PowerLaw(**POWER),
    "exponential": pl.noise_models.Exponential(**LEAK),
    "log": pl.noise_models.Shift(**LOG),
    "shift": pl.noise_models.Shift(**SHIFT),
}


def made_readings(
    model: pl.noise_models.NoiseModel, cells: int, seed: int
) -> dict[str, np.ndarray]:
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


def true_value(name: str, model: pl.noise_models.NoiseModel) -> float:
    """The value of "sigma[2]" in the tables of a model."""
    if "[" not in name:
        return float(getattr(model, name))
    parameter, entry = name.rstrip("]").split("[")
    return float(getattr(model, parameter)[int(entry)])


@pytest.mark.parametrize(
    "sets",
    [pytest.param(8, id="few"), pytest.param(100, id="hundred", marks=pytest.mark.nightly)],
)
@pytest.mark.parametrize("law", LAWS)
def test_property_68_parameters_lie_within_three_standard_errors(law: str, sets: int) -> None:
    # 95 of 100 sets; a normal estimate of 12 (31) numbers has all of them within three standard
    # errors in 97 (92) of 100 sets, so that each parameter is counted by itself.
    model = LAWS[law]
    within: dict[str, int] = {}
    for seed in range(sets):
        fit = pl.fit.retention(made_readings(model, 120, seed), law=law)
        for name, value in fit.values.items():
            error = abs(value - true_value(name, model))
            within[name] = within.get(name, 0) + (error <= 3 * fit.standard_errors[name])
    # Of eight sets, one may miss: 2 of 8 beyond three standard errors have the probability 2e-4.
    needed = 0.95 * sets if sets >= 100 else sets - 1
    assert {name: count for name, count in within.items() if count < needed} == {}


@pytest.mark.parametrize("law", LAWS)
def test_the_law_of_the_data_is_found(law: str, tmp_path: Path) -> None:
    model = LAWS[law]
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
    assert set(fit.likelihoods) == set(LAWS)
    assert not fit.problems
    # Of laws that differ by less than 1 in all, that of the fewest numbers.
    held_out = 12 * len(TARGETS) * len(TIMES)
    assert max(fit.likelihoods.values()) - fit.likelihoods[law] < 1.0 / held_out
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


@pytest.fixture(scope="module")
def trained() -> tuple[Any, list[tuple[Any, Any]]]:
    """A digital network that reads digits, and the images that it has not seen."""
    torch = pytest.importorskip("torch")
    from pulsora.training.data import batches, digits  # noqa: PLC0415 - needs scikit-learn

    data = digits()
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 24), torch.nn.Tanh(), torch.nn.Linear(24, 10))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for epoch in range(8):
        for x, y in batches(data, batch=32, seed=0, epoch=epoch):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(torch.from_numpy(x)), torch.from_numpy(y))
            loss.backward()
            optimizer.step()
    return net, [(torch.from_numpy(data.test_x), torch.from_numpy(data.test_y))]


@pytest.mark.parametrize("law", LAWS)
def test_a_network_has_the_accuracy_of_the_true_memory(
    law: str, trained: tuple[Any, list[tuple[Any, Any]]]
) -> None:
    # One standard error of the mean of N = 20 programmings, of equal draws for both memories.
    net, test = trained
    # A memory that is bad enough for the network to suffer.
    sigma = {"power_law": [1.5, 3.0, 4.0], "exponential": [1.5, 3.0, 4.0]}
    true = LAWS[law].replace(
        sigma=sigma.get(law, [3.0 * each for each in LAWS[law].sigma]), g_max=25.0
    )
    fitted = pl.fit.retention(made_readings(true, 600, 11), law=law).noise_model
    times = ["1 min", "1 day", "1 week"]
    reports = []
    for memory in (true, fitted):
        config = pl.InferenceConfig(noise_model=memory, compensation="global")
        model = pl.convert_to_analog(net, config, seed=1).eval()
        reports.append(pl.inference.evaluate(model, test, times=times, programmings=20))
    accuracy = [np.asarray(report.values) for report in reports]
    assert accuracy[0].mean() < 0.97  # the digital network has 0.97
    mean = [values.mean(axis=1) for values in accuracy]
    error = accuracy[0].std(axis=1, ddof=1) / np.sqrt(20)
    assert (np.abs(mean[1] - mean[0]) <= error).all(), (mean, error)


def test_without_targets_cells_are_sorted_by_their_first_reading() -> None:
    readings = made_readings(LAWS["power_law"], 60, 5)
    del readings["target"]
    fit = pl.fit.retention(readings)
    assert fit.law == "power_law"
    assert not fit.targets_given
    assert set(fit.likelihoods) == {"power_law", "exponential"}
    assert fit.noise_model.sigma == (0.0,) * 8
    assert "without targets, the programming error is not told" in str(fit)
    # Around each level, the exponents and the read noise of the true memory.
    true = LAWS["power_law"]
    for name in ("nu_mean", "read_noise"):
        share = np.array(fit.noise_model.g) * fit.noise_model.g_max / 25.0
        wanted = np.interp(share, true.g, getattr(true, name))
        for node, value in enumerate(wanted):
            key = f"{name}[{node}]"
            assert abs(fit.values[key] - value) < 5 * fit.standard_errors[key] + 0.05 * value
    with pytest.raises(ValueError, match="readings have no column 'target'; give it"):
        pl.fit.retention(readings, law="shift")


def few_readings(cells: int) -> dict[str, np.ndarray]:
    """Readings of a power law at 5, 15 and 25 uS, so many cells each."""
    rng = np.random.default_rng(0)
    rows = []
    for cell in range(3 * cells):
        target = (5.0, 15.0, 25.0)[cell % 3]
        start = target + 0.3 * rng.normal()
        nu = abs(0.05 + 0.01 * rng.normal())
        for time in (1.0, 10.0, 100.0, 1e3, 1e4):
            value = start * ((time + 20.0) / 20.0) ** -nu * (1.0 + 0.005 * rng.normal())
            rows.append((cell, target, time, value))
    names = ("cell", "target", "time", "conductance")
    return dict(zip(names, np.array(rows).T, strict=True))


@pytest.mark.parametrize("cells", [8, 12, 15])
def test_the_fewest_cells_are_enough(cells: int) -> None:
    fit = pl.fit.retention(few_readings(cells))
    assert set(fit.likelihoods) == set(LAWS)
    assert not fit.problems
    assert fit.law == "power_law"
    assert np.isfinite(list(fit.likelihoods.values())).all()
    for node in range(3):
        assert fit.values[f"nu_mean[{node}]"] == pytest.approx(0.05, abs=0.015)


@pytest.mark.parametrize(("cells", "bad"), [(20, 1), (20, 4), (8, 2), (8, 8)])
def test_cells_without_logarithms_do_not_end_a_comparison(cells: int, bad: int) -> None:
    """Some held-out cells of a target, all of these, or all its cells have a reading below 0.

    The laws are compared by the other cells; the laws of shifts by all cells, if there are none.
    """
    readings = few_readings(cells)
    held_out = [0, 5, 10, 15] if bad < cells else list(range(cells))
    for place in held_out[:bad]:
        readings["conductance"][15 * place + 4] = -0.01  # a cell of 5 uS, the last time
    fit = pl.fit.retention(readings)
    assert fit.left_out == bad
    assert np.isfinite(list(fit.likelihoods.values())).all()
    if bad < cells:
        assert set(fit.likelihoods) == set(LAWS)
        return
    assert set(fit.likelihoods) == {"log", "shift"}
    assert "0 of the 6 cells that are fitted have positive readings" in fit.problems["power_law"]
    assert pl.fit.retention(readings, law="shift").law == "shift"


@pytest.mark.parametrize("readings", [None, 5, [1.0, 2.0], np.ones((3, 4))])
def test_what_has_no_columns_is_refused(readings: object) -> None:
    with pytest.raises(TypeError, match=r"readings = .*: give the path of a CSV file, or a dict"):
        pl.fit.retention(readings)


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
        ({**good, "time": ["soon"] * len(good["time"])}, {}, "time must be a list of numbers"),
        ({name: [] for name in good}, {}, "no readings"),
        ({**good, "target": 0 * good["target"]}, {}, "target 0"),
        (few, {}, "3 cells"),
        (early, {"law": "power_law"}, "three times"),
        (early, {"law": "exponential"}, "three times"),
        (early, {"law": "log"}, "needs two"),
        (good, {"law": "cubic"}, "write 'auto', 'power_law', 'exponential', 'log', 'shift'"),
        (good, {"held_out": 1.0}, "held_out"),
        (good, {"t_0": 0.0}, "t_0"),
        (good, {"g_max": 5.0}, "g_max"),
        ({**good, "conductance": -good["conductance"]}, {"law": "power_law"}, "positive"),
    ):
        with pytest.raises(ValueError, match=text):
            pl.fit.retention(readings, **settings)
    path = tmp_path / "bad.csv"
    head = "cell,target,time,conductance\n"
    for text, message in (
        ("cell,target,time\n1,2,3\n", "line 1: column conductance is missing"),
        (head + "a,2,3,high\n", "line 2, column conductance: 'high' is no number"),
        (head + "a,2,3,\n", "an empty cell is no reading; leave out the row$"),
        (head + "a,2,3\n", "line 2: 3 columns, and 4 are named"),
        (head, "no rows below the first line"),
        ("1,2,3,4\n", "numbers in place of the names of columns; write names into the first line$"),
        (head.replace(",", ";"), "is one column; separate columns by commas"),
        ("cell,cell,time,conductance\n", "column cell is there twice"),
        (head + '"a,2,3,4\n', "no CSV file"),
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            pl.fit.retention(path)
    with pytest.raises(FileNotFoundError, match="give a CSV file of readings"):
        pl.fit.retention(tmp_path / "none.csv")


@pytest.mark.parametrize("law", ["shift", "log"])
def test_many_readings_at_zero_are_warned_of(law: str) -> None:
    wide = SHIFT | {"sigma": [5.0 * sigma for sigma in SHIFT["sigma"]]}
    columns = made_readings(pl.noise_models.Shift(g_max=25.0, **wide), 300, 11)
    assert (columns["conductance"] == 0.0).any()
    with pytest.warns(UserWarning, match=r"\d\.\d % of the readings of target 2\.5 uS are 0"):
        pl.fit.retention(columns, law=law, g_max=25.0)
    made = made_readings(pl.noise_models.Shift(g_max=25.0, **SHIFT), 300, 11)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pl.fit.retention(made, law=law, g_max=25.0)


def test_cells_that_the_power_law_leaves_out_are_named() -> None:
    columns = made_readings(pl.noise_models.PowerLaw(g_max=25.0, **POWER), 60, 3)
    columns["conductance"][:3] = 0.0
    found = pl.fit.retention(columns, law="power_law", g_max=25.0)
    assert "\n3 cells have readings that are not positive: left out\n" in str(found)


def test_cells_may_have_names() -> None:
    columns: dict[str, Any] = made_readings(pl.noise_models.PowerLaw(g_max=25.0, **POWER), 40, 3)
    named = columns | {"cell": [f"chip {number:g}" for number in columns["cell"]]}
    found, other = (pl.fit.retention(each, law="power_law") for each in (columns, named))
    assert other.values == pytest.approx(found.values, rel=1e-6)
    for wrong, said in (
        ({"g_max": "25"}, "g_max = '25': give a positive number"),
        ({"t_0": "1 s"}, "t_0 = '1 s': give a positive number"),
        ({"held_out": "a"}, "held_out = 'a'"),
        ({"held_out": 1.0}, "held_out = 1.0: give a share below 1"),
    ):
        with pytest.raises(ValueError, match=said):
            pl.fit.retention(columns, **wrong)
