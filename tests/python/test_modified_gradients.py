"""Gradients of layers whose weights are changed in training: differences, and accumulation."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import pulsora as pl

torch = pytest.importorskip("torch")

PERFECT = pl.IOParameters(is_perfect=True)
NOISY: dict[str, Any] = {"forward": PERFECT, "modifier": "add_normal", "modifier_std": 0.1}
# Noise of one size, whatever the weights are, so that differences see equal noise.
SETTINGS: dict[str, dict[str, Any]] = {
    "noise": NOISY | {"modifier_range": 1.0},
    "dropped": NOISY | {"modifier_range": 1.0, "drop_connect": 0.3},
    "multiplied": NOISY | {"modifier": "mult_normal"},
}
# A setting of each modifier.
MODIFIERS: dict[str, dict[str, Any]] = {
    "none": {},
    "add_normal": {"modifier_std": 0.1},
    "mult_normal": {"modifier_std": 0.1},
    "discretize": {"modifier_res": 0.125},
    "discretize_by_chance": {
        "modifier": "discretize", "modifier_res": 0.125, "modifier_sto_round": True,
    },
    "discretize_add_normal": {"modifier_res": 0.125, "modifier_std": 0.04},
    "dorefa": {"modifier_res": 0.125},
    "poly": {"modifier_std": 1.0, "modifier_coeff": [0.01, 0.08, -0.05]},
    "prog_noise": {"modifier_std": 1.0, "modifier_coeff": [0.26348, 1.965, -1.1731]},
    "noise_model": {},
}  # fmt: skip
LAYERS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "linear": (lambda c: pl.nn.AnalogLinear(6, 4, config=c, seed=3, max_input_size=4), (5, 6)),
    "conv1d": (lambda c: pl.nn.AnalogConv1d(2, 3, 3, padding=1, config=c, seed=3), (2, 2, 7)),
    "conv2d": (
        lambda c: pl.nn.AnalogConv2d(4, 6, 3, groups=2, stride=2, config=c, seed=3), (2, 4, 7, 7),
    ),
    "conv3d": (lambda c: pl.nn.AnalogConv3d(2, 3, 2, config=c, seed=3), (2, 2, 3, 3, 3)),
    "rnn": (lambda c: pl.nn.AnalogRNN(4, 3, config=c, seed=3), (4, 2, 4)),
    "lstm": (lambda c: pl.nn.AnalogLSTM(4, 3, num_layers=2, config=c, seed=3), (4, 2, 4)),
    "gru": (lambda c: pl.nn.AnalogGRU(4, 3, bidirectional=True, config=c, seed=3), (4, 2, 4)),
}  # fmt: skip


def output(layer: Any, x: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
    y = layer(x)
    return y[0] if isinstance(y, tuple) else y


def small_changes(values: torch.Tensor) -> torch.Tensor:
    return torch.randn_like(values).sign() * 0.01


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("name", LAYERS)
def test_property_63_gradients_of_inputs_and_weights_are_differences(
    name: str, settings: str
) -> None:
    torch.manual_seed(1)
    make, shape = LAYERS[name]
    layer = make(pl.InferenceConfig(**SETTINGS[settings])).train()
    x = torch.randn(shape)
    fresh = copy.deepcopy(layer)  # copies draw the same noise
    given = x.clone().requires_grad_()
    y = output(layer, given)
    direction = torch.randn_like(y)
    (y * direction).sum().backward()

    def difference(moved: str, change: torch.Tensor) -> float:
        """The central difference along a change of the inputs or of a parameter."""
        found = []
        for sign in (1.0, -1.0):
            twin = copy.deepcopy(fresh)
            seen = x + sign * change if moved == "x" else x
            if moved != "x":
                with torch.no_grad():
                    twin.get_parameter(moved).add_(change, alpha=sign)
            found.append((output(twin, seen).double() * direction.double()).sum().item())
        return (found[0] - found[1]) / 2.0

    gradients = {"x": given.grad} | {each: p.grad for each, p in layer.named_parameters()}
    assert len(gradients) >= 3
    if settings != "noise":  # d^T x is that of the weights before they were multiplied or dropped
        gradients = {each: g for each, g in gradients.items() if "weight" not in each}
    for moved, gradient in gradients.items():
        change = small_changes(gradient)
        size = float(gradient.norm() * change.norm())
        expected = float((gradient.double() * change.double()).sum())
        assert difference(moved, change) == pytest.approx(expected, abs=3e-3 * size), moved
        assert size > 0.0


@pytest.mark.parametrize("drop", [0.0, 0.3])
@pytest.mark.parametrize("name", MODIFIERS)
def test_property_63_gradients_of_each_modifier_are_differences_of_doubles(
    name: str, drop: float
) -> None:
    # The change N that a read draws stays as it is: y = x (W + N)^T + b, of which dW is the
    # derivative by W. A copy of the layer draws the same change, and reads it by unit vectors.
    torch.manual_seed(1)
    given = {"modifier": name, "forward": PERFECT, "drop_connect": drop} | MODIFIERS[name]
    layer = pl.nn.AnalogLinear(
        6, 4, config=pl.InferenceConfig(**given), seed=3, max_input_size=4
    ).train()
    twin = copy.deepcopy(layer)
    seen = (twin(torch.eye(6)) - twin.bias).detach().T.double().numpy()
    x = torch.randn(5, 6, requires_grad=True)
    direction = torch.randn(5, 4)
    (torch.tanh(layer(x)) * direction).sum().backward()
    values = {
        "x": x.detach().double().numpy(),
        "weight": layer.weight.detach().double().numpy(),
        "bias": layer.bias.detach().double().numpy(),
    }
    change = seen - values["weight"]
    assert (np.abs(change).max() > 1e-3) == (name != "none" or drop > 0.0)
    assert (seen == 0.0).any() >= (drop > 0.0)

    def loss(at: dict[str, Any]) -> float:
        y = at["x"] @ (at["weight"] + change).T + at["bias"]
        return float((np.tanh(y) * direction.double().numpy()).sum())

    found = {"x": x.grad, "weight": layer.weight.grad, "bias": layer.bias.grad}
    for moved, value in values.items():
        wanted = np.zeros_like(value)
        for place in np.ndindex(value.shape):
            step = np.zeros_like(value)
            step[place] = 1e-6
            ends = [loss(values | {moved: value + sign * step}) for sign in (1.0, -1.0)]
            wanted[place] = (ends[0] - ends[1]) / 2e-6
        error = np.abs(found[moved].double().numpy() - wanted).max()
        assert error < 3e-6 * np.abs(wanted).max(), moved


@pytest.mark.parametrize("name", MODIFIERS)
@pytest.mark.parametrize("of", LAYERS)
def test_property_63_gradients_of_inputs_see_each_modifier_in_every_layer(
    of: str, name: str
) -> None:
    torch.manual_seed(1)
    make, shape = LAYERS[of]
    given = {"modifier": name, "forward": PERFECT, "drop_connect": 0.2} | MODIFIERS[name]
    layer = make(pl.InferenceConfig(**given)).train()
    fresh = copy.deepcopy(layer)  # copies draw the same noise
    x = torch.randn(shape, requires_grad=True)
    y = output(layer, x)
    direction = torch.randn_like(y)
    (y * direction).sum().backward()
    change = small_changes(x.detach())
    ends = [
        (output(copy.deepcopy(fresh), x.detach() + sign * change).double() * direction.double())
        .sum().item()
        for sign in (1.0, -1.0)
    ]  # fmt: skip
    expected = float((x.grad.double() * change.double()).sum())
    size = float(x.grad.norm() * change.norm())
    assert (ends[0] - ends[1]) / 2.0 == pytest.approx(expected, abs=3e-3 * size)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"drop_connect": 0.2},
        {"modifier": "noise_model"},
        {"clip": "learned", "clip_sigma": 2.0},
    ],
)
@pytest.mark.parametrize("kind", ["linear", "conv"])
def test_property_63_gradients_accumulated_in_a_step_are_those_of_one_batch(
    settings: dict[str, Any], kind: str
) -> None:
    torch.manual_seed(2)
    if kind == "linear":
        net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
        x = torch.randn(12, 6)
    else:
        net = torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3), torch.nn.Tanh(), torch.nn.Flatten(),
                                  torch.nn.Linear(36, 3))  # fmt: skip
        x = torch.randn(12, 2, 5, 5)
    target = torch.randn(12, 3)

    def gradients(every: str, parts: int) -> list[torch.Tensor]:
        config = pl.InferenceConfig(**NOISY | {"modifier_every": every} | settings)
        model = pl.convert_to_analog(net, config, seed=1).train()
        for part, wanted in zip(x.chunk(parts), target.chunk(parts), strict=True):
            (torch.nn.functional.mse_loss(model(part), wanted) / parts).backward()
        return [each.grad for each in model.parameters()]

    def distance(one: list[torch.Tensor], other: list[torch.Tensor]) -> float:
        return max(float((a - b).norm() / a.norm()) for a, b in zip(one, other, strict=True))

    whole = gradients("step", 1)
    assert distance(whole, gradients("step", 4)) < 1e-5
    assert distance(whole, gradients("step", 12)) < 1e-5
    assert distance(whole, gradients("forward", 1)) == 0.0  # the first draw of a step
    assert distance(whole, gradients("forward", 4)) > 1e-3
