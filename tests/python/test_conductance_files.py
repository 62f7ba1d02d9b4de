"""Conductances to a chip and back, twins of programmed models, corrections by sample inputs."""

from __future__ import annotations

import copy
import csv
import json
import warnings
from typing import TYPE_CHECKING

import numpy as np
import pytest

import pulsora as pl

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.numpy")

if TYPE_CHECKING:
    from pathlib import Path

X = torch.randn(64, 20, generator=torch.Generator().manual_seed(1))


def model_of(**settings: object) -> torch.nn.Module:
    """Two layers, the first on several tiles."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    config = pl.InferenceConfig(**settings)
    return pl.convert_to_analog(net, config, max_input_size=12, seed=3).eval()


def test_conductances_go_to_a_chip_and_back(tmp_path: Path) -> None:
    model = pl.program(model_of(), number=5)
    pl.inference.save_conductances(model, tmp_path, which="programmed", tables=True)
    places = json.loads((tmp_path / "conductances.json").read_text())["layers"]
    assert places["0"]["tiles"] == {"0_0": [0, 16, 0, 10], "0_1": [0, 16, 10, 20]}
    assert (places["2"]["g_max"], places["2"]["cell"]) == (25.0, "pair")
    tensors = safetensors.load_file(tmp_path / "conductances.safetensors")
    tile = list(model[0].tiles)[1]
    assert np.array_equal(tensors["0/0_1"], tile.programming.conductances("programmed"))
    with (tmp_path / "0.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 16 * 20 * 2
    row = rows[-1]
    assert (row["output"], row["input"], row["device"]) == ("15", "19", "1")
    assert float(row["conductance"]) == tensors["0/0_1"][15, 9, 1]
    # The same conductances in another model are the same chip.
    other = pl.inference.load_conductances(model_of(), tmp_path, number=5)
    pl.drift(model, "1 day")
    pl.drift(other, "1 day")
    y = model(X)
    assert torch.equal(y, other(X))
    assert pl.inference.programmed_tiles(other)[0].programming.is_measured
    loaded = model_of()
    loaded.load_state_dict(other.state_dict())
    pl.drift(loaded, "1 day")
    assert torch.equal(y, loaded(X))
    # Measured ones are taken as they are.
    tensors["2/0_0"] *= 0.5
    safetensors.save_file(tensors, tmp_path / "conductances.safetensors")
    pl.inference.load_conductances(other, tmp_path)
    halved = pl.inference.programmed_tiles(other)[-2].programming.conductances("programmed")
    assert np.array_equal(halved, tensors["2/0_0"])


def test_files_that_do_not_fit_change_nothing(tmp_path: Path) -> None:
    model = pl.program(model_of())
    with pytest.raises(pl.StateError, match="program"):
        pl.inference.save_conductances(model_of(), tmp_path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        pl.inference.save_conductances(model, tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="cannot be read"):
        pl.inference.load_conductances(model, tmp_path)
    pl.inference.save_conductances(model, tmp_path)
    tensors, places = tmp_path / "conductances.safetensors", tmp_path / "conductances.json"
    values, text = safetensors.load_file(tensors), places.read_text()
    y = pl.drift(model, 1.0)(X)

    def changed(name: str, tensor: np.ndarray) -> dict[str, np.ndarray]:
        return {**values, name: tensor}

    g = values["0/0_0"]
    for damaged, said in (
        (changed("0/0_0", g[:, :3]), "shape"),
        (changed("0/0_0", -1 - g), "finite and >= 0"),
        (changed("0/0_0", np.full_like(g, np.nan)), "finite and >= 0"),
        (changed("0/0_0", g.astype(np.float64)), "float32"),
        (changed("0/0_0/scale", 2 * values["0/0_0/scale"]), "model's weights"),
        ({name: each for name, each in values.items() if name != "2/0_0"}, "shape None"),
    ):
        safetensors.save_file({n: np.ascontiguousarray(v) for n, v in damaged.items()}, tensors)
        with pytest.raises(ValueError, match=said):
            pl.inference.load_conductances(model, tmp_path)
    safetensors.save_file(values, tensors)
    for damaged_text, said in (
        ("{", "no JSON"),
        ("[]", "format"),
        ('{"format": 1}', "no layers"),
        (text.replace('"2"', '"head"'), "layers"),
        (text.replace("25.0", "40.0"), "g_max"),
        (text.replace('"pair"', '"single"'), "cell"),
    ):
        places.write_text(damaged_text)
        with pytest.raises(ValueError, match=said):
            pl.inference.load_conductances(model, tmp_path)
    tensors.write_bytes(b"x" * 40)
    places.write_text(text)
    with pytest.raises(ValueError, match="no safetensors file"):
        pl.inference.load_conductances(model, tmp_path)
    assert torch.equal(pl.drift(model, 1.0)(X), y)
    pl.inference.save_conductances(model, tmp_path)
    with pytest.raises(pl.ConfigError, match="number is -1; give a whole number"):
        pl.inference.load_conductances(model, tmp_path, number=-1)
    assert torch.equal(pl.drift(model, 1.0)(X), y)
    with pytest.raises(ValueError, match="no layer"):
        pl.inference.load_conductances(torch.nn.Linear(2, 2), tmp_path)


def test_a_programmed_model_has_a_digital_twin() -> None:
    perfect = pl.IOParameters(is_perfect=True)
    model = model_of(forward=perfect)
    with pytest.raises(pl.StateError, match="not programmed"):
        pl.convert_to_digital(model, programmed=True)
    plain = pl.convert_to_digital(model)
    assert torch.equal(plain[0].weight, model[0].weight)
    pl.drift(pl.program(model, 3), "1 month")
    twin = pl.convert_to_digital(model, programmed=True)
    assert (twin(X) - model(X)).abs().max() < 1e-5
    assert (twin(X) - plain(X)).abs().max() > 1e-3
    assert type(twin[0]) is torch.nn.Linear
    pl.inference.fit_affine(model, [X])
    with pytest.warns(UserWarning, match=r"layers \['0', '2'\] have corrections of their outputs"):
        uncorrected = pl.convert_to_digital(model, programmed=True)
    assert torch.equal(uncorrected[0].weight, twin[0].weight)
    assert torch.equal(pl.convert_to_digital(model)[0].weight, model[0].weight)
    pl.drift(model, "1 month")
    assert torch.equal(pl.convert_to_digital(model, programmed=True)[2].weight, twin[2].weight)


def test_an_affine_correction_is_a_least_squares_fit() -> None:
    quiet = pl.IOParameters(
        inp_res=0, out_res=0, out_noise=0, inp_bound=0, out_bound=0, bound_management="none"
    )
    model = model_of(compensation="none", forward=quiet)
    layer = model[0]
    with pytest.raises(ValueError, match="not programmed"):
        pl.inference.fit_affine(model, [X])
    pl.drift(pl.program(model), "1 year")
    seen = sum(
        X.numpy()[:, col] @ tile.weights.T.astype(np.float64)
        for _, col, tile in layer.tiles.parts()
    )
    exact = X.numpy().astype(np.float64) @ layer.weight.detach().numpy().T
    found = pl.inference.fit_affine(model, X.split(20))
    for i in range(16):
        gain, offset = np.polyfit(seen[:, i], exact[:, i], 1)
        assert found["0"][0, i] == pytest.approx(gain, rel=1e-3)
        assert found["0"][1, i] == pytest.approx(offset, abs=1e-4)
    corrected = layer(X) - layer.bias
    assert (
        np.abs(
            corrected.detach().numpy() - (found["0"][0].numpy() * seen + found["0"][1].numpy())
        ).max()
        < 1e-4
    )
    error = (corrected.detach().numpy() - exact).std()
    pl.drift(model, "1 year")
    assert error < 0.7 * ((layer(X) - layer.bias).detach().numpy() - exact).std()
    pairs = [(X, torch.zeros(64, dtype=torch.long))]

    def loss(y: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return (y - plain).square().sum(-1)

    plain = pl.convert_to_digital(model)(X).detach()
    settings = {"metric": loss, "times": [1.0, 3e7], "programmings": 3}
    raw = pl.inference.evaluate(model, pairs, **settings)
    fitted = pl.inference.evaluate(
        model, pairs, **settings, prepare=lambda m: pl.inference.fit_affine(m, [X])
    )
    assert (fitted.values[1] < 0.5 * raw.values[1]).all()
    with pytest.raises(ValueError, match="no sample"):
        pl.inference.fit_affine(model, [])


def test_batch_norms_take_the_statistics_of_the_drifted_model() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.BatchNorm1d(16))
    net(X)
    model = pl.convert_to_analog(net, pl.InferenceConfig(compensation="none"), seed=1).eval()
    pl.drift(pl.program(model), "1 year")
    before = model[1].running_var.clone()
    assert pl.inference.adapt_batch_norm(model, [(X, None)]) == 1
    assert model[1].momentum == 0.1
    assert not model[1].training
    with torch.no_grad():
        pl.drift(model, "1 year")
        y = model[0](X)
    assert (model[1].running_mean - y.mean(0)).abs().max() < 1e-5
    assert (model[1].running_var - y.var(0)).abs().max() < 1e-5
    assert not torch.equal(before, model[1].running_var)
    for bad, batches, text in (
        (torch.nn.Linear(2, 2).eval(), [X], "no batch norm"),
        (model, [], "no sample"),
        (copy.deepcopy(model).train(), [X], "training mode"),
    ):
        with pytest.raises(ValueError, match=text):
            pl.inference.adapt_batch_norm(bad, batches)


def test_an_evaluation_without_an_array_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from pulsora.nn.tiles import held_weights  # noqa: PLC0415 - of the package itself

    monkeypatch.setattr(held_weights, "_warned", [])
    model = model_of()
    with pytest.warns(UserWarning, match="never programmed"):
        model(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(X)
        model.train()(X)
