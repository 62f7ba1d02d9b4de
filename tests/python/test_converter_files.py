"""Calibrated converters in files of conductances, and corrections of outputs in states."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pulsora as pl

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.numpy")

if TYPE_CHECKING:
    from pathlib import Path

X = torch.randn(64, 20, generator=torch.Generator().manual_seed(1))


def model_of(rule: str = "abs_max", **settings: Any) -> Any:  # noqa: ANN401
    """Two layers, the first on two tiles."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    forward = pl.IOParameters(noise_management=rule, out_noise=0.0)
    config = pl.InferenceConfig(forward=forward, **settings)
    return pl.convert_to_analog(net, config, max_input_size=12, seed=3).eval()


def calibrated(rule: str, **settings: Any) -> Any:  # noqa: ANN401
    """The layers with ranges of inputs and outputs."""
    model = model_of(rule, **settings)
    pl.inference.calibrate(model, [X])
    pl.inference.calibrate_outputs(model, [X], per="output", quantile=0.99)
    return model


SLICES = {"cell": "slices", "weight_bits": 8, "slice_bits": 2, "slice_converters": "apart"}


@pytest.mark.parametrize("rule", ["abs_max", "input_range"])
@pytest.mark.parametrize("settings", [{}, SLICES])
def test_converters_go_to_a_chip_and_back(
    tmp_path: Path, rule: str, settings: dict[str, Any]
) -> None:
    model = pl.program(calibrated(rule, **settings), number=5)
    pl.inference.save_conductances(model, tmp_path, which="programmed")
    entry = json.loads((tmp_path / "conductances.json").read_text())["layers"]["0"]["converters"]
    assert entry["out_bound"] == model[0].config.forward.out_bound
    assert ("input_range" in entry) == (rule == "input_range")
    tensors = safetensors.load_file(tmp_path / "conductances.safetensors")
    gains = list(model[0].tiles)[1].programming.adc_gains
    assert np.array_equal(tensors["0/0_1/adc_gains"], gains)
    assert len(gains) == (4 if settings else 1)

    other = model_of(rule, **settings)
    if rule == "input_range":
        pl.inference.calibrate(other, [X / 2])
    plain = pl.program(other)(X)
    with pytest.raises(ValueError, match="has other converters") as error:
        pl.inference.load_conductances(other, tmp_path, number=5)
    for said in ("'0'", "out_bound", "gains of ADCs", "converters='file'", "'model'"):
        assert said in str(error.value)
    assert torch.equal(pl.drift(other, 0.0)(X), plain)
    pl.inference.load_conductances(other, tmp_path, number=5, converters="model")
    assert not torch.equal(pl.drift(other, "1 day")(X), pl.drift(model, "1 day")(X))
    pl.inference.load_conductances(other, tmp_path, number=5, converters="file")
    assert torch.equal(pl.drift(other, "1 day")(X), pl.drift(model, "1 day")(X))
    # Equal ones need no choice.
    pl.inference.load_conductances(other, tmp_path, number=5)
    assert torch.equal(pl.drift(other, "1 h")(X), pl.drift(model, "1 h")(X))


def test_files_without_converters_leave_those_of_the_model(tmp_path: Path) -> None:
    model = pl.program(calibrated("abs_max"))
    pl.inference.save_conductances(model, tmp_path)
    path = tmp_path / "conductances.json"
    places = json.loads(path.read_text())
    for entry in places["layers"].values():
        del entry["converters"]
    path.write_text(json.dumps(places))
    for converters in ("same", "file"):
        pl.inference.load_conductances(model, tmp_path, converters=converters)
        assert model[0].config.forward.noise_management == "constant"
    # Perfect reads have none.
    perfect = pl.program(model_of("abs_max").eval())
    for layer in (perfect[0], perfect[2]):
        layer.tiles.set_io(forward=pl.IOParameters(is_perfect=True))
    pl.inference.save_conductances(perfect, tmp_path)
    assert "converters" not in path.read_text()
    pl.inference.load_conductances(perfect, tmp_path)


