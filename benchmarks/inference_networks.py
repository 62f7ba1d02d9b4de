"""Networks and data of inference_table.py."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from pulsora.training import data as datasets
from pulsora.training.models import Transformer, lenet

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    Batches = list[tuple[Tensor, Tensor]]

BATCH = 128
HELD_OUT = 5000  # images at the end of the training part, on which learning rates are chosen
PIECE = 64  # bytes of a piece of text
DOCUMENTS = Path(__file__).resolve().parents[1] / "docs"
CLASSES, SHAPE, BYTES = 10, (28, 28), 256


class ResidualBlock(nn.Module):
    """Two convolutions of 3 x 3 with batch norms, and a shortcut around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)])
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        """Images [n, inputs, h, w] to [n, outputs, h / stride, w / stride]."""
        inner = functional.relu(self.norms[0](self.first(x)))
        return functional.relu(self.norms[1](self.second(inner)) + self.shortcut(x))


def resnet() -> nn.Module:
    """Eight convolutions with batch norms and a linear layer: 16, 16, 32 and 32 channels."""
    return nn.Sequential(
        nn.Unflatten(1, (1, *SHAPE)),
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        ResidualBlock(16, 16, 1), ResidualBlock(16, 32, 2), ResidualBlock(32, 32, 1),
        nn.AvgPool2d(7), nn.Flatten(), nn.Linear(32 * 4, CLASSES),
    )  # fmt: skip


def deep(width: int = 128, hidden: int = 8) -> nn.Module:
    """A perceptron of nine layers with ReLU: 784, eight times 128, 10."""
    sizes = [SHAPE[0] * SHAPE[1], *[width] * hidden]
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, CLASSES))


def bits_per_byte(output: Tensor, wanted: Tensor) -> Tensor:
    """Mean bits per byte of each piece of text."""
    losses = functional.cross_entropy(output.transpose(1, 2), wanted, reduction="none")
    return losses.mean(1) / math.log(2.0)


def is_right(output: Tensor, wanted: Tensor) -> Tensor:
    """100 for each image whose largest output is its class, else 0: the mean is in per cent."""
    return 100.0 * (output.argmax(-1) == wanted).float()


def loss(output: Tensor, wanted: Tensor) -> Tensor:
    """Mean cross entropy over all predictions."""
    return functional.cross_entropy(output.flatten(0, -2), wanted.flatten())


class Task(NamedTuple):
    """A network and what it learns.

    Attributes:
        make: Makes the network in floating point, by torch's generator.
        epochs: Epochs of the digital training.
        lr: Learning rate of AdamW in the digital training.
        is_text: Whether it predicts the next byte of the documents; else the class of an image.
    """

    make: Callable[[], nn.Module]
    epochs: int
    lr: float
    is_text: bool = False

    @property
    def metric(self) -> Callable[[Tensor, Tensor], Tensor]:
        """The score of each sample: per cent that should be high, or bits that should be low."""
        return bits_per_byte if self.is_text else is_right


TASKS = {
    "deep": Task(deep, 6, 1e-3),
    "lenet": Task(lambda: lenet(SHAPE, CLASSES), 6, 2e-3),
    "resnet": Task(resnet, 4, 3e-3),
    "transformer": Task(lambda: Transformer(SHAPE, CLASSES), 6, 1e-3),
    "gpt": Task(lambda: Transformer((PIECE,), BYTES), 30, 3e-3, is_text=True),
}


class Data:
    """Training, held-out and test batches of a task on a device.

    Args:
        task: The task.
        source: Folder of Fashion-MNIST, or the file of the text.
        device: Device of torch.
        most: At most so many samples of each part; 0 for all.
    """

    def __init__(self, task: Task, source: Path, device: str, most: int = 0) -> None:
        x, y, test_x, test_y = _text(source) if task.is_text else _images(source)
        held_out = min(HELD_OUT, len(x) // 10)
        count = len(x) - held_out
        self._x, self._y = (part[: most or count][:count].to(device) for part in (x, y))
        self.device = device
        self.held_out = _batches(x[count:], y[count:], device, most)
        self.test = _batches(test_x, test_y, device, most)

    def epoch(self, seed: int, number: int) -> Batches:
        """Whole mini-batches of an epoch, in an order that seed and number give."""
        order = torch.from_numpy(datasets.shuffled(len(self._x), seed, number)).to(self.device)
        whole = max(1, len(order) // BATCH)
        return [(self._x[rows], self._y[rows]) for rows in order.split(BATCH)[:whole]]


def _batches(x: Tensor, y: Tensor, device: str, most: int) -> Batches:
    rows = slice(0, most or len(x))
    return list(zip(x[rows].to(device).split(500), y[rows].to(device).split(500), strict=True))


def _images(folder: Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    data = datasets.load(folder)
    parts = (data.train_x, data.train_y, data.test_x, data.test_y)
    x, y, test_x, test_y = (torch.from_numpy(np.ascontiguousarray(part)) for part in parts)
    return x, y, test_x, test_y


def documents() -> bytes:
    """The bytes of all documents of this repository, one after the other."""
    return b"".join(page.read_bytes() for page in sorted(DOCUMENTS.rglob("*.md")))


def _text(path: Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Pieces of the text and the bytes that follow; every tenth piece is for testing."""
    text = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)
    pieces = text.long().unfold(0, PIECE + 1, PIECE)
    is_test = torch.arange(len(pieces)) % 10 == 9
    train, test = pieces[~is_test], pieces[is_test]
    return train[:, :-1], train[:, 1:], test[:, :-1], test[:, 1:]
