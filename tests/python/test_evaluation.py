"""Evaluations: reads with random numbers of their own, which change nothing of a training."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import pulsora as pl
from pulsora.nn import AnalogLinear, replayed_reads
from pulsora.optim import AnalogSGD

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.filterwarnings("ignore:.*bounds of their cells")

SINGLE = pl.SingleConfig(device=pl.devices.ConstantStep(w_max=1.0, w_min=-1.0))
FOLLOWS = pl.IOParameters(noise_management="average_abs_max")


class Last(nn.Module):
    """The output of the last time step."""

    def forward(self, sequence: tuple[torch.Tensor, Any]) -> torch.Tensor:
        return sequence[0][:, -1]


class Gated(nn.Module):
    """A layer whose adapter is gated by the input."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(12, 2)
        self.layer = AnalogLinear(12, 4, config=pl.LRTTConfig(rank=2, transfer_every=2), seed=3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layer(x, self.gate(x))
        return y


def _converted(model: nn.Module, config: pl.TileConfig) -> nn.Module:
    return pl.convert_to_analog(model, config, seed=1, max_input_size=5)


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 4))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: _converted(_mlp(), SINGLE), (12,)),
    "average": (lambda: _converted(_mlp(), SINGLE.replace(forward=FOLLOWS)), (12,)),
    "adapter": (lambda: _converted(_mlp(), pl.LRTTConfig(rank=2, transfer_every=2)), (12,)),
    "reuse": (
        lambda: _converted(_mlp(), pl.LRTTConfig(rank=2, transfer_every=2, projection="reuse")),
        (12,),
    ),
    "convolution": (
        lambda: _converted(
            nn.Sequential(nn.Conv1d(2, 3, 3), nn.Flatten(), nn.Linear(12, 4)), SINGLE
        ),
        (2, 6),
    ),
    "lstm": (
        lambda: _converted(
            nn.Sequential(nn.LSTM(3, 5, batch_first=True), Last(), nn.Linear(5, 4)), SINGLE
        ),
        (4, 3),
    ),
    "gates": (Gated, (12,)),
}


def _evaluate(model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """Reads without gradients, and in eval() with gradients of the input, which have no pulses."""
    with torch.no_grad():
        results = [model(x), model(x)]
    model.eval()
    results += [model(x)]
    inputs = x.clone().requires_grad_()
    model(inputs).sum().backward()
    model.train()
    assert inputs.grad is not None
    for parameter in model.parameters():
        parameter.grad = None
    return [*(each.detach() for each in results), inputs.grad]


def _trained(
    name: str, device: str, *, evaluations: int
) -> tuple[dict[str, torch.Tensor], list[torch.Tensor]]:
    torch.manual_seed(0)
    made, shape = MODELS[name]
    model = made().to(device)
    optimizer = AnalogSGD(model.parameters(), lr=0.1)
    x = torch.randn(16, *shape).to(device)
    labels = torch.randint(4, (16,)).to(device)
    results = []
    for _ in range(5):
        for _ in range(evaluations):
            results += _evaluate(model, x[:6])
        loss = nn.functional.cross_entropy(model(x), labels)
        with torch.no_grad():
            model(x[:evaluations])  # between a read and its update
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.state_dict(), results


def _same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


@pytest.mark.parametrize("name", list(MODELS))
def test_evaluations_change_no_bit_of_a_training(name: str, device: str) -> None:
    alone, _ = _trained(name, device, evaluations=0)
    once, first = _trained(name, device, evaluations=1)
    often, more = _trained(name, device, evaluations=3)
    assert _same(alone, once)
    assert _same(alone, often)
    # The first evaluation at a state does not depend on how many follow.
    for i in range(4):
        torch.testing.assert_close(first[i], more[i], rtol=0, atol=0 if device == "cpu" else 1e-5)
    assert not torch.equal(more[0], more[1])
    assert not torch.equal(more[0], more[4])


def test_an_evaluation_is_a_function_of_the_state_and_copies_go_on_from_there() -> None:
    model, x = _converted(_mlp(), SINGLE).eval(), torch.randn(5, 12)
    saved = model.state_dict()
    results = [model(x) for _ in range(3)]
    assert not torch.equal(results[0], results[1])
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):  # noqa: S301
        assert torch.equal(copied(x), copy.deepcopy(model)(x))
    model.load_state_dict(saved)
    assert all(torch.equal(model(x), each) for each in results)
    other = _converted(_mlp(), SINGLE).eval()
    other.load_state_dict(saved)
    assert torch.equal(other(x), results[0])


