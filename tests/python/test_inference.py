"""Models whose layers are programmed, and drift."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

import pulsora as pl

torch = pytest.importorskip("torch")

if TYPE_CHECKING:
    from pathlib import Path


def model_of(**settings: object) -> torch.nn.Module:
    """Two analog layers of several tiles."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    return pl.convert_to_analog(
        net, pl.InferenceConfig(**settings), max_input_size=12, max_output_size=9, seed=3
    )


PERFECT = pl.IOParameters(is_perfect=True)
X = torch.linspace(-1, 1, 100).reshape(5, 20)


def test_property_61_a_model_is_a_function_of_programming_and_time() -> None:
    model, other = model_of().eval(), model_of().eval()
    pl.program(model, number=5)
    pl.drift(model, 86400.0)
    y = model(X)
    other(X)
    pl.drift(pl.program(other), "1 year")
    other(X)
    pl.program(other, number=5)
    pl.drift(other, "1 day")
    assert torch.equal(other(X), y)
    pl.drift(other, "1 day", redraw=1)
    assert not torch.equal(other(X), y)


def test_property_61_programming_to_a_time_is_programming_and_drift() -> None:
    model, other = model_of().eval(), model_of().eval()
    pl.drift(pl.program(model, 5, chip=1), "1 day")
    pl.program(other, 5, chip=1, time="1 day")
    assert torch.equal(other(X), model(X))
    for one, same in zip(*map(pl.inference.programmed_tiles, (model, other)), strict=True):
        assert one.programming.point == same.programming.point
        assert one.programming.compensation == same.programming.compensation
        one.programming.program(6, time=3.0)
        same.programming.program(6)
        same.programming.drift(3.0)
        assert (one.weights == same.weights).all()


def test_models_that_are_made_in_inference_mode_are_read_like_others() -> None:
    model = pl.program(model_of().eval(), time="1 day")
    with torch.inference_mode():
        other = pl.program(model_of().eval(), time="1 day")
        assert torch.equal(other(X), model(X))
        pl.program(other)
        pl.drift(other, "1 day")
        assert torch.equal(other(X), pl.drift(model, "1 day")(X))


def test_a_refused_time_programs_no_layer() -> None:
    model = model_of(noise_model=pl.noise_models.ReRamWan2022()).eval()
    for time, error in (("1 year", "extrapolate=True"), (-1.0, ">= 0"), ("soon", "one of the")):
        with pytest.raises(pl.ConfigError, match=error):
            pl.program(model, time=time)
        assert pl.inference.programmed_tiles(model)[0].programming.point is None


def test_property_61_a_copied_and_a_loaded_model_go_on() -> None:
    model = model_of().eval()
    pl.drift(pl.program(model, 2), "1 h")
    model(X)
    twin = copy.deepcopy(model)
    loaded = model_of().eval()
    loaded.load_state_dict(model.state_dict())
    y = model(X)
    assert torch.equal(twin(X), y)
    pl.drift(model, "1 h")
    pl.drift(loaded, "1 h")
    assert torch.equal(loaded(X), model(X))


def test_a_programmed_model_is_near_its_weights() -> None:
    model = model_of().eval()
    before = model(X)
    pl.program(model)
    assert 1e-4 < (model(X) - before).abs().max() < 0.5
    assert {tile.programming.point.time for tile in pl.inference.programmed_tiles(model)} == {0.0}
    pl.inference.unprogram(model)
    assert pl.inference.programmed_tiles(model)[0].programming.point is None


def test_training_goes_on_from_the_weights_and_makes_a_programming_stale() -> None:
    model, plain = model_of(forward=PERFECT), model_of(forward=PERFECT)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pl.program(model)
    assert torch.equal(model(X), plain(X))  # in train(), reads see the weights
    model(X).square().sum().backward()
    optimizer.step()
    with pytest.raises(pl.StateError, match="changed after they were programmed"):
        model.eval()(X)
    with pytest.raises(pl.StateError, match="changed after they were programmed"):
        pl.drift(model, 1.0)
    pl.program(model)
    model(X)
    with torch.no_grad():
        next(model.parameters()).mul_(2)
    with pytest.raises(pl.StateError, match="changed after they were programmed"):
        model(X)
    pl.inference.unprogram(model)
    model(X)


