"""Evaluations over times, programmings and chips; sweeps; what limits a layer."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
import pytest

import pulsora as pl

torch = pytest.importorskip("torch")

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

X = torch.randn(30, 20, generator=torch.Generator().manual_seed(1))
BATCHES = [(X[:12], torch.arange(12) % 4), (X[12:24], torch.arange(12) % 3)]
QUIET = pl.IOParameters(
    inp_res=0, out_res=0, out_noise=0, inp_bound=0, out_bound=0, bound_management="none"
)


class Mixed(torch.nn.Module):
    """An analog recurrent layer whose batch is second, and an analog head."""

    def __init__(self, config: pl.InferenceConfig) -> None:
        super().__init__()
        self.cell = pl.nn.AnalogRNN(4, 6, config=config, seed=1)
        self.head = pl.nn.AnalogLinear(6, 4, config=config, seed=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Reads five steps of four inputs; the batch is in front."""
        sequence = x.reshape(len(x), 5, 4).transpose(0, 1)
        return self.head(self.cell(sequence)[0][-1])


def model_of(**settings: object) -> torch.nn.Module:
    """Layers of several tiles, with a norm between them."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(20, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 4)
    )
    config = pl.InferenceConfig(**settings)
    made = pl.convert_to_analog(net, config, max_input_size=12, max_output_size=9, seed=3)
    made(X)  # running statistics
    return made.eval()


def looped(model: torch.nn.Module, times: list[float], programmings: int, chips: int) -> np.ndarray:
    """The accuracy of single realisations, [times, chips x programmings]."""
    values = np.empty((len(times), chips * programmings))
    with torch.no_grad():
        for column in range(chips * programmings):
            pl.program(model, column % programmings, chip=column // programmings)
            for row, time in enumerate(times):
                pl.drift(model, time)
                hits = sum(int((model(x).argmax(-1) == y).sum()) for x, y in BATCHES)
                values[row, column] = hits / 24
    return values


@pytest.mark.parametrize("chips", [1, 3])
@pytest.mark.parametrize("made", ["layers", "recurrent"])
def test_property_65_an_evaluation_is_the_loop_of_single_realisations(
    chips: int, made: str
) -> None:
    settings = {"stuck_low": 0.05, "read_window": 1e-3}
    model = Mixed(pl.InferenceConfig(**settings)).eval()
    if made == "layers":
        model = model_of(**settings)
    times = [0.0, 60.0, 1e5]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = pl.inference.evaluate(model, BATCHES, times=times, programmings=2, chips=chips)
    assert np.array_equal(report.values, looped(model, times, 2, chips))
    assert len(np.unique(report.values)) > 1
    points = {tile.programming.point for tile in pl.inference.programmed_tiles(model)}
    assert points == {(1, 1e5, 0, chips - 1)}
    assert report.by_chip().shape == (3, chips)
    assert np.allclose(report.by_chip()[:, 0], report.values[:, :2].mean(axis=1))


def test_little_memory_makes_more_passes_and_the_same_report() -> None:
    model = model_of()
    calls: list[tuple[int, int]] = []
    settings = {"times": [1.0, 1e4], "programmings": 3}
    report = pl.inference.evaluate(
        model, BATCHES, **settings, memory=1e-9, progress=lambda *done: calls.append(done)
    )
    assert calls == [(i, 6) for i in range(1, 7)]
    again = pl.inference.evaluate(model, BATCHES, **settings)
    assert np.array_equal(report.values, again.values)


@pytest.mark.parametrize("made", ["layers", "recurrent"])
def test_batches_are_cut_where_that_changes_no_output(
    made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulsora.inference.folding._ROWS_ON_CPU", 10)
    model = model_of() if made == "layers" else Mixed(pl.InferenceConfig()).eval()
    times, settings = [1.0, 1e4], {"programmings": 2}
    sizes = []

    def hits(y: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        sizes.append(len(wanted))
        return (y.argmax(-1) == wanted).float()

    report = pl.inference.evaluate(model, BATCHES, metric=hits, times=times, **settings)
    assert np.array_equal(report.values, looped(model, times, 2, 1))
    # Reads of a recurrent layer are counted step by step, and have other noise in a piece. The
    # metric is tried for four samples, and for two and two of them.
    assert sizes[:3] == ([4, 2, 2] if made == "layers" else [12, 12, 12])
    assert set(sizes[3:]) == ({5, 2} if made == "layers" else {12})


def test_samples_that_meet_are_read_one_realisation_at_a_time() -> None:
    model = model_of()
    model[1].train()  # its statistics are those of the batch
    state = model[1].state_dict()
    with pytest.warns(UserWarning, match=r"1 does not treat the samples of a batch apart"):
        report = pl.inference.evaluate(model, BATCHES, times=[1.0, 1e4], programmings=2)
    model[1].load_state_dict(state)
    assert np.array_equal(report.values, looped(model, [1.0, 1e4], 2, 1))


class Shaped(torch.nn.Module):
    """A model that takes batches of some sizes alone."""

    def __init__(self, shape: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.net = model_of()
        self.shape = shape

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Reads the inputs in another shape."""
        return self.net(self.shape(x))


