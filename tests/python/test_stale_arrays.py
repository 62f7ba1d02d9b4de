"""Programmed arrays whose weights changed since: whatever would speak of them is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pulsora as pl

torch = pytest.importorskip("torch")

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STALE = r"changed after they were programmed.*program\(model\) again, or (return|stay) .*unprogram"


def model_of(**settings: Any) -> torch.nn.Module:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
    return pl.convert_to_analog(net, pl.InferenceConfig(**settings), seed=1).eval()


def by_hand(model: torch.nn.Module) -> None:
    with torch.no_grad():
        model[2].weight.mul_(2.0)


def by_training(model: torch.nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model.train()(torch.ones(2, 6)).sum().backward()
    optimizer.step()
    model.eval()


@pytest.mark.parametrize("change", [by_hand, by_training])
def test_conductances_and_errors_of_a_stale_model_are_refused(
    change: Callable[[torch.nn.Module], None], tmp_path: Path
) -> None:
    model = pl.program(model_of(), 2)
    change(model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for which in ("target", "programmed", "now"):
        with pytest.raises(pl.StateError, match=STALE):
            pl.inference.save_conductances(model, tmp_path, which=which)
    assert not list(tmp_path.iterdir())
    with pytest.raises(pl.StateError, match=STALE):
        pl.inference.explain(model, torch.ones(2, 6), time=60.0)
    after = model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    pl.program(model, 2)
    pl.inference.save_conductances(model, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    assert pl.inference.explain(model, torch.ones(2, 6), time=60.0).totals["2"] > 0.0


def test_errors_are_explained_after_the_return_to_the_weights() -> None:
    model = pl.program(model_of(), 2)
    by_training(model)
    pl.inference.unprogram(model)
    other = model_of()
    other.load_state_dict(model.state_dict())
    x = torch.linspace(-1, 1, 12).reshape(2, 6)
    assert pl.inference.explain(model, x, time=60.0) == pl.inference.explain(other, x, time=60.0)


def test_numbers_of_a_stale_tile_are_refused() -> None:
    tile = pl.Tile(3, 4, pl.InferenceConfig(compensation="global"), seed=2)
    w = np.random.default_rng(0).uniform(-0.3, 0.3, (3, 4)).astype(np.float32)
    tile.weights = w
    array = tile.programming
    array.program(5)
    array.drift(3600.0)
    found, factors = array.statistics(), array.compensation
    assert factors[0] > 1.0
    tile.weights = 2.0 * w
    assert array.is_stale
    for ask in (array.statistics, lambda: array.compensation, array.conductances):
        with pytest.raises(
            pl.StateError, match=r"changed after they were programmed.*program (it|them)"
        ):
            ask()
    assert array.is_stale
    array.unprogram()
    assert array.compensation == [1.0] * 3
    assert "weight_error" not in array.statistics()
    tile.weights = w
    array.program(5)
    array.drift(3600.0)
    assert array.statistics() == found
    assert array.compensation == factors


def test_a_write_through_data_goes_unnoticed_as_the_docs_say() -> None:
    x = torch.linspace(-1, 1, 12).reshape(2, 6)
    model = pl.program(model_of(), 2)
    before = model(x)
    model[2].weight.data.mul_(2.0)
    pl.drift(model, 0.0)
    assert torch.equal(model(x), before)
    pl.program(model, 2)
    assert not torch.equal(model(x), before)
    with torch.no_grad():
        model[2].weight.mul_(0.5)
    with pytest.raises(pl.StateError, match=STALE):
        model(x)
