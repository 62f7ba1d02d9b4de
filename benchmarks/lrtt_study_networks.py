"""The networks of lrtt_study.py. All but their last layer is analog, one tile a layer."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

import pulsora as pl
from pulsora.nn import AnalogLinear

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsora.config import TileConfig

    ConfigOf = Callable[[int], TileConfig | None]
    """The configuration of a layer with so many inputs; None for floating point."""

CLASSES = 10
PIXELS = 28  # of a side


def mlp(config_of: ConfigOf, seed: int, device: str) -> nn.Module:
    """784-256-128-10 with sigmoids."""
    return _perceptron((PIXELS * PIXELS, 256, 128, CLASSES), config_of, seed, device)


def one(config_of: ConfigOf, seed: int, device: str) -> nn.Module:
    """784-256-10 with sigmoids."""
    return _perceptron((PIXELS * PIXELS, 256, CLASSES), config_of, seed, device)


def _perceptron(
    sizes: tuple[int, ...], config_of: ConfigOf, seed: int, device: str
) -> nn.Sequential:
    plain = [nn.Linear(i, o) for i, o in itertools.pairwise(sizes)]
    layers: list[nn.Module] = []
    for number, layer in enumerate(plain[:-1]):
        config = config_of(layer.in_features)
        if config is not None:
            analog = AnalogLinear(
                layer.in_features, layer.out_features, config=config, seed=seed, tile_id=number,
                max_input_size=0, max_output_size=0, device=device, threads=1,
            )  # fmt: skip
            analog.set_weights(layer.weight, layer.bias)
            layers.append(analog)
        else:
            layers.append(layer)
        layers.append(nn.Sigmoid())
    return nn.Sequential(*layers, plain[-1]).to(device)


def lenet(config_of: ConfigOf, seed: int, device: str) -> nn.Module:
    """LeNet-5: two convolutions of 5 x 5 with averages over 2 x 2, and three linear layers, with hyperbolic tangents."""
    plain = nn.Sequential(
        nn.Unflatten(1, (1, PIXELS, PIXELS)),
        nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, CLASSES),
    )  # fmt: skip
    return _analog(plain, ["12"], config_of, seed, device)


def transformer(config_of: ConfigOf, seed: int, device: str) -> nn.Module:
    """An image as a sequence of its rows: two encoder blocks of width 64 with four heads."""
    return _analog(_OfRows(), ["head", "places"], config_of, seed, device)


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.queries_keys_values(self.before(x)).chunk(3, -1)
        )
        heads = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.mix(heads.transpose(1, 2).flatten(2))
        made: torch.Tensor = x + self.down(nn.functional.gelu(self.up(self.between(x))))
        return made


class _Places(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.added = nn.Parameter(0.02 * torch.randn(PIXELS, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.added


class _OfRows(nn.Module):
    def __init__(self, width: int = 64, heads: int = 4, blocks: int = 2) -> None:
        super().__init__()
        self.embed = nn.Linear(PIXELS, width)
        self.places = _Places(width)
        self.blocks = nn.Sequential(*(_Block(width, heads) for _ in range(blocks)))
        self.last = nn.LayerNorm(width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: torch.Tensor) -> Any:  # noqa: ANN401 - torch gives no type
        rows = self.places(self.embed(x.unflatten(1, (PIXELS, PIXELS))))
        return self.head(self.last(self.blocks(rows).mean(1)))


def _analog(
    plain: nn.Module, digital: list[str], config_of: ConfigOf, seed: int, device: str
) -> nn.Module:
    def chosen(_name: str, layer: nn.Module) -> TileConfig | None:
        weight: Any = layer.weight
        return config_of(weight[0].numel())

    if chosen(digital[0], plain.get_submodule(digital[0])) is None:
        return plain.to(device)
    return pl.convert_to_analog(
        plain, chosen, exclude=digital, seed=seed, max_input_size=0, max_output_size=0, threads=1
    ).to(device)


NETWORKS: dict[str, Callable[[ConfigOf, int, str], nn.Module]] = {
    "mlp": mlp,
    "one": one,
    "lenet": lenet,
    "transformer": transformer,
}
