"""Networks of lrtt_study.py: `pulsora.training.models` for Fashion-MNIST.

All layers but the last are analog, with one tile a layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsora.training.models import Transformer, lenet, on_tiles, perceptron

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from pulsora.config import TileConfig

    ConfigOf = Callable[[int], TileConfig | None]
    """The configuration of a layer with so many inputs; None for floating point."""

CLASSES = 10
SHAPE = (28, 28)


_PLAIN: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: perceptron((SHAPE[0] * SHAPE[1], 256, 128, CLASSES)),
    "small": lambda: perceptron((SHAPE[0] * SHAPE[1], 128, CLASSES)),
    "one": lambda: perceptron((SHAPE[0] * SHAPE[1], 256, CLASSES)),
    "lenet": lambda: lenet(SHAPE, CLASSES),
    "transformer": lambda: Transformer(SHAPE, CLASSES),
}


def make(name: str, config_of: ConfigOf, seed: int, device: str) -> nn.Module:
    """The network mlp (784-256-128-10), one (784-256-10), small (784-128-10), lenet or transformer.

    torch's generator gives its weights.
    """

    def chosen(_name: str, layer: nn.Module) -> TileConfig | None:
        weight: Any = layer.weight
        return config_of(weight[0].numel())

    made = on_tiles(
        _PLAIN[name](), chosen, seed=seed, max_input_size=0, max_output_size=0, threads=1
    )
    return made.to(device)
