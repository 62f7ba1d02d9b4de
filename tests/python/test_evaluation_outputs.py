"""Evaluations of models with unusual outputs and inputs are the loop of single realisations."""

from __future__ import annotations

import warnings
from collections import OrderedDict, namedtuple
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pulsora as pl

torch = pytest.importorskip("torch")

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TIMES, NUMBERS = [1.0, 1e5], 2
X = torch.randn(37, 12, generator=torch.Generator().manual_seed(1))
Y = torch.arange(37) % 5
Named = namedtuple("Named", ["logits", "sums"])  # noqa: PYI024 - as users write them


class Net(torch.nn.Module):
    """Two layers, whose outputs `ending` puts together."""

    def __init__(self, ending: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a = torch.nn.Linear(12, 16)
        self.b = torch.nn.Linear(16, 5)
        self.ending = ending

    def forward(self, x: torch.Tensor, by: torch.Tensor | float = 1.0) -> Any:  # noqa: ANN401
        """Gives logits and hidden values to `ending`."""
        h = torch.relu(self.a(x))
        return self.ending(self.b(h) / by, h)


class Recurrent(torch.nn.Module):
    """An LSTM that returns its state as well, [layers, batch, 8]."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lstm = torch.nn.LSTM(6, 8, layers, batch_first=True)

    def forward(self, x: torch.Tensor) -> Any:  # noqa: ANN401
        """Gives the last outputs and the state."""
        y, state = self.lstm(x.unflatten(1, (2, 6)))
        return y[:, -1], state


def analog(net: torch.nn.Module, config: Any = None) -> Any:  # noqa: ANN401 - its layers
    return pl.convert_to_analog(net, config or pl.InferenceConfig(), seed=1).eval()


def looped(model: Any, x: Any, metric: Callable[..., torch.Tensor]) -> np.ndarray:  # noqa: ANN401
    values = np.empty((len(TIMES), NUMBERS))
    for (row, time), number in ((each, n) for each in enumerate(TIMES) for n in range(NUMBERS)):
        pl.drift(pl.program(model, number), time)
        with torch.no_grad():
            y = model(**x) if isinstance(x, dict) else model(x)
            values[row, number] = metric(y, Y).double().mean()
    return values


def correct(logits: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return logits.softmax(-1).gather(1, wanted[:, None])[:, 0]


@pytest.mark.parametrize(
    ("net", "metric"),
    [
        (Net(lambda y, h: (y, h.mean(0))), lambda o, t: o[1].max().expand(len(t))),
        (Net(lambda y, _: (y, y.pow(2).mean())), lambda o, t: correct(o[0], t)),
        (Net(lambda y, _: (y, None, 3)), lambda o, t: correct(o[0], t)),
        (Net(lambda y, _: {"logits": y, "loss": y.mean()}), lambda o, t: correct(o["logits"], t)),
        (Net(lambda y, _: y @ y.T), lambda o, _: o.softmax(-1).diagonal()),
        (Recurrent(4), lambda o, t: o[1][0].pow(2).mean((0, 2))[: len(t)]),
        (Recurrent(1), lambda o, t: correct(o[0], t)),
    ],
)
def test_outputs_without_rows_of_samples_are_read_one_realisation_at_a_time(
    net: torch.nn.Module, metric: Callable[..., torch.Tensor]
) -> None:
    model = analog(net)
    with pytest.warns(UserWarning, match="read one realisation at a time; leave it out") as found:
        report = pl.inference.evaluate(
            model, [(X, Y)], metric=metric, times=TIMES, programmings=NUMBERS
        )
    assert found[0].filename == __file__
    assert np.array_equal(report.values, looped(model, X, metric))


@pytest.mark.parametrize(
    ("ending", "x", "metric"),
    [
        (lambda y, h: Named(y, h.sum(1)), X, lambda o, t: correct(o.logits, t)),
        (lambda y, h: {0: y, 1: [h, None]}, X, lambda o, t: correct(o[0], t)),
        (lambda y, h: OrderedDict({0: y, 1: h}), X, lambda o, t: correct(o[0], t)),
        (lambda y, _: y, {"x": X, "by": torch.tensor(2.0)}, correct),
        (lambda y, _: y, X, lambda o, _: (o[:, 0] - o[:, 0].mean()).abs()),
    ],
)
def test_structures_are_folded(
    ending: Callable[..., Any],
    x: Any,  # noqa: ANN401
    metric: Callable[..., torch.Tensor],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pulsora.inference.folding._ROWS_ON_CPU", 20)  # batches are cut
    model = analog(Net(ending))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = pl.inference.evaluate(
            model, [(x, Y)], metric=metric, times=TIMES, programmings=NUMBERS
        )
    # A mean over pieces adds in another order than one over the batch.
    assert np.allclose(report.values, looped(model, x, metric), rtol=1e-12, atol=0.0)


def test_a_bank_of_adapters_whose_layers_have_other_rows_than_the_batch() -> None:
    class Flat(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.a = torch.nn.Linear(4, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.a(x.reshape(-1, 4))[:37]

    model = pl.peft.add_adapters(
        Flat(), "analog_base_digital_adapter", rank=2, adapters=2, seed=1,
        base_config=pl.InferenceConfig(), gate=lambda *_: pl.nn.AgeGate([1.0, 1e5]),
    ).eval()  # fmt: skip
    with pytest.warns(UserWarning, match=r"a\.gate refuses batches"):
        report = pl.inference.evaluate(
            model, [(X, Y)], metric=correct, times=TIMES, programmings=NUMBERS
        )
    pl.inference.select_age(model, 1e5)

    def fails(*_: object) -> torch.Tensor:
        raise ZeroDivisionError

    with pytest.warns(UserWarning, match="refuses batches"), pytest.raises(ZeroDivisionError):
        pl.inference.evaluate(model, [(X, Y)], metric=fails, times=TIMES)
    assert [int(gate.task) for gate in model.modules() if isinstance(gate, pl.nn.AgeGate)] == [1]
    for row, time in enumerate(TIMES):
        pl.inference.select_age(model, time)
        assert np.array_equal(report.values[row], looped(model, X, correct)[row])


def test_an_error_leaves_arrays_with_a_retention_as_old_as_they_were() -> None:
    pulsed = pl.SingleConfig(retention=pl.noise_models.Exponential())
    net = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.Linear(16, 5))
    model = analog(net, lambda name, _: pulsed if name == "0" else pl.InferenceConfig())
    pl.drift(pl.program(model, 4), 777.0, redraw=3)
    with pytest.raises(ZeroDivisionError):
        pl.inference.evaluate(model, [(X, Y)], metric=lambda *_: 1 / 0, times=TIMES)
    (age,) = next(iter(model[0].tiles)).retention.ages.values()
    assert (age.time, age.redraw) == (777.0, 3)
    assert pl.inference.programmed_tiles(model)[0].programming.point.time == 777.0


def test_numbers_may_be_arrays_and_reports_of_them_are_files(tmp_path: Path) -> None:
    model = analog(Net(lambda y, _: y))
    settings = {"metric": correct, "times": np.array([1, 10])}
    wanted = pl.inference.evaluate(model, [(X, Y)], programmings=3, **settings)
    for numbers in (np.arange(3), torch.arange(3), torch.tensor(3), np.int64(3)):
        report = pl.inference.evaluate(model, [(X, Y)], programmings=numbers, **settings)
        report.save(tmp_path / "report.json")
        assert np.array_equal(
            pl.inference.InferenceReport.load(tmp_path / "report.json").values, wanted.values
        )
    with pytest.raises(TypeError, match="unsupported operand"):
        _ = wanted - 0.5


@pytest.mark.parametrize(
    ("metric", "text"),
    [
        (lambda o, _: o.argmax(-1).numpy(), "the metric gave ndarray; it must give a tensor"),
        (lambda o, _: o.mean(), "the metric gave Tensor of no dimension"),
        (lambda o, _: o[:0, 0], "the metric gave 0 numbers for 37 samples"),
    ],
)
def test_bad_metrics_are_refused(metric: Callable[..., Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        pl.inference.evaluate(
            analog(Net(lambda y, _: y)), [(X, Y)], metric=metric, times=TIMES, programmings=1
        )


def test_a_single_class_has_no_accuracy() -> None:
    model = analog(torch.nn.Linear(12, 1))
    with pytest.raises(ValueError, match=r"a single class, .* give a metric of your own"):
        pl.inference.evaluate(model, [(X, Y[:, None] * 0)], times=TIMES, programmings=1)


def test_inputs_of_another_type_are_errors_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TypeError, match="float64"):
            pl.inference.evaluate(analog(Net(lambda y, _: y)), [(X.double(), Y)], times=TIMES)


def test_a_weight_of_another_shape_is_refused() -> None:
    layer = pl.nn.AnalogLinear(12, 16, config=pl.InferenceConfig(), seed=1)
    before = layer.weight
    with pytest.raises(ValueError, match=r"weight has shape \[12, 16\].*layer \[16, 12\]"):
        layer.weight = torch.nn.Parameter(torch.zeros(12, 16))
    with pytest.raises(TypeError, match=r"weight is of type Tensor; give a torch.nn.Parameter"):
        layer.weight = torch.zeros(16, 12)
    assert layer.weight is before
    other = torch.nn.Parameter(torch.zeros(16, 12))
    layer.weight = other
    assert layer.weight is other


def test_batches_and_settings_that_are_no_such_things_are_refused() -> None:
    model = analog(Net(lambda y, _: y))
    for batch, text in (([], r"batch is \[\]; give one"), ([(X, Y)], "a list of 1 batches")):
        with pytest.raises(ValueError, match=text):
            pl.inference.explain(model, batch)
    with pytest.raises(TypeError, match="optimizer is the class SGD; give an optimiser"):
        pl.inference.readapt(model, torch.optim.SGD, lambda *_: 0.0, [(X, Y)], [1.0])
    assert pl.nn.AgeGate(["1 h", "1 day"]).ages.tolist() == [3600.0, 86400.0]
    with pytest.raises(pl.ConfigError, match=r"ages = 3600\.0: give a list of times"):
        pl.nn.AgeGate(3600.0)
    per_output = analog(Net(lambda y, _: y), pl.InferenceConfig(scaling_per="output"))
    remedies = {each.remedy for each in pl.inference.explain(per_output, X).sources}
    assert "wider inputs (calibrate()), or a smaller forward.out_noise" in remedies
