"""Batches and settings of inference that are refused before anything has changed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import pulsora as pl

torch = pytest.importorskip("torch")

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

INPUT = pl.IOParameters(noise_management="input_range")
X = torch.ones(4, 6)
BATCHES = [(X, torch.zeros(4, dtype=torch.int64))]


def model_of(**settings: Any) -> Any:  # noqa: ANN401 - layers by number
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
    return pl.convert_to_analog(net, pl.InferenceConfig(**settings), seed=1).eval()


def evaluated(**settings: Any) -> Callable[[Any], object]:
    return partial(pl.inference.evaluate, **{"batches": BATCHES} | settings)


CHECKED_FIRST: list[tuple[str, Callable[[Any], object], str]] = [
    (f"evaluate, {name} of type {type(value).__name__}", evaluated(**{name: value}), message)
    for name, value, message in (
        ("programmings", [0, 1.5], "programmings has 1.5: give whole numbers from 0 to 2^47 - 1"),
        ("programmings", [2**47], "give whole numbers from 0 to 2^47 - 1"),
        ("programmings", True, "programmings = True: give a whole number, or a list"),
        ("programmings", "12", "programmings = '12': give a whole number, or a list"),
        ("programmings", 0, "programmings = 0: give at least one time and one programming"),
        ("chips", 1.5, "chips = 1.5: give at least one chip, as a whole number"),
        ("chips", True, "chips = True: give at least one chip"),
        ("memory", "0.5", "memory = '0.5': give a share above 0 and at most 1"),
        ("metric", 5, "metric = 5: write 'accuracy', or give a function"),
        ("prepare", 5, "prepare = 5: give a function of the model, or None"),
        ("times", "1 day", "times = '1 day': give a list of times, such as [1.0, '1 day']"),
        ("times", 5.0, "times = 5.0: give a list of times"),
        ("times", [None], "time is None; write a number of seconds, or a text such as"),
        ("times", [True], "time is True; write a number of seconds"),
        ("batches", 5, "batches = 5 is of type int; give a list of pairs (input, target)"),
        ("batches", X, "batches is of type Tensor; give a list of pairs (input, target)"),
        ("batches", iter(BATCHES), "which can be gone through once; give list(batches)"),
        ("batches", [X], "batches has an entry of type Tensor; give pairs (input, target)"),
        ("batches", [(X, X, X)], "batches has an entry of type tuple of 3; give pairs"),
    )
] + [
    (
        f"{call.__name__} of type {type(given).__name__}",
        lambda m, call=call, given=given: call(m, given),
        message,
    )
    for call in (
        pl.inference.calibrate, pl.inference.calibrate_outputs, pl.inference.fit_affine
    )
    for given, message in (
        (5, "batches = 5 is of type int; give a list of inputs, such as [x], or a tensor"),
        ("x", "batches is of type str; give a list of inputs"),
        ({"x": X}, "batches is of type dict; give a list of inputs"),
        ([()], "batches[0] = (): give an input, or a pair (input, target)"),
    )
] + [
    ("calibrate, rule", lambda m: pl.inference.calibrate(m, [X], rule=[]), "rule = []: write"),
    ("calibrate, sigmas", lambda m: pl.inference.calibrate(m, [X], sigmas="3"), "sigmas = '3': g"),
    (
        "calibrate, quantile", lambda m: pl.inference.calibrate(m, [X], quantile="1"),
        "quantile = '1': give a share above 0 and at most 1",
    ),
    (
        "calibrate with NaN", lambda m: pl.inference.calibrate(m, [X, X * float("nan")]),
        "layer '0' got inputs that are not finite; look at the batches",
    ),
    (
        "calibrate with infinity", lambda m: pl.inference.calibrate(m, [X, -X / 0.0], quantile=0.5),
        "layer '0' got inputs that are not finite; look at the batches",
    ),
    (
        "calibrate_outputs with NaN",
        lambda m: pl.inference.calibrate_outputs(m, [X, X * float("nan")]),
        "layer '0' got inputs that are not finite; look at the batches",
    ),
    ("fit_affine of nothing", lambda m: pl.inference.fit_affine(m, [X[:0]]), "gave no sample"),
    ("program", lambda m: pl.program(m, -1), "number is -1; give a whole number from 0 to 2^47"),
    ("text", lambda m: pl.program(m, "1"), "number is '1'; give a whole number from 0 to 2^47 - 1"),
    ("chip", lambda m: pl.program(m, 1, chip=2**32), "chip is 4294967296; give a whole number"),
    ("redraw", lambda m: pl.drift(m, 1.0, redraw=0.5), "redraw is 0.5; give a whole number from"),
    ("no time", lambda m: pl.drift(m, None), "time is None; write a number of seconds"),
]  # fmt: skip


@pytest.mark.parametrize("call", CHECKED_FIRST, ids=[row[0] for row in CHECKED_FIRST])
def test_what_is_checked_first_changes_nothing_in_a_programmed_model(
    call: tuple[str, Callable[[Any], object], str],
) -> None:
    model = pl.drift(pl.program(model_of(forward=INPUT), 5, chip=2), 60.0)
    for layer in (model[0], model[2]):
        layer.input_range.data.fill_(2.0)
    pl.inference.fit_affine(model, [torch.randn(9, 6)])
    ranges = [layer.held.affine for layer in (model[0], model[2])]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises((ValueError, TypeError)) as refusal:
        call[1](model)
    assert call[2] in str(refusal.value)
    after = model.state_dict()
    changed = [name for name, value in before.items() if not torch.equal(value, after[name])]
    reads = "0.tiles.0_0.values", "2.tiles.0_0.values"  # count the reads that fit_affine makes
    assert not set(changed) - (set(reads) if "fit_affine" in call[0] else set())
    assert [layer.held.affine for layer in (model[0], model[2])] == ranges
    for tile in pl.inference.programmed_tiles(model):
        assert tile.programming.point == (5, 60.0, 0, 2)


def test_targets_of_another_shape_are_refused() -> None:
    batches = [(BATCHES[0][0], BATCHES[0][1][:, None])]
    message = r"targets have shape \[4, 1\], and the classes of the outputs shape \[4\]; give"
    with pytest.raises(ValueError, match=message):
        pl.inference.evaluate(model_of(), batches, times=[1.0])


def test_a_tensor_is_one_batch_of_a_calibration() -> None:
    x = torch.randn(7, 6)
    calls = pl.inference.calibrate, pl.inference.calibrate_outputs
    sizes: list[int] = []
    for call in calls:
        model = model_of()
        model[0].register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
        assert call(model, x) == call(model_of(), [x])
    assert sizes == [7, 7]


def test_an_evaluation_that_fails_leaves_the_model_as_it_was_programmed() -> None:
    def fails(*_: object) -> torch.Tensor:
        raise RuntimeError("no metric")

    x = torch.randn(8, 6)
    for prepare in (None, lambda m: pl.inference.fit_affine(m, x)):
        settings: Any = {"times": [1.0, 60.0], "programmings": 3, "chips": 2, "prepare": prepare}
        model, other = (pl.drift(pl.program(model_of(), 5, chip=1), 90.0) for _ in range(2))
        affine, _ = (pl.inference.fit_affine(each, x) for each in (model, other))
        with pytest.raises(RuntimeError, match="no metric"):
            pl.inference.evaluate(model, [(x, x)], metric=fails, **settings)
        for tile in pl.inference.programmed_tiles(model):
            assert tile.programming.point == (5, 90.0, 0, 1)
        assert model[0].held.points == 1
        assert torch.equal(model[2].held.affine, affine["2"])
        assert torch.equal(model(x), other(x))  # with the noise of the next read
    plain = model_of()
    with pytest.raises(RuntimeError, match="no metric"):
        pl.inference.evaluate(plain, [(x, x)], metric=fails)
    assert not plain[0].held.is_programmed


@pytest.mark.parametrize("load", ["load_state_dict", "pulsora.load"])
def test_a_loaded_state_is_read_without_a_correction_of_before(load: str, tmp_path: Path) -> None:
    x = torch.randn(8, 6)
    saved = pl.program(model_of(), 2)
    model = pl.drift(pl.program(model_of(), 1), 1e6)
    pl.inference.fit_affine(model, x)
    if load == "load_state_dict":
        model.load_state_dict(saved.state_dict())
    else:
        pl.save(saved, tmp_path)
        pl.load(model, tmp_path)
    assert torch.equal(model(x), saved(x))


SWEEPS: dict[str, tuple[Any, str]] = {
    "a number": (5, r"over is of type int; give a dict of a setting and its values"),
    "one value": ({"clip_sigma": 5.0}, r"over\['clip_sigma'\] = 5\.0: give a list of values"),
    "a text": ({"clip": "none"}, r"over\['clip'\] = 'none': give a list of values"),
    "lists": (
        {"modifier_times": [[1.0, 2.0]]},
        "has a value of type list, which cannot be the key",
    ),
    "models": (
        {"noise_model": [pl.noise_models.PCMLike()]},
        r"over\['noise_model'\] has a value of type PCMLike, .*, such as 'noise_model\.g_max'",
    ),
}


@pytest.mark.parametrize(("over", "message"), SWEEPS.values(), ids=SWEEPS)
def test_values_of_a_sweep_can_be_keys(over: Any, message: str) -> None:  # noqa: ANN401 - wrong
    evaluations: list[int] = []
    settings: Any = {"progress": lambda done, _: evaluations.append(done), "times": [1.0]}
    with pytest.raises(TypeError, match=message):
        pl.inference.sweep(model_of(), BATCHES, over, **settings)
    assert not evaluations
    given = {"modifier_times": ((1.0, 2.0), (1.0, 3.0))}
    assert len(pl.inference.sweep(model_of(), BATCHES, given, **settings).reports) == 2


def test_batch_norms_keep_their_statistics_after_an_error() -> None:
    model = torch.nn.Sequential(model_of()[0], torch.nn.BatchNorm1d(5)).eval()
    norm: Any = model[1]
    norm.running_mean.fill_(3.0)
    norm.num_batches_tracked.fill_(7)
    before = {name: each.clone() for name, each in norm.named_buffers()}
    x = torch.randn(9, 6)
    for batches, message in (
        ([x, x[:, :3]], "takes 6 features"),
        ([x[:0]], "batches gave no sample"),
        ([x[:1]], "more than 1 value per channel"),
    ):
        with pytest.raises(ValueError, match=message):
            pl.inference.adapt_batch_norm(model, batches)
        assert all(torch.equal(each, before[name]) for name, each in norm.named_buffers())
        assert (norm.momentum, norm.training) == (0.1, False)
    means = []
    for batches in ([x, x[:0]], [x]):
        fresh: Any = torch.nn.Sequential(model_of()[0], torch.nn.BatchNorm1d(5)).eval()
        assert pl.inference.adapt_batch_norm(fresh, batches) == 1
        means.append(fresh[1].running_mean)
    assert torch.equal(*means)


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, '{"times": ["x"]}'])
def test_a_file_without_a_report_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"report\.json' holds no report .*; give a file of repo"):
        pl.inference.InferenceReport.load(path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 1.5}, r"steps = 1\.5: give one of each at least, steps as a whole number"),
        ({"steps": True}, "steps = True: give one of each at least"),
        ({"times": "1 day"}, "times = '1 day': give a list of times"),
        ({"loss": 5}, "loss = 5: give a function of outputs and targets"),
        ({"metric": 5}, "metric = 5: give a function of outputs and targets, or None"),
        ({"optimizer": 5}, r"optimizer is of type int; give one of torch or pulsora\.optim"),
        ({"batches": 5}, "batches = 5 is of type int; give a list of pairs"),
        ({"test": iter(BATCHES)}, "which can be gone through once"),
    ],
)
def test_readaptation_checks_first(settings: dict[str, Any], message: str) -> None:
    model = pl.program(model_of().requires_grad_(False), 5)  # noqa: FBT003 - torch's own
    bias = model[2].bias.requires_grad_()
    given: Any = {
        "optimizer": torch.optim.SGD([bias], lr=0.1),
        "loss": torch.nn.functional.cross_entropy,
        "batches": BATCHES,
        "times": [1.0],
        "steps": 1,
    }
    with pytest.raises((ValueError, TypeError), match=message):
        pl.inference.readapt(model, **given | settings)
    assert not model.training
    assert model[0].tiles is model[0].held.array
    for tile in pl.inference.programmed_tiles(model):
        assert tile.programming.point == (5, 0.0, 0, 0)


def test_a_metric_that_is_nan_names_programming_and_time() -> None:
    model = model_of()
    x = torch.linspace(-1, 1, 18).reshape(3, 6)
    pl.drift(pl.program(model, 4), 10.0)
    before = model(x)
    calls = []

    def metric(y: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return y[:, 0] * (float("nan") if len(calls) == 4 else 1.0)

    with pytest.raises(
        ValueError, match=r"gave nan for programming 7 of chip 0 at 3600 s; leave .*program\(model"
    ):
        pl.inference.evaluate(
            model, [(x, x)], metric=metric, times=["1 s", "1 h"], programmings=[3, 7]
        )
    pl.drift(model, 10.0)
    assert torch.equal(model(x), before)


def test_a_metric_may_have_as_many_numbers_for_each_sample() -> None:
    model = model_of()
    x = torch.linspace(-1, 1, 18).reshape(3, 6)
    settings = {"times": ["1 s", "1 h"], "programmings": 2}
    flat = pl.inference.evaluate(model, [(x, x)], metric=lambda y, _: y.flatten(), **settings)
    mean = pl.inference.evaluate(model, [(x, x)], metric=lambda y, _: y.mean(1), **settings)
    assert abs(flat.values - mean.values).max() < 1e-6