def test_converters_that_do_not_fit_change_nothing(tmp_path: Path) -> None:
    model = pl.program(calibrated("input_range"))
    pl.inference.save_conductances(model, tmp_path)
    tensors, places = tmp_path / "conductances.safetensors", tmp_path / "conductances.json"
    values, text = safetensors.load_file(tensors), json.loads(places.read_text())
    y = pl.drift(model, 1.0)(X)
    state = model.state_dict()

    def refused(said: str, **options: Any) -> None:
        with pytest.raises(ValueError, match=said):
            pl.inference.load_conductances(model, tmp_path, **({"converters": "file"} | options))
        assert torch.equal(pl.drift(model, 1.0)(X), y)
        assert all(torch.equal(each, state[name]) for name, each in model.state_dict().items())

    refused("converters = 'mine': write 'same', 'file' or 'model'", converters="mine")
    for changes, said in (
        ({"out_bound": -1.0}, "out_bound"),
        ({"out_bound": "wide"}, "converters of layer '2' of the file"),
        ({"noise_management": "loud"}, "noise_management"),
        ({"input_range": -1.0}, "input_range = -1.0: give a positive number"),
        ({"input_range": True}, "input_range = True: give a positive number"),
        ({"input_range": None}, "has the parameter input_range in the model alone"),
        ({"more": 1}, "expected an object with noise_management, nm_thres"),
    ):
        damaged = json.loads(json.dumps(text))
        damaged["layers"]["2"]["converters"].update(changes)
        places.write_text(json.dumps(damaged))
        refused(said)
    places.write_text(json.dumps(text))
    gains = values["2/0_0/adc_gains"]
    for bad, said in (
        (gains[:, :2], "shape"),
        (gains.astype(np.float64), "expected .* of float32"),
        (0 * gains, "finite and > 0"),
        (np.nan * gains, "finite and > 0"),
        (None, "are missing"),
    ):
        changed = {name: each for name, each in values.items() if name != "2/0_0/adc_gains"}
        if bad is not None:
            changed["2/0_0/adc_gains"] = np.ascontiguousarray(bad)
        safetensors.save_file(changed, tensors)
        refused(said)


def test_cells_with_a_reference_column_refuse_measured_ones_and_stay(tmp_path: Path) -> None:
    memory = pl.noise_models.ReRamCMO()
    column = model_of(noise_model=memory, cell="single", cell_reference="column")
    y = pl.program(column)(X)
    pl.inference.save_conductances(column, tmp_path)
    with pytest.raises(pl.ConfigError, match="layer '0' has cell_reference = 'column'"):
        pl.inference.load_conductances(column, tmp_path)
    assert torch.equal(pl.drift(column, 0.0)(X), y)


def test_states_hold_the_correction_of_outputs(tmp_path: Path) -> None:
    model = pl.drift(pl.program(calibrated("abs_max"), number=2), "1 month")
    uncorrected = model.state_dict()
    plain = model(X)
    pl.inference.fit_affine(model, [X])
    pl.drift(model, "1 month")  # forgets the correction
    assert not any("affine" in name for name in model.state_dict())
    pl.inference.fit_affine(model, [X])
    corrected = model.state_dict()
    assert corrected["0.tiles.affine"].shape == (2, 16)
    y = model(X)
    assert not torch.equal(y, plain)
    torch.save(corrected, tmp_path / "state.pt")
    other = model_of()
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert torch.equal(other(X), y)
    other.load_state_dict(uncorrected)
    assert torch.equal(other(X), plain)


def test_damaged_corrections_are_refused() -> None:
    model = pl.drift(pl.program(model_of()), "1 month")
    pl.inference.fit_affine(model, [X])
    state = model.state_dict()
    other = pl.program(model_of(), number=7)
    y = other(X)
    for bad in (torch.zeros(2, 5), torch.full((2, 16), torch.nan), torch.zeros(2, 16).long()):
        with pytest.raises(RuntimeError, match=r"0: tiles\.affine must be .* \[2, 16\]"):
            other.load_state_dict({**state, "0.tiles.affine": bad})
        assert other[0].held.affine is None
        assert other[0].tiles.grid[0][0].programming.point.number == 7
    assert not torch.equal(y, other(X))  # the other layer was loaded
