"""Models of torch whose pulsed arrays drift: their ages, training at an age, refusals."""

from __future__ import annotations

import copy
import itertools

import pytest

import pulsora as pl
from pulsora import noise_models

torch = pytest.importorskip("torch")

POWER = noise_models.PowerLaw(t_0=30.0, nu_mean=[0.09, 0.04], nu_std=[0.03, 0.01])
LEAK = noise_models.Exponential(tau=[3e4, 6e4])


def network() -> torch.nn.Module:
    """A small network."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3))


def test_drift_of_a_model_sets_all_arrays_and_programmed_layers() -> None:
    config = pl.LRTTConfig(rank=2, retention=POWER, retention_fast=LEAK)
    pulsed = pl.convert_to_analog(network(), config, seed=1)
    model = torch.nn.ModuleDict({
        "pulsed": pulsed,
        "programmed": pl.convert_to_analog(network(), pl.InferenceConfig(), seed=2),
        "ideal": pl.convert_to_analog(network(), pl.IdealConfig(), seed=3),
    }).eval()  # fmt: skip
    with pytest.raises(pl.StateError, match="program"):
        pl.drift(model, 60.0)
    tiles = [tile for layer in (pulsed[0], pulsed[2]) for tile in layer.tiles]
    assert all(age.time == 0 for tile in tiles for age in tile.retention.ages.values())
    x = torch.randn(4, 8)
    with torch.no_grad():
        before = pulsed(x)
        pl.drift(pl.program(model), "1 day", redraw=2)
        for tile in tiles:
            assert set(tile.retention.ages.values()) == {(86400.0, 2)}
        programmed = pl.inference.programmed_tiles(model)[0].programming
        assert programmed is not None
        assert programmed.point is not None
        assert programmed.point.time == 86400.0
        assert not torch.equal(before, pulsed(x))
        pl.drift(model, 0)
        assert torch.equal(before, pulsed(x))


def test_a_backward_read_of_an_older_forward_is_refused() -> None:
    model = pl.convert_to_analog(network(), pl.SingleConfig(retention=POWER), seed=1)
    loss = model(torch.randn(4, 8)).sum()
    pl.drift(model, 60.0)
    with pytest.raises(RuntimeError, match="has been modified"):
        loss.backward()  # type: ignore[no-untyped-call]


def test_a_layer_trains_at_an_age_and_saves_it() -> None:
    config = pl.LRTTConfig(rank=2, transfer_every=0, retention=POWER, retention_fast=LEAK)
    model = pl.convert_to_analog(network(), config, seed=1)
    optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.1)
    pl.drift(model, "1 hour")
    x, wanted = torch.randn(16, 8), torch.randint(3, (16,))
    torch.nn.functional.cross_entropy(model(x), wanted).backward()
    optimizer.step()
    ages = next(iter(model[0].tiles)).retention.ages
    assert {name: age.time for name, age in ages.items()} == {
        "visible": 3600.0, "fast_a": 0.0, "fast_b": 0.0,
    }  # fmt: skip
    other = pl.convert_to_analog(network(), config, seed=1)
    other.load_state_dict(model.state_dict())
    model.eval()
    other.eval()
    with torch.no_grad():
        assert torch.equal(model(x), other(x))


def test_an_evaluation_that_fails_returns_arrays_to_their_own_ages() -> None:
    config = pl.LRTTConfig(
        rank=2, transfer_every=0, retention=POWER, retention_fast=LEAK,
        forward=pl.IOParameters(out_noise=0.1),
    )  # fmt: skip
    model = pl.convert_to_analog(network(), config, seed=1, max_input_size=5)
    pl.drift(model, "1 hour", redraw=3)
    x, wanted = torch.randn(16, 8), torch.randint(3, (16,))
    loss = torch.nn.functional.cross_entropy(model(x), wanted)
    loss.backward()  # type: ignore[no-untyped-call]
    pl.optim.AnalogSGD(model.parameters(), lr=0.1).step()  # A and B are young, W is old
    first, second = itertools.islice(model[0].tiles, 2)
    first.retention.elapse(60.0)
    other = copy.deepcopy(model).eval()
    model.eval()
    with torch.no_grad():
        for each in (model, other):
            each(x)
    ages = [tile.retention.ages for tile in (first, second)]
    assert ages[0]["visible"].time == 3660.0
    assert ages[0]["fast_a"].time == 60.0
    assert ages[1]["visible"] == (3600.0, 3)
    for times in (["1 day", "1 year"], ["1 year"]):
        calls = itertools.count()

        def failing(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            if next(calls) == len(times):  # noqa: B023 - called in this round
                raise KeyError("no such class")
            return (outputs.argmax(1) == targets).float()

        with pytest.raises(KeyError, match="no such class"):
            pl.inference.evaluate(model, [(x, wanted)], metric=failing, times=times, programmings=2)
        assert [tile.retention.ages for tile in (first, second)] == ages
    with torch.no_grad():
        assert torch.equal(model(x), other(x))


def test_a_model_without_retention_is_refused() -> None:
    model = pl.convert_to_analog(network(), pl.SingleConfig(), seed=1)
    with pytest.raises(ValueError, match="no array with a retention"):
        pl.drift(model, 60.0)
    assert next(iter(model[0].tiles)).retention is None


def test_one_bad_time_changes_no_layer() -> None:
    net = torch.nn.Sequential(
        pl.nn.AnalogLinear(4, 3, config=pl.SingleConfig(retention=POWER)),
        pl.nn.AnalogLinear(3, 2, config=pl.SingleConfig(retention=noise_models.ReRamWan2022())),
    )
    with pytest.raises(pl.ConfigError, match="has numbers up to"):
        pl.drift(net, 1e9)
    assert next(iter(net[0].tiles)).retention.ages["visible"].time == 0.0