def test_models_of_one_batch_size_are_read_one_realisation_at_a_time() -> None:
    model = Shaped(lambda x: x.view(12, 20)).eval()
    text = r"the model refuses batches of another size \(RuntimeError: shape"
    with pytest.warns(UserWarning, match=text):
        report = pl.inference.evaluate(model, BATCHES, times=[1.0, 1e4], programmings=2)
    assert np.array_equal(report.values, looped(model, [1.0, 1e4], 2, 1))


def test_an_error_of_the_model_itself_is_raised() -> None:
    model = Shaped(lambda x: x.view(7, 20)).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeError, match="invalid for input of size 240"):
            pl.inference.evaluate(model, BATCHES, times=[1.0], programmings=1)


def test_inputs_that_are_not_finite_are_errors_without_a_warning() -> None:
    x = X[:12].clone()
    x[2, 3] = torch.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(pl.InputError, match=r"layer '0' .*x\[2, 3\] is nan"):
            pl.inference.evaluate(model_of(), [(x, BATCHES[0][1])], times=[1.0], programmings=2)


def test_models_that_refuse_one_sample_are_folded_and_not_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pulsora.inference.folding._ROWS_ON_CPU", 10)

    def shape(x: torch.Tensor) -> torch.Tensor:
        if len(x) == 1:
            raise IndexError("a sample has no batch")
        return x

    model = Shaped(shape).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = pl.inference.evaluate(model, BATCHES, times=[1.0, 1e4], programmings=2)
    assert np.array_equal(report.values, looped(model, [1.0, 1e4], 2, 1))


