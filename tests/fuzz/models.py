"""Random torch models with analog layers, and every bit of what a step may change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import nn

import pulsora as pl
from pulsora.nn.autograd.factored_gradient import AnalogGradient
from tests.fuzz import generators
from tests.fuzz.checks import REFUSALS, require

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pulsora.nn import AnalogModule
    from tests.fuzz.random_source import Draws

WIDTH = 6
"""Inputs and outputs of all layers, so that they stand in any order."""
DOCUMENTED = (*REFUSALS, ValueError, RuntimeError)
"""Errors that layers and optimisers document."""


class Recurrent(nn.Module):
    """A recurrent layer on a sequence of two steps."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs, _ = self.layer(torch.stack([x, 0.5 * x]))
        last: torch.Tensor = outputs[-1]
        return last


class Training(NamedTuple):
    """A model, its optimiser, and a mini-batch."""

    model: nn.Sequential
    optimizer: torch.optim.Optimizer
    x: torch.Tensor
    wanted: torch.Tensor

    def backward(self) -> None:
        """Adds the gradients of the mini-batch."""
        (self.model(self.x) - self.wanted).square().mean().backward()


def tile_config(draws: Draws) -> pl.TileConfig:
    """A configuration with adapters of rank 0 to 2."""
    config = generators.config(draws)
    if getattr(config, "rank", 0) not in {0, 1, 2}:
        config = config.replace(rank=2, rank_chunk=-1, rank_offset=0)
    return config


def options(draws: Draws, width: int = WIDTH) -> dict[str, Any]:
    """Some of the options that all analog layers have."""
    limit = draws.pick((0, 0, width // 3, width // 2 + 1))
    chosen: dict[str, Any] = {
        "seed": draws.integer(0, 99),
        "threads": draws.pick((1, 1, 2)),
        "max_input_size": limit,
        "max_output_size": limit,
        "bias": draws.chance(0.8),
        "digital_bias": draws.chance(0.7),
    }
    if draws.chance(0.4):
        chosen["learn_out_scaling"] = True
    if draws.chance(0.4):
        chosen["weight_scaling"] = draws.pick(("abs_max", 0.5))
    if draws.chance(0.3):
        chosen["scaling_per"] = "output"
    return chosen


def analog_layer(
    draws: Draws, kind: str, config: pl.TileConfig | None = None, *, width: int = WIDTH
) -> nn.Module:
    """An analog layer of a kind in KINDS, `width` by `width`; a refused one is replaced."""
    chosen = {"config": config or tile_config(draws), **options(draws, width)}
    draws.note(kind, chosen)
    try:
        return _made(kind, width, chosen)
    except DOCUMENTED as error:
        draws.note("refused", type(error).__name__, str(error))
        return _made(kind, width, {"config": config, "seed": chosen["seed"], "threads": 1})


def _made(kind: str, width: int, chosen: dict[str, Any]) -> nn.Module:
    if kind == "conv":
        conv = pl.nn.AnalogConv1d(2, 2, 3, padding=1, **chosen)
        return nn.Sequential(nn.Unflatten(1, (2, width // 2)), conv, nn.Flatten())
    if kind == "lstm":
        return Recurrent(pl.nn.AnalogLSTM(width, width, **chosen))
    return pl.nn.AnalogLinear(width, width, **chosen)


KINDS = ("linear", "linear", "linear", "conv", "lstm")


def model(draws: Draws, *, width: int = WIDTH) -> nn.Sequential:
    """One to three analog layers among digital ones."""
    torch.manual_seed(draws.integer(0, 99))
    layers: list[nn.Module] = []
    for _ in range(draws.integer(1, 3)):
        layers.append(analog_layer(draws, draws.pick(KINDS), width=width))
        if draws.chance(0.5):
            layers.append(draws.pick((
                nn.Tanh, lambda: nn.LayerNorm(width), lambda: nn.Linear(width, width),
            ))())  # type: ignore[operator] # fmt: skip
    return nn.Sequential(*layers)


def optimizer(draws: Draws, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """An optimiser of every sort; each parameter is a group of its own now and then."""
    given: Any = list(parameters)
    if draws.chance(0.5):
        given = [{"params": [parameter]} for parameter in given]
    sort = draws.integer(0, 3)
    draws.note("optimiser", sort, len(given))
    lr = draws.pick((0.1, 0.01))
    if sort == 0:
        return pl.optim.AnalogAdam(given, lr=lr)
    if sort == 1:
        return pl.optim.AnalogOptimizer(torch.optim.AdamW, given, lr=lr)
    return pl.optim.AnalogSGD(given, lr=lr)


def training(draws: Draws, made: nn.Sequential, *, width: int = WIDTH, most: int = 9) -> Training:
    """A model with an optimiser and a mini-batch of 1 to `most` samples."""
    rows = draws.integer(1, most)
    x, wanted = (torch.from_numpy(draws.normal(rows, width)) for _ in range(2))
    return Training(made, optimizer(draws, made.parameters()), x, wanted)


def analog_layers(made: nn.Module) -> list[AnalogModule]:
    return [layer for layer in made.modules() if isinstance(layer, pl.nn.AnalogModule)]


def everything(made: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> dict[str, Any]:
    """All that a refused call must leave as it was, by names, in a form that compares.

    Tiles, scales and digital parameters with their order, gradients, which of them are trained, the
    optimiser's state and settings, and torch's random numbers.
    """
    found: dict[str, Any] = {"order": [name for name, _ in made.named_parameters()]}
    found |= {name: plain(value) for name, value in made.state_dict().items()}
    for name, parameter in made.named_parameters():
        found[f"{name}.grad"] = gradient(parameter.grad)
        found[f"{name}.requires_grad"] = parameter.requires_grad
    if optimizer is not None:
        found["optimiser"] = plain(optimizer.state_dict())
    found["random"] = plain(torch.get_rng_state())
    return found


def gradient(grad: torch.Tensor | None) -> object:
    """Every bit of a gradient: its factors, if it is of an analog layer."""
    if not isinstance(grad, AnalogGradient):
        return plain(grad)
    try:
        return [(plain(x), plain(d), plain(gate)) for x, d, _, gate in grad.pairs]
    except RuntimeError as error:  # its factors were dropped or written to
        return str(error)


def plain(value: Any) -> Any:  # noqa: ANN401 - any value of a state
    """A value of a state, its tensors as bytes."""
    if isinstance(value, torch.Tensor):
        array = value.detach().cpu().to_dense().contiguous().numpy()
        return array.dtype.str, array.shape, array.tobytes()
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return value.hex()  # nan equals itself
    return value


def require_equal(first: dict[str, Any], second: dict[str, Any], what: str) -> None:
    """Raises Broken, with the names that differ, unless two results of `everything` are equal."""
    names = [name for name in {**first, **second} if first.get(name) != second.get(name)]
    require(not names, f"{what}: '{', '.join(names[:6])}'")
