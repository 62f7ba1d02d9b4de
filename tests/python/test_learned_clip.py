"""Limits of weights that are learned: first values, gradients, steps, states, ties, refusals."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import pulsora as pl  # noqa: E402 - needs torch

PERFECT = pl.IOParameters(is_perfect=True)


def config(**settings: Any) -> pl.InferenceConfig:
    return pl.InferenceConfig(**({"forward": PERFECT, "clip": "learned"} | settings))


def layer(weight: torch.Tensor, **settings: Any) -> pl.nn.AnalogLinear:
    made = pl.nn.AnalogLinear(weight.shape[1], len(weight), config=config(**settings), seed=1)
    made.set_weights(weight, torch.zeros(len(weight)))
    return made


def random_weight(rows: int = 5, columns: int = 7) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(3))


def test_limits_start_from_deviations_of_the_outputs() -> None:
    weight = random_weight()
    weight[1] = 0.25  # without a spread
    weight[2] = 0.0
    made = layer(weight, clip_sigma=1.5)
    wanted = 1.5 * weight.std(dim=1)
    wanted[1], wanted[2] = 0.25, 1.0
    torch.testing.assert_close(made.weight_clip.detach(), wanted)
    assert [name for name, _ in made.named_parameters()] == ["weight", "weight_clip", "bias"]
    assert torch.equal(made.weight.detach(), weight)  # clipped after a step, not before
    torch.testing.assert_close(layer(weight[:, :1]).weight_clip[3:], weight[3:, 0].abs())
    capped = layer(10.0 * weight, clip_value=0.5)
    assert capped.weight_clip.max() == 0.5


@pytest.mark.parametrize("tiles", [0, 4])
def test_the_gradient_is_that_of_a_clip(tiles: int) -> None:
    """Beyond the limits, finite differences of a network with clipped weights give it."""
    weight, x = random_weight(), torch.randn(9, 7, generator=torch.Generator().manual_seed(4))
    made = pl.nn.AnalogLinear(7, 5, config=config(), seed=1, max_input_size=tiles)
    made.set_weights(weight, torch.zeros(5))
    limits = torch.tensor([0.3, 0.8, 5.0, 0.5, 0.1])
    with torch.no_grad():
        made.weight_clip.copy_(limits)
        made.weight.copy_(torch.minimum(torch.maximum(weight, -limits[:, None]), limits[:, None]))
    wanted = torch.randn(9, 5, generator=torch.Generator().manual_seed(5))
    ((made(x) - wanted) ** 2).sum().backward()

    def loss(c: torch.Tensor) -> torch.Tensor:
        bounded = torch.minimum(torch.maximum(weight.double(), -c[:, None]), c[:, None])
        y = x.double() @ bounded.T + made.bias.detach().double()
        return ((y - wanted) ** 2).sum()

    for i in range(5):
        step = torch.zeros(5, dtype=torch.float64)
        step[i] = 1e-6
        slope = (loss(limits.double() + step) - loss(limits.double() - step)) / 2e-6
        assert made.weight_clip.grad[i].item() == pytest.approx(slope.item(), rel=1e-3, abs=1e-4)
    assert made.weight_clip.grad[2] == 0.0
    plain = torch.nn.functional.linear(x, made.weight.detach().requires_grad_(), made.bias.detach())
    torch.testing.assert_close(made(x).detach(), plain.detach(), rtol=1e-5, atol=1e-5)


def test_any_optimiser_trains_limits_and_weights_stay_within() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(7, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3))
    model = pl.convert_to_analog(net, config(modifier="add_normal", clip_sigma=1.0), seed=2)
    first = model[0].weight_clip.detach().clone()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    generator = torch.Generator().manual_seed(1)
    x, wanted = torch.randn(32, 7, generator=generator), torch.randn(32, 3, generator=generator)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = (model(x) - wanted).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        for each in (model[0], model[2]):
            assert (each.weight.abs() <= each.weight_clip[:, None]).all()
            assert (each.weight_clip > 0.0).all()
    assert losses[-1] < 0.8 * losses[0]
    assert not torch.equal(model[0].weight_clip.detach(), first)
    assert (model[0].weight.abs() == model[0].weight_clip[:, None]).any()


def test_limits_do_not_fall_to_zero_and_have_a_cap() -> None:
    made = layer(random_weight(), clip_value=0.9)
    optimizer = torch.optim.SGD(made.parameters(), lr=1.0)
    made.weight_clip.grad = torch.tensor([1e3, -1e3, 0.0, 0.0, 0.0])
    made.weight.grad = torch.zeros_like(made.weight)
    optimizer.step()
    assert made.weight_clip[0].item() == pytest.approx(1e-6)
    assert made.weight_clip[1].item() == pytest.approx(0.9)
    assert made.weight[0].abs().max() <= 1e-6
    assert (made.weight[0] != 0.0).all()


def test_states_copies_and_ties_have_the_limits() -> None:
    made = layer(random_weight())
    with torch.no_grad():
        made.weight_clip.mul_(0.5)
    for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):  # noqa: S301 - own
        assert torch.equal(other.weight_clip, made.weight_clip)
    other = layer(torch.zeros(5, 7))
    other.load_state_dict(made.state_dict())
    assert torch.equal(other.weight_clip, made.weight_clip)
    # A state of torch's layer has none: they start from its weights.
    plain = torch.nn.Linear(7, 5)
    other.load_state_dict(plain.state_dict())
    torch.testing.assert_close(other.weight_clip.detach(), 2.5 * plain.weight.detach().std(dim=1))
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    net[1].weight = net[0].weight
    tied = pl.convert_to_analog(net, config(), seed=1)
    assert tied[0].weight_clip is tied[1].weight_clip
    bad = made.state_dict()
    bad["weight_clip"] = torch.full((5,), float("nan"))
    before = other.weight.detach().clone()
    with pytest.raises(RuntimeError, match="weight_clip has no values, or some not finite"):
        other.load_state_dict(bad)
    assert torch.equal(other.weight, before)


def test_a_frozen_programmed_layer_stays_programmed() -> None:
    made = layer(random_weight())
    made.weight.requires_grad_(requires_grad=False)
    pl.program(made)
    x = torch.randn(3, 7)
    assert torch.equal(made.train()(x), made.eval()(x))


def test_convolutions_and_recurrent_layers_have_limits() -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.Flatten())
    model = pl.convert_to_analog(net, config(), seed=1)
    assert model[0].weight_clip.shape == (3,)
    model(torch.randn(2, 2, 5, 5)).square().sum().backward()
    assert model[0].weight_clip.grad.shape == (3,)
    lstm = pl.convert_to_analog(torch.nn.LSTM(3, 4), config(), seed=1)
    lstm(torch.randn(5, 2, 3))[0].square().sum().backward()
    clips = [value for name, value in lstm.named_parameters() if name.endswith("weight_clip")]
    assert clips
    assert all(value.grad is not None for value in clips)


@pytest.mark.parametrize("clip", ["gaussian", "gaussian_per_output"])
def test_a_single_weight_has_no_deviation_and_no_limit(clip: str) -> None:
    made = pl.nn.AnalogLinear(1, 1, config=config(clip=clip))
    optimizer = torch.optim.SGD(made.parameters(), lr=1.0)
    made.weight.grad = torch.full((1, 1), -5.0)
    wanted = made.weight.detach() + 5.0
    optimizer.step()
    assert torch.equal(made.weight, wanted)


def test_other_clips_have_no_parameter() -> None:
    made = pl.nn.AnalogLinear(3, 2, config=pl.InferenceConfig(clip="gaussian"))
    assert made.weight_clip is None
    assert pl.nn.AnalogLinear(3, 2).weight_clip is None