@pytest.mark.parametrize(("rows", "sizes"), [(10, {5, 4, 2}), (40, {12})])
def test_a_pass_counts_the_outputs_of_all_layers(
    rows: int, sizes: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = 16 + 16 + 16 + 4 + 2 * 4  # of a sample; those of the model count twice
    monkeypatch.setattr("pulsora.inference.folding._BYTES_ON_CPU", rows * (4 * outputs + 1))
    seen = set()

    def hits(y: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        seen.add(len(wanted))
        return (y.argmax(-1) == wanted).float()

    pl.inference.evaluate(model_of(), BATCHES, metric=hits, times=[1.0], programmings=2)
    assert seen == sizes


def test_a_report_of_chips_is_a_file(tmp_path: Path) -> None:
    model = model_of(stuck_low=0.2)
    report = pl.inference.evaluate(model, BATCHES, times=[1.0], programmings=2, chips=2)
    assert report.chips == (0, 0, 1, 1)
    assert "4 programmings of 2 chips" in str(report)
    report.save(tmp_path / "report.json")
    loaded = pl.inference.InferenceReport.load(tmp_path / "report.json")
    assert loaded.chips == report.chips
    one = pl.inference.evaluate(model, BATCHES, times=[1.0], programmings=4)
    with pytest.raises(ValueError, match="chips"):
        _ = report - pl.inference.InferenceReport(one.times, report.programmings, one.values)


def test_outputs_and_inputs_may_be_structures() -> None:
    class Named(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = model_of()

        def forward(self, pixels: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"logits": self.net(pixels)}

    def hits(y: dict[str, torch.Tensor], wanted: torch.Tensor) -> torch.Tensor:
        return (y["logits"].argmax(-1) == wanted).float()

    batches = [({"pixels": x}, wanted) for x, wanted in BATCHES]
    settings = {"times": [1.0, 1e5], "programmings": 2}
    found = pl.inference.evaluate(Named().eval(), batches, metric=hits, **settings)
    plain = pl.inference.evaluate(model_of(), BATCHES, **settings)
    assert np.array_equal(found.values, plain.values)
    hits_of_logits = pl.inference.evaluate(Named().eval(), batches, **settings)
    assert np.array_equal(hits_of_logits.values, plain.values)

    class Pair(Named):
        def forward(self, pixels: torch.Tensor) -> tuple[torch.Tensor, None]:
            return self.net(pixels), None

    def first(y: tuple[torch.Tensor, None], wanted: torch.Tensor) -> torch.Tensor:
        return (y[0].argmax(-1) == wanted).float()

    of_pairs = pl.inference.evaluate(Pair().eval(), batches, metric=first, **settings)
    assert np.array_equal(of_pairs.values, plain.values)
    with pytest.raises(TypeError, match=r"output of type tuple.*a metric of your own"):
        pl.inference.evaluate(Pair().eval(), batches, **settings)


def test_evaluations_refuse_bad_shares_and_counts() -> None:
    model = model_of()
    for settings, text in (({"chips": 0}, "chips"), ({"memory": 0.0}, "memory")):
        with pytest.raises(ValueError, match=text):
            pl.inference.evaluate(model, BATCHES, **settings)


def test_a_sweep_changes_one_setting_under_equal_noise() -> None:
    model = model_of()
    settings = {"times": [1.0, 1e6], "programmings": 3}
    found = pl.inference.sweep(model, BATCHES, {"noise_model.drift_scale": [0.0, 1.0]}, **settings)
    plain = pl.inference.evaluate(model, BATCHES, **settings)
    assert np.array_equal(found.reports[1.0].values, plain.values)
    assert not np.array_equal(found.reports[0.0].values, plain.values)
    assert "noise_model.drift_scale" in str(found)
    for over, text in (
        ({}, "0 settings"),
        ({"cell_bits": []}, "no value"),
        ({"cell_bits": [4], "stuck_low": [0.1]}, "2 settings"),
    ):
        with pytest.raises(ValueError, match=text):
            pl.inference.sweep(model, BATCHES, over)
    for name in ("bits", "forward.bits", "noise_model.bits.more"):
        with pytest.raises(pl.ConfigError, match="is no setting"):
            pl.inference.sweep(model, BATCHES, {name: [1]})


def test_an_explanation_measures_each_source_alone() -> None:
    model = model_of(cell_bits=4, compensation="none", noise_model=pl.noise_models.PCMLike())
    report = pl.inference.explain(model, BATCHES[0], time="1 year")
    assert list(report.totals) == ["0", "3"]
    errors = report.of_layer("0")
    assert next(iter(errors)) == report.sources[0].source == "drift"
    assert report.sources[0].remedy == "compensation='global'"
    expected = {
        "drift", "programming", "read noise", "levels of targets", "input converter",
        "output converter", "output noise",
    }  # fmt: skip
    assert set(errors) == expected
    assert pl.inference.programmed_tiles(model)[0].programming.point is None
    # The input converters by themselves, in numpy: 126 steps of each tile's largest input.
    layer = model[0]
    x = X[:12].numpy().astype(np.float64)
    seen = np.empty_like(x)
    for lines in (slice(0, 10), slice(10, 20)):
        scale = np.abs(x[:, lines]).max(axis=1, keepdims=True)
        seen[:, lines] = scale * np.round(x[:, lines] / scale * 63) / 63
    w = layer.weight.detach().numpy().astype(np.float64)
    wanted = np.linalg.norm((seen - x) @ w.T) / np.linalg.norm(x @ w.T)
    assert errors["input converter"] == pytest.approx(wanted, rel=1e-4)
    # Without read noise and converters, the whole is programming and drift.
    exact = pl.noise_models.PCMLike(drift_scale=0.0, read_noise_scale=0.0)
    quiet = model_of(noise_model=exact, forward=QUIET)
    found = pl.inference.explain(quiet, X)
    assert set(found.of_layer("0")) == {"programming"}
    assert found.of_layer("0")["programming"] == pytest.approx(found.totals["0"], rel=0.1)
    with pytest.raises(ValueError, match="training mode"):
        pl.inference.explain(model.train(), X)
    with pytest.raises(ValueError, match="no layer"):
        pl.inference.explain(torch.nn.Linear(2, 2).eval(), X)


def test_presets_have_the_published_numbers() -> None:
    standard = pl.presets.StandardHWA(modifier="add_normal")
    io = standard.forward
    assert (io.inp_res, io.out_res, io.out_bound, io.w_noise_type) == (254, 254, 10, "pcm_read")
    assert (io.out_noise, io.w_noise, io.ir_drop) == (
        pytest.approx(0.04), pytest.approx(0.0175), 1.0,
    )  # fmt: skip
    assert (standard.modifier, standard.noise_model.model) == ("add_normal", "PCMLike")
    foundation = pl.presets.AnalogFoundation()
    assert (foundation.clip, foundation.clip_sigma) == ("gaussian_per_output", 2.5)
    assert foundation.modifier_std == pytest.approx(0.03)
    assert (foundation.forward.out_bound, foundation.forward.noise_management) == (
        14, "input_range",
    )  # fmt: skip
    memory = pl.presets.ReRamCMO(2.0)
    assert (memory.cell, memory.noise_model.acceptance_range) == ("single", 2.0)
    for preset in (standard, foundation, memory):
        model = pl.convert_to_analog(torch.nn.Linear(20, 4), preset, seed=1).eval()
        pl.inference.calibrate(model, [X], rule="sigma", sigmas=3.0)
        exact = X @ model.weight.detach().T + model.bias.detach()
        error = (model(X) - exact).norm() / exact.norm()
        pl.drift(pl.program(model), "1 h")
        assert 0.001 < error < 0.5
        assert torch.isfinite(model(X)).all()
