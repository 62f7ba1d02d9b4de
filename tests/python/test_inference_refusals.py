"""Bad inputs of programmed arrays: each has its message, and nothing has changed afterwards."""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pulsora as pl
from pulsora import noise_models
from pulsora import state as states

torch = pytest.importorskip("torch")

if TYPE_CHECKING:
    from collections.abc import Callable

INPUT = pl.IOParameters(noise_management="input_range")
BATCHES = [(torch.ones(4, 6), torch.zeros(4, dtype=torch.int64))]
TABLE: dict[str, Any] = {
    "g": [0.0, 1.0],
    "sigma": [0.3, 0.9],
    "nu_mean": [0.05, 0.05],
    "nu_std": [0.01, 0.01],
    "read_noise": [0.0, 0.0],
}


def programmed_tile(**settings: Any) -> pl.Tile:
    tile = pl.Tile(3, 4, pl.InferenceConfig(**settings), seed=2)
    tile.weights = np.random.default_rng(0).uniform(-0.3, 0.3, (3, 4)).astype(np.float32)
    tile.programming.program(5)
    tile.programming.drift(60.0)
    return tile


def model_of(**settings: Any) -> torch.nn.Module:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
    return pl.convert_to_analog(net, pl.InferenceConfig(**settings), seed=1).eval()


def float_metric(*_: object) -> Any:  # noqa: ANN401 - what a metric must not give
    return 1.0


TILES: list[tuple[str, dict[str, Any], Callable[[Any], object], str]] = [
    ("negative time", {}, lambda a: a.drift(-1.0), "time is -1; give seconds since the end"),
    ("NaN", {}, lambda a: a.drift(float("nan")), "time is nan; give seconds since the end"),
    ("infinity", {}, lambda a: a.drift(float("inf")), "time is inf; give seconds since the end"),
    (
        "beyond a table", {"noise_model": noise_models.ReRamWan2022()}, lambda a: a.drift(1e9),
        "time is 1e+09 s, but ReRamWan2022 has numbers up to 172800 s; choose an earlier time",
    ),
    ("negative p", {}, lambda a: a.program(-1), "number is -1; it must be >= 0"),
    ("fractional p", {}, lambda a: a.program(1.5), "number is 1.5; write a whole number"),
    ("large p", {}, lambda a: a.program(2**47), "number is 140737488355328; it must be >= 0"),
    ("negative chip", {}, lambda a: a.program(0, chip=-1), "chip is -1; it must be >= 0"),
    ("fractional redraw", {}, lambda a: a.drift(1.0, redraw=0.5), "redraw is 0.5; write a whole"),
    (
        "measured conductances of another shape", {},
        lambda a: a.program_measured(np.ones((3, 4, 1), np.float32)),
        "conductances have shape [3, 4, 1]; give [3, 4, 2]: outputs, inputs, devices of a cell",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "call", "message"), [row[1:] for row in TILES], ids=[row[0] for row in TILES]
)
def test_a_refused_call_changes_nothing_in_a_tile(
    settings: dict[str, Any], call: Callable[[Any], object], message: str
) -> None:
    tile = programmed_tile(**settings)
    before = states.dumps(tile.state())
    with pytest.raises((pl.ConfigError, pl.InputError)) as refusal:
        call(tile.programming)
    assert message in str(refusal.value)
    assert states.dumps(tile.state()) == before
    assert tile.programming.point == (5, 60.0, 0, 0)


