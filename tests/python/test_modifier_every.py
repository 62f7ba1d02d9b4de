"""Changes of weights that are drawn once for a step."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import pulsora as pl

torch = pytest.importorskip("torch")

PERFECT = pl.IOParameters(is_perfect=True)
X = torch.eye(8)


def layer_of(**settings: Any) -> Any:  # noqa: ANN401
    """A layer of two tiles, of which a read of X gives the weights."""
    given = {"forward": PERFECT, "modifier": "add_normal", "modifier_every": "step"}
    config = pl.InferenceConfig(**given | settings)
    return pl.nn.AnalogLinear(8, 5, bias=False, config=config, seed=1, max_input_size=5)


def seen(layer: Any) -> Any:  # noqa: ANN401
    """The weights that a training read sees, [out, in]."""
    return layer(X).t()


@pytest.mark.parametrize(
    "settings", [{}, {"modifier": "noise_model"}, {"modifier": "none", "drop_connect": 0.3},
                 {"clip": "learned", "clip_sigma": 5.0}]
)  # fmt: skip
def test_property_63_mini_batches_of_a_step_see_one_change(settings: dict[str, Any]) -> None:
    layer = layer_of(**settings)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
    drawn = []
    for _ in range(3):
        first, second = seen(layer), seen(layer)
        assert torch.equal(first, second)
        layer.eval()(X)  # reads of evaluations begin no step
        layer.train()
        # Both backward reads see that change, in any order.
        d = torch.eye(5)
        for y in (layer(X[:5].clone().requires_grad_()), layer(X[:5].clone().requires_grad_())):
            assert (y - first.t()[:5]).abs().max() < 1e-6
        for _ in range(2):
            x = torch.zeros(5, 8, requires_grad=True)
            (layer(x) * d).sum().backward()
            assert (x.grad - first).abs().max() < 1e-6
        drawn.append((first - layer.weight).detach())
        optimizer.step()
    assert not torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[1], drawn[2])
    every = layer_of(**settings | {"modifier_every": "forward"})
    assert not torch.equal(seen(every), seen(every))


def test_property_63_a_step_with_accumulation_resumes_to_the_bit() -> None:
    layer = layer_of()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def step(model: Any, by: Any) -> Any:  # noqa: ANN401
        by.zero_grad()
        for _ in range(2):
            model(X).square().sum().backward()
        by.step()
        return model.weight.detach().clone()

    step(layer, optimizer)
    twin = layer_of()
    twin.load_state_dict(layer.state_dict())
    copied = copy.deepcopy(layer)
    wanted = step(layer, optimizer)
    assert torch.equal(step(twin, torch.optim.SGD(twin.parameters(), lr=0.1)), wanted)
    assert torch.equal(step(copied, torch.optim.SGD(copied.parameters(), lr=0.1)), wanted)


def test_a_tile_draws_anew_after_a_write_or_an_update() -> None:
    config = pl.InferenceConfig(forward=PERFECT, modifier="add_normal", modifier_every="step")
    tile = pl.Tile(5, 8, config, seed=1)
    tile.weights = 0.1 * torch.ones(5, 8).numpy()
    x = X.numpy()
    first = tile.forward(x)
    saved = pl.Tile.from_state(tile.state())
    assert (tile.forward(x) == first).all()
    assert (saved.forward(x) == first).all()
    tile.weights = tile.weights
    second = tile.forward(x)
    assert not (second == first).all()
    tile.update(x, 0.0 * second, 0.1)
    assert not (tile.forward(x) == second).all()


def test_a_refused_read_begins_no_step() -> None:
    config = pl.InferenceConfig(forward=PERFECT, modifier="add_normal", modifier_every="step")
    tile = pl.Tile(5, 8, config, seed=1)
    tile.weights = torch.ones(5, 8).numpy()
    tile.forward(X.numpy())
    tile.weights = tile.weights
    before = tile.state().values
    with pytest.raises(ValueError, match="beyond single precision"):
        tile.forward(torch.full((1, 8), 3e38).numpy())
    assert tile.state().values == before


def test_a_step_without_a_change_is_refused() -> None:
    with pytest.raises(pl.ConfigError, match="modifier_every is 'step', and no modifier"):
        pl.InferenceConfig(modifier_every="step")
