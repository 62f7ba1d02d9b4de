"""The trainings that forecaster.py shortens: networks, data, optimisers and rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

import pulsora as pl
from pulsora.training import data as datasets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Batch = tuple[torch.Tensor, torch.Tensor]
    Optimiser = Callable[[Iterable[nn.Parameter], float], torch.optim.Optimizer]

__all__ = ["TASKS", "Task"]


def mlp(sizes: tuple[int, int, int]) -> nn.Sequential:
    """Two linear layers."""
    inputs, hidden, outputs = sizes
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def cnn() -> nn.Sequential:
    """Two convolutions and a linear layer."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 8, 5, 2), nn.ReLU(),
        nn.Conv2d(8, 16, 3, 2), nn.ReLU(),
        nn.Flatten(), nn.Linear(400, 10),
    )  # fmt: skip


class Attention(nn.Module):
    """A transformer layer over the eight rows of a digit."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.enter = nn.Linear(8, width)
        self.place = nn.Parameter(0.1 * torch.randn(8, width))
        self.layer = nn.TransformerEncoderLayer(width, 4, 64, 0.0, batch_first=True)
        self.out = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of the classes."""
        rows = self.enter(x.view(-1, 8, 8)) + self.place
        return self.out(self.layer(rows).mean(1))  # type: ignore[no-any-return]


def analog(config: Callable[[], pl.TileConfig]) -> Callable[[int], nn.Module]:
    """Two linear layers on tiles."""

    def make(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        network = mlp((64, 64, 10))
        return pl.convert_to_analog(network, config(), seed=seed, threads=1, weight_scaling=0.5)

    return make


def digital(make: Callable[[], nn.Module]) -> Callable[[int], nn.Module]:
    """A network of torch."""

    def made(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return make()

    return made


def teacher(count: int = 4000, tests: int = 4000, noise: float = 0.05) -> datasets.Dataset:
    """Outputs of a random network for random inputs, with noise: a regression."""
    generator = torch.Generator().manual_seed(5)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    x = normal(count + tests, 40)
    hidden = torch.tanh(x @ normal(40, 24) / 40**0.5)
    y = hidden @ normal(24, 5)
    y = y / y.std() + noise * normal(count + tests, 5)
    parts = (x[:count], y[:count], x[count:], y[count:])
    return datasets.Dataset("teacher", *(part.numpy() for part in parts), classes=5)


def sgd(momentum: float = 0.0) -> Optimiser:
    """Stochastic gradient descent."""
    return lambda parameters, lr: pl.optim.AnalogSGD(parameters, lr=lr, momentum=momentum)


def adamw(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    """AdamW with torch's other defaults."""
    return torch.optim.AdamW(parameters, lr=lr)


def cross_entropy(model: nn.Module, batch: Batch) -> torch.Tensor:
    """The mean loss of a batch of images."""
    x, y = batch
    return nn.functional.cross_entropy(model(x), y)


def squares(model: nn.Module, batch: Batch) -> torch.Tensor:
    """The mean square error of a batch."""
    x, y = batch
    return nn.functional.mse_loss(model(x), y)


@dataclass(frozen=True)
class Task:
    """A network, its data, the length of its training and its learning rate."""

    make: Callable[[int], nn.Module]
    steps: int
    lr: float
    data: str = "digits"
    batch: int = 32
    optimizer: Optimiser = sgd()  # noqa: RUF009 - a function
    loss: Callable[[nn.Module, Batch], torch.Tensor] = cross_entropy


def lrtt_cells() -> pl.TileConfig:
    """EcRam arrays with adapters."""
    return pl.presets.EcRamLRTT(rank=8, transfer_every=100)


_FASHION: dict[str, Any] = {"data": "fashion", "batch": 64}
_TEACHER: dict[str, Any] = {"data": "teacher", "loss": squares}

TASKS = {
    "mlp": Task(digital(lambda: mlp((784, 64, 10))), 2000, 0.2, **_FASHION),
    "cnn": Task(digital(cnn), 1500, 0.2, **_FASHION),
    "momentum": Task(digital(lambda: mlp((64, 64, 10))), 1000, 0.04, optimizer=sgd(0.9)),
    "adam": Task(digital(Attention), 1500, 0.003, optimizer=adamw),
    "regression": Task(digital(lambda: mlp((40, 48, 5))), 2000, 0.6, **_TEACHER),
    "regression-momentum": Task(
        digital(lambda: mlp((40, 48, 5))), 2000, 0.12, optimizer=sgd(0.9), **_TEACHER
    ),
    "ecram": Task(analog(pl.presets.EcRamSingle), 1000, 0.1),
    "lrtt": Task(analog(lrtt_cells), 1000, 0.02),
}