def test_a_refused_drift_changes_no_layer() -> None:
    model = model_of(noise_model=pl.noise_models.ReRamWan2022()).eval()
    pl.program(model)
    y = model(X)
    for time, error in (
        ("1 year", "extrapolate=True"),
        (-1.0, ">= 0"),
        (float("nan"), "finite"),
        ("soon", "units"),
        ("1 parsec", "units"),
    ):
        with pytest.raises(pl.ConfigError, match=error):
            pl.drift(model, time)
    pl.program(model)
    assert torch.equal(model(X), y)
    with pytest.raises(ValueError, match="InferenceConfig"):
        pl.program(pl.nn.AnalogLinear(3, 2))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("1 s", 1), ("90 min", 5400), ("2 hours", 7200), ("1 day", 86400), ("1e1 days", 864000),
     ("1 month", 2592000), ("1 year", 31536000), (2.5, 2.5)],
)  # fmt: skip
def test_times_in_words(text: str | float, wanted: float) -> None:
    assert pl.inference.seconds(text) == wanted


BATCHES = [(X, torch.arange(5) % 4), (-X, torch.arange(5) % 3)]


def test_an_evaluation_is_the_loop_of_programming_and_drift() -> None:
    model = model_of().eval()
    report = pl.inference.evaluate(model, BATCHES, times=["1 h", 1.0], programmings=[4, 0, 9])
    other = model_of().eval()
    for column, number in enumerate(report.programmings):
        for row, time in enumerate(report.times):
            pl.drift(pl.program(other, number), time)
            hits = sum(float((other(x).argmax(-1) == y).sum()) for x, y in BATCHES)
            assert report.values[row, column] == pytest.approx(hits / 10)
    again = pl.inference.evaluate(other, BATCHES, times=[1.0, 3600.0], programmings=[0, 4, 9])
    assert again.values[0, 0] == report.values[1, 1]
    assert again.values[1, 1] == report.values[0, 0]