CONFIGURATIONS: list[tuple[str, Callable[[], object], str]] = [
    (
        "g_min above g_max", lambda: noise_models.PCMLike(g_min=30.0),
        "PCMLike.g_min is 30 and PCMLike.g_max is 25; the smallest conductance must be below",
    ),
    (
        "a tiny g_max", lambda: noise_models.PCMLike(g_max=1e-10),
        "PCMLike.g_max is 1e-10; it must be >= 1e-09",
    ),
    (
        "g_min at g_max", lambda: noise_models.PCMLike(g_min=25.0),
        "PCMLike.g_min is 25 and PCMLike.g_max is 25; the smallest conductance must be below",
    ),
    (
        "a rest above g_max", lambda: noise_models.Exponential(rest=40.0),
        "Exponential.rest is 40 and Exponential.g_max is 25; cells approach a conductance that",
    ),
    (
        "a negative sigma of a polynomial", lambda: noise_models.PCMLike(prog_coeff=[-1.0, 0.5]),
        "prog_coeff gives the standard deviation -1 at the conductance 0 g_max; it must not be",
    ),
    (
        "a negative sigma of a table",
        lambda: noise_models.PowerLaw(**TABLE | {"sigma": [-0.3, 0.9]}),
        "PowerLaw.sigma[0] is -0.3; it must be >= 0",
    ),
    (
        "an unknown acceptance range", lambda: noise_models.ReRamCMO(acceptance_range=0.5),
        "ReRamCMO.acceptance_range is 0.5, for which there are no numbers; choose 0.2 or 2",
    ),
    (
        "nodes that descend", lambda: noise_models.PowerLaw(**TABLE | {"g": [1.0, 0.0]}),
        "PowerLaw.g[1] is 0, after 1; nodes must ascend",
    ),
    (
        "a table with too few entries", lambda: noise_models.PowerLaw(**TABLE | {"sigma": [0.3]}),
        "PowerLaw.sigma has 1 entries; give 2, one for each place of the table",
    ),
    (
        "no noise model", lambda: pl.InferenceConfig(noise_model=None, modifier="noise_model"),
        "InferenceConfig.noise_model is None; write a noise model such as PCMLike(g_max=25)",
    ),
    (
        "all weights dropped", lambda: pl.InferenceConfig(drop_connect=1.0),
        "InferenceConfig.drop_connect is 1; it must be >= 0 and < 1",
    ),
    (
        "modifier times beyond a table",
        lambda: pl.InferenceConfig(
            noise_model=noise_models.ReRamWan2022(), modifier="noise_model"
        ),
        "modifier_times[1] is 31536000 s, but InferenceConfig.noise_model has numbers up to 172800",
    ),
    (
        "modifier times in the wrong order",
        lambda: pl.InferenceConfig(modifier_times=[10.0, 1.0]),
        "modifier_times must be two times, the smaller one first",
    ),
    (
        "a read window below two reads",
        lambda: pl.InferenceConfig(
            noise_model=noise_models.PCMLike(t_read=1.0), read_window=1.0
        ),
        "read_window is 1 s, shorter than two reads of InferenceConfig.noise_model; give 2 s",
    ),
    (
        "a read window without 1/f noise",
        lambda: pl.InferenceConfig(noise_model=noise_models.ReRamWan2022(), read_window=1.0),
        "noise_model, ReRamWan2022, has no 1/f noise; leave it at 0",
    ),
    (
        "significance of one pair", lambda: pl.InferenceConfig(significance=[1.0, 4.0]),
        "significance has 2 entries, and InferenceConfig.cell has one pair at most; choose cell=",
    ),
    (
        "more stuck devices than there are",
        lambda: pl.InferenceConfig(stuck_low=0.6, stuck_high=0.6),
        "stuck_low and InferenceConfig.stuck_high are",
    ),
    (
        "drift of arrays without cells",
        lambda: pl.IdealConfig(retention="PCMLike"),
        "has no parameter 'retention'",
    ),
    (
        "a pulsed tile without a range",
        lambda: pl.Tile(2, 3, pl.SingleConfig(forward=INPUT)),
        "forward.noise_management is 'input_range', and nm_thres, the range, is 0; set nm_thres",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "message"),
    [row[1:] for row in CONFIGURATIONS],
    ids=[row[0] for row in CONFIGURATIONS],
)
def test_bad_configurations_are_refused_when_they_are_made(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(pl.ConfigError) as refusal:
        make()
    assert message in str(refusal.value)


def test_limits_follow_the_noise_model_that_is_given() -> None:
    fast = noise_models.PCMLike(t_read=1e-9)
    config = pl.InferenceConfig(noise_model=fast, read_window=1e-8)
    assert config.read_window == pytest.approx(1e-8)
    assert config.noise_model is fast
    with pytest.raises(pl.ConfigError, match="has no 1/f noise"):
        config.noise_model = noise_models.ReRamWan2022()
    assert config.noise_model is fast
    with pytest.raises(pl.ConfigError, match="shorter than two reads"):
        config.replace(noise_model=noise_models.PCMLike())


MODELS: list[tuple[str, Callable[[torch.nn.Module], object], str]] = [
    (
        "evaluation in training mode", lambda m: pl.inference.evaluate(m.train(), BATCHES),
        "the model is in training mode, and would draw other noise; call eval()",
    ),
    (
        "a metric without samples",
        lambda m: pl.inference.evaluate(m, BATCHES, metric=lambda y, _: y.mean()),
        "it must give a tensor with one number for each sample (a loss: reduction='none')",
    ),
    (
        "a metric that is a number",
        lambda m: pl.inference.evaluate(m, BATCHES, metric=float_metric),
        "the metric gave float of no dimension",
    ),
    (
        "a metric of other samples",
        lambda m: pl.inference.evaluate(m, BATCHES, metric=lambda *_: torch.ones(3)),
        "the metric gave 3 numbers for 4 samples",
    ),
    (
        "a metric of several numbers",
        lambda m: pl.inference.evaluate(m, BATCHES, metric=lambda y, _: y),
        "the metric gave a tensor of shape [4, 3]; it must give one number for each sample: take",
    ),
    (
        "a metric of complex numbers",
        lambda m: pl.inference.evaluate(m, BATCHES, metric=lambda y, _: torch.fft.fft(y)[:, 0]),
        "the metric gave complex numbers, torch.complex64; it must give real ones",
    ),
    (
        "a share of a programming",
        lambda m: pl.inference.evaluate(m, BATCHES, programmings=1.5),  # type: ignore[arg-type]
        "programmings = 1.5: give a whole number, or a list of numbers",
    ),
    (
        "calibration without data", lambda m: pl.inference.calibrate(m, []),
        "layer '0' got no input but 0; give batches of data as the model will see them",
    ),
    (
        "calibration with zeros", lambda m: pl.inference.calibrate(m, [torch.zeros(3, 6)]),
        "layer '0' got no input but 0; give batches of data as the model will see them",
    ),
    (
        "drift before programming", lambda m: pl.drift(m, 1.0),
        "program the weights first, by pulsora.program(model)",
    ),
    (
        "a bad time in words", lambda m: pl.drift(m, "1 eon"),
        "time is '1 eon'; write seconds, or a number and one of the units",
    ),
]  # fmt: skip


def configurations(model: torch.nn.Module) -> list[dict[str, Any]]:
    return [each.config.to_dict() for each in (model[0], model[2])]


def points(model: torch.nn.Module) -> list[tuple[Any, bool]]:
    """The point of each tile (programming, time, reading, chip), and whether weights changed."""
    arrays = [tile.programming for tile in pl.inference.programmed_tiles(model)]
    return [(array.point, array.is_stale) for array in arrays]


@pytest.mark.parametrize("is_programmed", [False, True], ids=["weights", "programmed"])
@pytest.mark.parametrize(
    ("call", "message"), [row[1:] for row in MODELS], ids=[row[0] for row in MODELS]
)
def test_refused_calls_change_nothing_in_a_model(
    call: Callable[[torch.nn.Module], object], message: str, is_programmed: bool
) -> None:
    if is_programmed and message.startswith("program the weights first"):
        pytest.skip("a programmed model may drift")
    model = model_of(forward=INPUT)
    pl.inference.calibrate(model, [torch.ones(4, 6)])
    pl.drift(pl.program(model, 3, chip=2), 60.0, redraw=1)
    x = torch.linspace(-1.0, 1.0, 12).reshape(2, 6)
    if is_programmed:
        pl.inference.fit_affine(model, [x])
    else:
        pl.inference.unprogram(model)  # the tiles have the weights, as after a read
    twin = copy.deepcopy(model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    settings, where = configurations(model), points(model)
    assert where == [((3, 60.0, 1, 2) if is_programmed else None, False)] * 2
    with pytest.raises((ValueError, pl.StateError)) as refusal:
        call(model)
    assert message in str(refusal.value)
    after = model.state_dict()
    assert after.keys() == before.keys()
    tiles = {f"{layer}.tiles.0_0.{part}" for layer in "02" for part in ("weights", "values")}
    assert tiles <= after.keys()
    assert [name for name in after if not torch.equal(after[name], before[name])] == []
    assert configurations(model) == settings
    assert points(model) == where
    # Reads see what no state holds, too: corrections of outputs by fit_affine.
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # reads see the weights where nothing is programmed
        assert torch.equal(model.eval()(x), twin(x))


def test_an_input_range_is_asked_for_in_eval() -> None:
    model = model_of(forward=INPUT)
    with pytest.raises(pl.StateError, match=r"has the input range 0; call .*calibrate"):
        model(torch.ones(2, 6))


def test_weights_that_are_not_finite_are_not_programmed() -> None:
    model = model_of()
    with torch.no_grad():
        model[2].weight[1, 2] = float("nan")
    message = r"layer '2'.*weights\[1, 2\] is nan; every value must be finite"
    with pytest.raises(pl.InputError, match=message):
        pl.program(model)
    with pytest.raises(pl.StateError, match="program the weights first"):
        pl.drift(model, 1.0)
    # A layer that was programmed stays so.
    model = pl.drift(pl.program(model_of(), 3, chip=2), 60.0)
    x = torch.linspace(-1.0, 1.0, 12).reshape(2, 6)
    y = model[0](x)
    with torch.no_grad():
        model[2].weight[1, 2] = float("inf")
    with pytest.raises(pl.InputError, match=r"weights\[1, 2\] is inf"):
        pl.program(model, 7)
    assert points(model) == [((3, 60.0, 0, 2), False)] * 2
    assert torch.equal(pl.drift(model[0], 60.0)(x), y)
    with pytest.raises(pl.StateError, match="changed after they were programmed"):
        model(x)


def test_the_warning_about_zeros_comes_before_the_programming() -> None:
    tile = pl.Tile(3, 4, pl.InferenceConfig())
    before = pl.state.dumps(tile.state())
    with pytest.raises(UserWarning, match="all weights are 0"):  # warnings are errors here
        tile.programming.program()
    assert pl.state.dumps(tile.state()) == before
    model = pl.convert_to_analog(
        torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2)), pl.InferenceConfig()
    )
    with torch.no_grad():
        model[0].weight.zero_()
    pl.program(torch.nn.Sequential(model[1]), 1)
    saved = {name: each.clone() for name, each in model.state_dict().items()}
    with pytest.raises(UserWarning, match="1 layer has no weight but 0"):
        pl.program(model)
    assert all(torch.equal(each, saved[name]) for name, each in model.state_dict().items())
    assert model[1].held.is_programmed
    assert not model[0].held.is_programmed


