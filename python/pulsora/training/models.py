"""Networks of experiments: perceptron, LeNet-5, LSTM and transformer, digital or on analog tiles.

All layers with matrices are analog but the output layer and tables (embeddings).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import torch
from torch import nn

from pulsora.convert import convert_to_analog
from pulsora.nn import AnalogLinear

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pulsora.config import TileConfig
    from pulsora.training.data import Dataset

__all__ = ["LSTM", "Transformer", "lenet", "mlp", "network", "on_tiles", "perceptron"]

_LEAST = 4  # least pixels of a side, so that one is left after both averages of LeNet
_LARGE = 14  # pixels of a side from which LeNet has kernels of 5 x 5
_KERNEL, _SMALL_KERNEL = 5, 3


def network(
    name: str,
    data: Dataset,
    config: TileConfig | None,
    *,
    hidden: tuple[int, ...] | None,
    seed: int,
    threads: int | None = None,
) -> nn.Module:
    """The network of an experiment, with initial weights that depend on the seed alone.

    Args:
        name: 'mlp', 'lenet', 'lstm' or 'transformer'.
        data: The data set of the training.
        config: Configuration of the tiles; None for floating point.
        hidden: Sizes of the hidden layers, for networks that take them ('mlp', 'lstm').
        seed: Seed of weights and tiles.
        threads: CPU threads of the tiles.

    Raises:
        ValueError: if the network cannot take the data.
    """
    _require_fitting(name, data)
    if name == "mlp":
        return mlp(
            (data.features, *(hidden or ()), data.classes), config, seed=seed, threads=threads
        )
    torch.manual_seed(seed * 1000)
    plain = _PLAIN[name](data.shape, data.classes, hidden or ())
    return plain if config is None else on_tiles(plain, config, seed=seed, threads=threads)


def _require_fitting(name: str, data: Dataset) -> None:
    if data.is_text and name in {"mlp", "lenet"}:
        raise ValueError(
            f"model = '{name}' takes images, and {data.name} is text; choose lstm or transformer"
        )
    if name != "mlp" and not data.shape:
        raise ValueError(
            f"model = '{name}' needs the shape of an image, which {data.name} does not have; give "
            "Dataset(..., shape=(rows, columns)), or choose mlp"
        )
    if name == "lenet" and min(data.shape) < _LEAST:
        raise ValueError(
            f"model = 'lenet' needs images of at least {_LEAST} x {_LEAST} pixels, and those of "
            f"{data.name} have {data.shape[0]} x {data.shape[1]}; choose another model"
        )


def on_tiles(
    plain: nn.Module,
    config: TileConfig | Callable[[str, nn.Module], TileConfig | None],
    *,
    seed: int,
    **options: Any,
) -> nn.Module:
    """A copy of a network with all layers but the last linear one on tiles.

    Args:
        plain: The network; it is not changed.
        config: As in `convert_to_analog`.
        seed: Seed of the tiles.
        **options: Further arguments of `convert_to_analog`.
    """
    *_, last = (name for name, layer in plain.named_modules() if isinstance(layer, nn.Linear))
    return convert_to_analog(plain, config, exclude=[last], seed=seed, **options)


def mlp(
    sizes: tuple[int, ...], config: TileConfig | None, *, seed: int, threads: int | None = None
) -> nn.Sequential:
    """A `perceptron`, all but its last layer analog unless config is None.

    Initial weights are uniform within +-1/sqrt(inputs), and independent of the configuration.
    """
    model = perceptron(sizes, seeds=range(seed * 1000, seed * 1000 + len(sizes) - 1))
    if config is None:
        return model
    for number in range(len(sizes) - 2):
        digital: Any = model[2 * number]
        analog = AnalogLinear(
            digital.in_features, digital.out_features, config=config,
            seed=seed, tile_id=1000 * number, threads=threads,
        )  # fmt: skip
        analog.set_weights(digital.weight, digital.bias)
        model[2 * number] = analog
    return model


def perceptron(sizes: tuple[int, ...], seeds: range | None = None) -> nn.Sequential:
    """Linear layers with sigmoids between them.

    Args:
        sizes: Numbers of inputs, of the outputs of each hidden layer, and of outputs.
        seeds: A seed of torch for each layer; by default torch's random numbers go on.
    """
    layers: list[nn.Module] = []
    for number, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        if seeds is not None:
            torch.manual_seed(seeds[number])
        layers += [nn.Linear(inputs, outputs), nn.Sigmoid()]
    return nn.Sequential(*layers[:-1])


def lenet(shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """LeNet-5: two convolutions, each with averages over 2 x 2, and three linear layers; tanh.

    Kernels have 5 x 5 pixels; for images of less than 14 pixels a side, 3 x 3, the second padded
    too.

    Args:
        shape: Rows and columns of an image, from 4 up. Images come as rows of rows x columns
            numbers.
        classes: Number of classes.
    """
    large = min(shape) >= _LARGE
    kernel = _KERNEL if large else _SMALL_KERNEL
    rest = [side // 2 - (kernel - 1 if large else 0) for side in shape]
    features = 16 * (rest[0] // 2) * (rest[1] // 2)
    return nn.Sequential(
        nn.Unflatten(1, (1, *shape)),
        nn.Conv2d(1, 6, kernel, padding=kernel // 2), nn.Tanh(), nn.AvgPool2d(2),
        nn.Conv2d(6, 16, kernel, padding=0 if large else kernel // 2), nn.Tanh(), nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(features, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, classes),
    )  # fmt: skip


class LSTM(nn.Module):
    """LSTM layers that read an image row by row, or a text by characters, and a linear layer.

    Args:
        shape: Rows and columns of an image, whose class comes from the last step; or the number of
            characters in a piece of text, where every step gives the next character. A table has a
            vector of `hidden[0]` numbers for each character.
        classes: Number of classes, or of different characters.
        hidden: Cells of each layer.
    """

    def __init__(self, shape: tuple[int, ...], classes: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape
        self.is_text = len(shape) == 1
        inputs = hidden[0] if self.is_text else shape[1]
        self.table = nn.Embedding(classes, inputs) if self.is_text else None
        self.memory = nn.ModuleList(
            nn.LSTM(size, cells, batch_first=True)
            for size, cells in itertools.pairwise((inputs, *hidden))
        )
        self.head = nn.Linear(hidden[-1], classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits: [n, classes] of images [n, pixels], [n, steps, classes] of texts [n, steps]."""
        steps = x.view(-1, *self.shape) if self.table is None else self.table(x)
        for layer in self.memory:
            steps, _ = layer(steps)
        made: torch.Tensor = self.head(steps if self.is_text else steps[:, -1])
        return made


