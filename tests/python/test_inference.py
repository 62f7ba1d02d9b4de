"""Models whose layers are programmed, and drift."""

from __future__ import annotations

import copy

import pytest

import pulsora as pl

torch = pytest.importorskip("torch")


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
