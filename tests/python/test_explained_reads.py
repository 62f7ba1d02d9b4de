"""Errors by source for every kind of read, with gains of ADCs and corrections of outputs."""

from __future__ import annotations

from typing import Any

import pytest

import pulsora as pl

torch = pytest.importorskip("torch")

X = torch.randn(128, 20, generator=torch.Generator().manual_seed(1))
LEVELS = {"inp_res": 1 / 126, "bound_management": "none"}
SPLIT = {"mv_type": "pos_neg_separate"}
READS: dict[str, dict[str, Any]] = {
    "one pass": {},
    "two passes": {**SPLIT, "w_read_asymmetry_dtod": 0.1},
    "two passes, digital sum": {"mv_type": "pos_neg_separate_digital_sum"},
    "bits": {"mv_type": "bit_serial", **LEVELS},
    "two bits at once": {"mv_type": "bit_serial", "input_slice_bits": 2, **LEVELS},
    "bits, analog sum": {"mv_type": "bit_serial_analog_sum", **LEVELS},
    "sums within the ADC": {"noise_management": "abs_max_np_sum"},
    "16 bits": {"weight_bits": 16},
    "24 bits": {"weight_bits": 24},
    "bent": {"out_nonlinearity": 0.5, "slope_calibration": 0.2},
    "solved wires": {"wires": "solved"},
}
SLICES = {"cell": "slices", "weight_bits": 8, "slice_bits": 2, "slice_converters": "apart"}


def model_of(forward: dict[str, Any], **settings: Any) -> Any:  # noqa: ANN401
    """Returns a layer of two tiles."""
    torch.manual_seed(0)
    given = {"compensation_read": "exact"} if forward.get("wires") == "solved" else {}
    config = pl.InferenceConfig(forward=pl.IOParameters(**forward), **given, **settings)
    return pl.convert_to_analog(torch.nn.Linear(20, 8), config, max_input_size=12, seed=3).eval()


def error_of_reads(model: Any) -> float:  # noqa: ANN401
    """The relative error of the outputs that the model reads now."""
    with torch.no_grad():
        exact = X @ model.weight.T
        return float((model(X) - model.bias - exact).norm() / exact.norm())


@pytest.mark.parametrize("cells", [{}, SLICES], ids=["pair", "slices"])
@pytest.mark.parametrize("forward", READS.values(), ids=READS)
def test_totals_are_the_errors_of_reads(forward: dict[str, Any], cells: dict[str, Any]) -> None:
    model = model_of(forward, **cells)
    report = pl.inference.explain(model, X, time="1 h", programming=4)
    pl.drift(pl.program(model, 4), "1 h")
    assert report.totals[""] == pytest.approx(error_of_reads(model), rel=1e-5)
    sources = report.of_layer("")
    assert {"programming", "drift", "read noise", "input converter", "output converter"} <= set(
        sources
    )
    assert max(sources.values()) < 2.0 * report.totals[""]


def test_each_effect_of_a_read_is_a_source_of_its_own() -> None:
    plain = pl.inference.explain(model_of({}), X).of_layer("")
    assert "read asymmetry" not in plain
    split = pl.inference.explain(model_of({**SPLIT, "w_read_asymmetry_dtod": 0.3}), X).of_layer("")
    assert split["read asymmetry"] > 0.05
    bent = pl.inference.explain(model_of({"out_nonlinearity": 5.0}), X).of_layer("")
    assert bent["output converter"] > 2.0 * plain["output converter"]
    # Levels of the DAC do not count again in the sources that need them.
    coarse = {"mv_type": "bit_serial", "inp_res": 1 / 6, "bound_management": "none"}
    found = pl.inference.explain(model_of(coarse | {"out_res": 1e-5, "out_noise": 1e-5}), X)
    sources = found.of_layer("")
    assert sources["input converter"] > 0.1
    assert sources["output converter"] < 0.02
    assert sources.get("output noise", 0.0) < 1e-3


@pytest.mark.parametrize("per", ["layer", "output"])
def test_gains_of_the_model_are_those_of_the_explanation(per: Any) -> None:  # noqa: ANN401
    model = model_of({}, **SLICES)
    pl.inference.calibrate_outputs(model, X, per=per)
    report = pl.inference.explain(model, X, time=60.0, programming=2)
    pl.drift(pl.program(model, 2), 60.0)
    assert report.totals[""] == pytest.approx(error_of_reads(model), rel=1e-5)


def test_rows_of_all_places_and_reads_are_looked_at() -> None:
    # 512 images with a blank border, whose first pixel is 0; reads of a recurrent layer begin at 0.
    x = torch.zeros(512, 1, 12, 12)
    x[:, :, 3:9, 3:9] = torch.rand(512, 1, 6, 6, generator=torch.Generator().manual_seed(1))
    conv = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3, padding=1, bias=False))
    model: Any = pl.convert_to_analog(conv, pl.InferenceConfig(), seed=1).eval()
    total = pl.inference.explain(model, x, time="1 year").totals["0"]
    pl.drift(pl.program(model), "1 year")
    with torch.no_grad():
        exact = torch.nn.functional.conv2d(x, model[0].weight, padding=1)
        error = float((model(x) - exact).norm() / exact.norm())
    assert total == pytest.approx(error, rel=0.1)
    lstm = pl.convert_to_analog(torch.nn.LSTM(8, 8), pl.InferenceConfig(), seed=1).eval()
    totals = pl.inference.explain(lstm, torch.randn(10, 16, 8), time="1 year").totals
    assert totals["hh_l0"] > 0.05
    with pytest.raises(ValueError, match="got no inputs"):
        pl.inference.explain(model, x[:0])


def test_corrections_count_at_their_point_alone() -> None:
    model = model_of({}, compensation="none")
    point: dict[str, Any] = {"time": "1 year", "programming": 2, "chip": 1}
    before = pl.inference.explain(model, X, **point).totals[""]
    pl.drift(pl.program(model, 2, chip=1), "1 year")
    pl.inference.fit_affine(model, X)
    assert pl.inference.explain(model, X, **point).totals[""] < 0.5 * before
    other = point | {"time": "1 day"}
    with_it = pl.inference.explain(model, X, **other).totals[""]
    pl.drift(model, "1 year")
    assert pl.inference.explain(model, X, **other).totals[""] == with_it
    assert pl.inference.explain(model, X, **point).totals[""] == before