class Transformer(nn.Module):
    """Encoder blocks that see an image as a sequence of rows, or a text as one of characters.

    A character sees only the characters before it. Places in the sequence have vectors of their
    own, which are learned.

    Args:
        shape: As in `LSTM`; the class of an image comes from the mean over its rows.
        classes: Number of classes, or of different characters.
        width: Numbers in the vector of a row or character.
        heads: Heads of the attention; a divisor of `width`.
        blocks: Number of blocks.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        *,
        width: int = 64,
        heads: int = 4,
        blocks: int = 2,
    ) -> None:
        super().__init__()
        self.shape = shape
        self.is_text = len(shape) == 1
        self.embed = nn.Embedding(classes, width) if self.is_text else nn.Linear(shape[1], width)
        self.places = nn.Embedding(shape[0], width)
        with torch.no_grad():
            self.places.weight.mul_(0.02)
        self.blocks = nn.Sequential(
            *(_Block(width, heads, causal=self.is_text) for _ in range(blocks))
        )
        self.last = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits, as in `LSTM`."""
        steps = self.embed(x if self.is_text else x.view(-1, *self.shape)) + self.places.weight
        seen = self.blocks(steps)
        made: torch.Tensor = self.head(self.last(seen if self.is_text else seen.mean(1)))
        return made


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.queries_keys_values(self.before(x)).chunk(3, -1)
        )
        heads = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.mix(heads.transpose(1, 2).flatten(2))
        made: torch.Tensor = x + self.down(nn.functional.gelu(self.up(self.between(x))))
        return made


_PLAIN: dict[str, Callable[[tuple[int, ...], int, tuple[int, ...]], nn.Module]] = {
    "lenet": lambda shape, classes, _: lenet(shape, classes),
    "lstm": LSTM,
    "transformer": lambda shape, classes, _: Transformer(shape, classes),
}