def test_a_report_is_a_table_a_figure_and_a_file(tmp_path: Path) -> None:
    def loss(y: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(y, wanted, reduction="none")

    calls = []
    settings = {"metric": loss, "programmings": 3, "times": ["1 s", "1 year"]}
    report = pl.inference.evaluate(
        model_of().eval(), BATCHES, **settings, progress=lambda *done: calls.append(done)
    )
    assert calls == [(6, 6)]
    assert report.metric == "loss"
    assert "1 year" in str(report)
    assert "3 programmings" in str(report)
    report.save(tmp_path / "report.json")
    loaded = pl.inference.InferenceReport.load(tmp_path / "report.json")
    assert (loaded.values == report.values).all()
    assert str(loaded) == str(report)
    report.plot(tmp_path / "report.png")
    assert (tmp_path / "report.png").stat().st_size > 1000
    less = pl.inference.evaluate(model_of(compensation="none").eval(), BATCHES, **settings)
    difference = report - less
    assert difference.mean == pytest.approx(report.mean - less.mean)
    assert difference.std[0] < 0.2 * report.std[0]  # at one second both see nearly one array
    with pytest.raises(ValueError, match="programmings"):
        _ = report - pl.inference.InferenceReport(report.times, (0,), report.values[:, :1])
    with pytest.raises(ValueError, match="no report"):
        pl.inference.InferenceReport.from_dict({})


def test_evaluations_refuse_what_has_no_result() -> None:
    model = model_of()
    with pytest.raises(ValueError, match="training mode"):
        pl.inference.evaluate(model, BATCHES)
    model.eval()
    for settings, text in (
        ({"metric": "f1"}, "accuracy"),
        ({"metric": lambda y, _: y.mean()}, "for each sample"),
        ({"times": []}, "at least one time"),
        ({"programmings": 0}, "at least one time"),
    ):
        with pytest.raises(ValueError, match=text):
            pl.inference.evaluate(model, BATCHES, **settings)
    with pytest.raises(ValueError, match="no sample"):
        pl.inference.evaluate(model, [])
    rram = model_of(noise_model=pl.noise_models.ReRamWan2022()).eval()
    with pytest.raises(pl.ConfigError, match="extrapolate=True"):
        pl.inference.evaluate(rram, BATCHES)
    assert pl.inference.programmed_tiles(rram)[0].programming.point is None


@pytest.mark.parametrize("rows", [1, 7, 200])
@pytest.mark.parametrize("quantile", [0.5, 0.99, 1.0])
def test_property_64_input_ranges_are_exact_for_any_split(rows: int, quantile: float) -> None:
    torch.manual_seed(2)
    layer = pl.nn.AnalogLinear(16, 3, config=pl.InferenceConfig(), seed=1).eval()
    x = torch.randn(200, 16)
    ranges = pl.inference.calibrate(layer, x.split(rows), quantile=quantile)
    ordered = x.abs().flatten().sort().values
    exact = ordered[math.ceil(quantile * len(ordered)) - 1].item()
    assert exact <= ranges[""] <= exact * (1 + 2**-9)
    io = layer.config.forward
    assert (io.noise_management, io.nm_thres) == ("constant", pytest.approx(ranges[""]))
    # Inputs beyond the range are read as the range.
    large = torch.full((1, 16), 100.0)
    fixed = pl.with_io(layer, forward=lambda old: old.replace(out_noise=0.0, out_res=0.0))
    assert torch.equal(fixed(large), fixed(torch.full((1, 16), ranges[""])))


def test_calibrations_refuse_what_has_no_range() -> None:
    model = model_of()
    with pytest.raises(ValueError, match="training mode"):
        pl.inference.calibrate(model, [X])
    model.eval()
    for batches, settings, text in (
        ([], {}, "no input but 0"),
        ([0 * X], {}, "no input but 0"),
        ([X], {"quantile": 0.0}, "quantile"),
        ([X], {"rule": "mean"}, "rule"),
    ):
        with pytest.raises(ValueError, match=text):
            pl.inference.calibrate(model, batches, **settings)
    with pytest.raises(ValueError, match="perfectly"):
        pl.inference.calibrate(model_of(forward=PERFECT).eval(), [X])
    with pytest.raises(ValueError, match="no layer"):
        pl.inference.calibrate(torch.nn.Linear(2, 2).eval(), [X])


@pytest.mark.skipif(
    not torch.cuda.is_available() or pl.cuda_device_count() == 0, reason="no GPU that can be used"
)
@pytest.mark.parametrize("compensation", ["none", "global", "per_output", "exact_reference"])
@pytest.mark.parametrize("scaling", ["output", "tile"])
def test_programmed_models_on_a_gpu_have_the_arrays_of_the_cpu(
    compensation: str, scaling: str
) -> None:
    settings = {"compensation": compensation, "scaling_per": scaling}
    model = model_of(**settings).eval()
    moved = copy.deepcopy(model).cuda()
    for number, time in ((3, 0.0), (3, 3600.0), (4, 1e7), (4, 1.0)):
        arrays = []
        for each in (model, moved):
            pl.program(each, number)
            if time > 0.0:
                pl.drift(each, time)
            tiles = pl.inference.programmed_tiles(each)
            arrays.append([(tile.weights, tile.programming.compensation) for tile in tiles])
        for (weights, factors), (of_gpu, factors_of_gpu) in zip(*arrays, strict=True):
            assert np.array_equal(weights, of_gpu)
            assert factors == factors_of_gpu
    with torch.no_grad():
        moved[0].weight[1, 2] = float("nan")
    with pytest.raises(pl.InputError, match="must be finite"):
        pl.program(moved)
    with torch.no_grad():
        moved[0].weight[1, 2] = 0.5
    pl.program(moved)  # the fault is gone with its report