def test_zeros_are_programmed_with_a_warning() -> None:
    tile = pl.Tile(3, 4, pl.InferenceConfig())
    with pytest.warns(UserWarning, match="all weights are 0, and are programmed as zeros"):
        tile.programming.program()
    assert not tile.weights.any()
    tile.programming.drift(1.0)
    assert not tile.weights.any()


def test_a_stale_programming_is_not_read() -> None:
    model = pl.program(model_of())
    with torch.no_grad(), warnings.catch_warnings():
        model[2].weight.add_(1.0)
        with pytest.raises(pl.StateError, match=r"no longer stands for them; call .*program"):
            model(torch.ones(2, 6))
        pl.program(model)
        model(torch.ones(2, 6))


def test_errors_of_stale_arrays_name_the_layer_and_the_cause() -> None:
    model = pl.program(model_of())
    model.train()
    model(torch.ones(2, 6))
    model.eval()
    with pytest.raises(pl.StateError, match=r"layer '0' .* as a read in train\(\) returned"):
        model(torch.ones(2, 6))
    model = model_of()
    pl.program(model[0])
    with pytest.raises(pl.StateError, match="nothing is programmed in layer '2'"):
        pl.drift(model, 10.0)


@pytest.mark.parametrize("clip", ["gaussian", "gaussian_per_output", "learned"])
def test_a_clip_to_zero_is_refused(clip: str) -> None:
    with pytest.raises(
        pl.ConfigError, match=r"clip_sigma is 0, so that .* would set all weights to 0"
    ):
        pl.InferenceConfig(clip=clip, clip_sigma=0.0)
