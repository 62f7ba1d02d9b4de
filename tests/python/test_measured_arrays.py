"""Measured conductances stay in evaluations, trainings of adapters and explanations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pulsora as pl

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors.numpy")

if TYPE_CHECKING:
    from pathlib import Path

TIMES = [1.0, 1e6]
X = torch.randn(48, 20, generator=torch.Generator().manual_seed(1))


def model_of(**settings: Any) -> Any:  # noqa: ANN401 - layers by number
    """Returns two layers, the first of two tiles."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    config = pl.InferenceConfig(**settings)
    return pl.convert_to_analog(net, config, max_input_size=12, seed=3).eval()


@pytest.fixture
def chip(tmp_path: Path) -> Path:
    """Conductances of a chip whose first layer lost half of what it was asked for."""
    safetensors = pytest.importorskip("safetensors.numpy")
    pl.inference.save_conductances(pl.program(model_of(), 5), tmp_path, which="programmed")
    path = tmp_path / "conductances.safetensors"
    tensors = safetensors.load_file(path)
    for name in ("0/0_0", "0/0_1"):
        tensors[name] *= 0.5
    safetensors.save_file(tensors, path)
    return tmp_path


def measured(model: torch.nn.Module) -> list[np.ndarray]:
    tiles = pl.inference.programmed_tiles(model)
    assert all(tile.programming.is_measured for tile in tiles)
    return [tile.programming.conductances("programmed") for tile in tiles]


def first_output(y: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return y[:, 0].double()


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("window", [0.0, 1e-3])
def test_an_evaluation_reads_what_was_measured(chip: Path, window: float, prepared: bool) -> None:
    model = pl.inference.load_conductances(model_of(read_window=window), chip, number=5)
    before = measured(model)
    expected = [float(pl.drift(model, t)(X)[:, 0].detach().double().mean()) for t in TIMES]
    settings: Any = {
        "metric": first_output,
        "times": TIMES,
        "prepare": (lambda _: None) if prepared else None,
    }
    batches = [(X, X[:, 0])]
    for programmings in (1, [5]):
        report = pl.inference.evaluate(model, batches, programmings=programmings, **settings)
        assert report.programmings == (5,)
        np.testing.assert_allclose(report.values[:, 0], expected, rtol=1e-9)
        assert all(map(np.array_equal, measured(model), before))
    simulated = pl.inference.evaluate(
        model_of(read_window=window), batches, programmings=[5], **settings
    )
    assert np.abs(simulated.values - report.values).min() > 1e-3
    assert torch.equal(model(X), pl.drift(model, TIMES[-1])(X))
    for wrong in ({"programmings": 3}, {"programmings": [2]}, {"programmings": 1, "chips": 2}):
        with pytest.raises(ValueError, match="write programmings=1 and chips=1, or simulate"):
            pl.inference.evaluate(model, batches, **settings, **wrong)
    pl.drift(model, 60.0)

    def fails(*_: object) -> torch.Tensor:
        raise RuntimeError("no metric")

    with pytest.raises(RuntimeError, match="no metric"):
        pl.inference.evaluate(model, batches, programmings=1, **(settings | {"metric": fails}))
    assert all(map(np.array_equal, measured(model), before))
    assert pl.inference.programmed_tiles(model)[0].programming.point[:2] == (5, 60.0)
    pl.inference.unprogram(model)
    assert pl.inference.evaluate(model, batches, programmings=2, **settings).values.shape == (2, 2)


def test_layers_of_two_chips_are_refused(chip: Path) -> None:
    model = pl.inference.load_conductances(model_of(), chip, number=5)
    tile = model[2].tiles.grid[0][0]
    for part in model[2].tiles:
        part.programming.program_measured(part.programming.conductances("programmed"), 6)
    assert tile.programming.point.number == 6
    with pytest.raises(ValueError, match=r"programmings \[5, 6\]; load those of one chip"):
        pl.inference.evaluate(model, [(X, X[:, 0])], programmings=1)


def test_adapters_learn_beside_what_was_measured(chip: Path) -> None:
    base = pl.inference.load_conductances(model_of(), chip, number=5)
    before = measured(base)
    wanted = pl.convert_to_digital(base)(X).detach()
    model = pl.peft.add_adapters(base, "analog_base_digital_adapter", rank=4, seed=1)
    found = pl.inference.readapt(
        model, torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.02),
        torch.nn.functional.mse_loss, [(X, wanted)], TIMES, steps=40,
        metric=lambda y, target: ((y - target) ** 2).mean(1),
    )  # fmt: skip
    assert all(map(np.array_equal, measured(model), before))
    assert found.after[0] < 0.7 * found.before[0]


def test_an_explanation_knows_what_was_measured(chip: Path) -> None:
    model = pl.inference.load_conductances(model_of(), chip, number=5)
    report = pl.inference.explain(model, X, time="1 h")
    plain = pl.inference.explain(model_of(), X, time="1 h", programming=5)
    # Half of each weight is missing in the first layer alone.
    assert report.of_layer("0")["programming"] == pytest.approx(0.5, abs=0.05)
    assert report.of_layer("2") == plain.of_layer("2")
    assert plain.of_layer("0")["programming"] < 0.2
    pl.drift(model, "1 h")
    y = (model[0](X) - model[0].bias).detach()
    exact = X @ model[0].weight.detach().T
    assert report.totals["0"] == pytest.approx(float((y - exact).norm() / exact.norm()), rel=1e-5)