def test_tiles_count_evaluations_apart(config: pl.TileConfig) -> None:
    tile = pl.Tile(6, 10, config, seed=3)
    twin = pl.Tile(6, 10, config, seed=3)
    x, d = np.ones((4, 10), np.float32), np.ones((4, 6), np.float32)
    first = tile.forward(x, evaluation=True)
    assert tile.evaluated == 4
    assert np.array_equal(
        pickle.loads(pickle.dumps(tile)).forward(x, evaluation=True),  # noqa: S301
        copy.deepcopy(tile).forward(x, evaluation=True),
    )
    tile.backward(d, evaluation=True)
    assert tile.evaluated == 8
    assert tile.counters == twin.counters
    assert np.array_equal(tile.forward(x), twin.forward(x))
    assert tile.evaluated == 0
    noisy = not np.array_equal(tile.forward(x), tile.forward(x))
    assert np.array_equal(tile.forward(x, evaluation=True), first) != noisy
    saved = tile.state()
    assert np.array_equal(
        tile.forward(x, evaluation=True, first=2, of=6),
        pl.Tile.from_state(saved).forward(x, evaluation=True, first=6, of=10),
    )
    with pytest.raises(pl.InputError, match="samples of evaluations"):
        tile._core.evaluated = 2**44 + 1


def test_a_part_of_an_evaluation_has_the_numbers_of_the_whole() -> None:
    whole, part = (pl.Tile(6, 10, seed=3) for _ in range(2))
    x = np.random.default_rng(0).normal(size=(8, 10)).astype(np.float32)
    y = whole.forward(x, evaluation=True)
    assert np.array_equal(part.forward(x[3:5], first=3, of=8, evaluation=True), y[3:5])
    assert part.evaluated == whole.evaluated == 8


def test_a_checkpointed_part_in_eval_mode_repeats_its_numbers() -> None:
    x = torch.ones(5, 12)
    gradients = []
    for part in (False, True):
        torch.manual_seed(0)
        model = _converted(nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 4)), SINGLE)
        model.eval()
        inputs = x.clone().requires_grad_()
        y = (
            checkpoint(model, inputs, use_reentrant=False, context_fn=replayed_reads)
            if part
            else model(inputs)
        )
        y.square().sum().backward()
        gradients.append(inputs.grad)
        tiles = [tile for layer in (model[0], model[2]) for tile in layer.tiles]
        assert all(tile.counters["forward_samples"] == 0 for tile in tiles)
    assert torch.equal(*gradients)


def test_noise_of_evaluations_is_independent_of_the_noise_of_training() -> None:
    """Correlations of 2^16 normals stay within five of their deviations, 2^-8."""
    config = pl.SingleConfig(
        forward=pl.IOParameters(
            inp_res=0.0,
            out_res=0.0,
            out_noise=1.0,
            noise_management="none",
            bound_management="none",
        )
    )
    x = np.zeros((2**14, 3), np.float32)
    tile = pl.Tile(4, 3, config, seed=1)
    noises = [
        tile.forward(x, evaluation=True),
        tile.forward(x, evaluation=True),
        tile.forward(x),
        tile.forward(x),
        tile.forward(x, evaluation=True),
    ]
    for i, one in enumerate(noises):
        assert abs(one.std() - 1.0) < 5 * 2**-8
        for shift in (0, 1, 8):
            for other in noises[:i]:
                product = one[shift:] * other[: len(other) - shift]
                assert abs(product.mean()) < 5 * 2**-8 * 1.02
