"""What is kept of the weights of a training: means of blocks, and a mean over its end."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    Values = list[Tensor]

__all__ = ["BlockMeans", "History", "Mean", "cosine", "drift", "match"]


class Mean:
    """The mean of weights that are added one by one."""

    def __init__(self) -> None:
        self.count = 0
        self._sums: Values = []

    def add(self, values: Values) -> None:
        """Takes one more."""
        if self.count == 0:
            self._sums = [value.clone() for value in values]
        else:
            torch._foreach_add_(self._sums, values)
        self.count += 1

    def shift(self, deltas: Values) -> None:
        """Moves what was added so far by a change."""
        if self.count:
            torch._foreach_add_(self._sums, deltas, alpha=float(self.count))

    def value(self) -> Values:
        """The mean; there must be something to take it of."""
        return [total / self.count for total in self._sums]

    def clear(self) -> None:
        """Forgets everything."""
        self.count, self._sums = 0, []

    def state_dict(self) -> dict[str, Any]:
        """Everything, as plain values and tensors."""
        return {"count": self.count, "sums": self._sums}

    @classmethod
    def loaded(cls, saved: Mapping[str, Any], like: Values) -> Mean:
        """The one that gave this state, of weights like these."""
        made = cls()
        made.count, made._sums = int(saved["count"]), match(saved["sums"], like)
        return made


class BlockMeans:
    """The means of the latest blocks, of which a block counts so many looks at the weights.

    Args:
        samples: Looks at the weights in a block.
        kept: How many blocks are kept, the oldest of which is forgotten first.
    """

    def __init__(self, samples: int, kept: int) -> None:
        self.samples = samples
        self.kept = kept
        self.means: list[Values] = []
        self.times: list[float] = []  # means over the blocks too
        self._open = Mean()
        self._open_times = 0.0

    def add(self, values: Values, time: float) -> bool:
        """Takes the weights as they are after so many passes; whether that completes a block."""
        self._open.add(values)
        self._open_times += time
        if self._open.count < self.samples:
            return False
        self.means = [*self.means, self._open.value()][-self.kept :]
        self.times = [*self.times, self._open_times / self.samples][-self.kept :]
        self.restart()
        return True

    def shift(self, deltas: Values) -> None:
        """Moves everything by a change that the weights were given, so that the history has no jump in it."""
        for mean in self.means:
            torch._foreach_add_(mean, deltas)
        self._open.shift(deltas)

    def latest(self, count: int) -> Values:
        """The mean of so many blocks, the latest ones."""
        mean = Mean()
        for values in self.means[-count:]:
            mean.add(values)
        return mean.value()

    def restart(self) -> None:
        """Drops a block that has begun, so that the next one begins now."""
        self._open.clear()
        self._open_times = 0.0

    def state_dict(self) -> dict[str, Any]:
        """Everything, as plain values and tensors."""
        times = {"times": self.times, "open_times": self._open_times}
        return {"means": self.means, "open": self._open.state_dict(), **times}

    def loaded(self, saved: Mapping[str, Any], like: Values) -> BlockMeans:
        """One like this in a saved state, of weights like these."""
        made = BlockMeans(self.samples, self.kept)
        made.means = [match(mean, like) for mean in saved["means"]]
        made._open = Mean.loaded(saved["open"], like)
        made.times, made._open_times = list(saved["times"]), float(saved["open_times"])
        return made


@dataclass(frozen=True)
class History:
    """What a forecaster is told of a training.

    Attributes:
        blocks: The weights.
        losses: Mean training losses of blocks, the latest last.
        block: Passes of a block.
        rates: A function of numbers of steps, in rising order, that gives the learning rates after them over that of now.
    """

    blocks: BlockMeans
    losses: Sequence[float]
    block: int
    rates: Callable[[Sequence[int]], list[float]]


def drift(blocks: BlockMeans, window: int) -> Values:
    """How far weights move in a pass: from the mean of a window of blocks to that of the next, the latest.

    There must be two blocks; where there are fewer than two windows, the window is half of them.
    """
    width = min(window, len(blocks.means) // 2)
    late, early = Mean(), Mean()
    for number in range(width):
        late.add(blocks.means[-1 - number])
        early.add(blocks.means[-1 - width - number])
    passed = sum(blocks.times[-width:]) - sum(blocks.times[-2 * width : -width])
    factor = width / passed
    return [factor * (a - b) for a, b in zip(late.value(), early.value(), strict=True)]


def cosine(first: Values, second: Values) -> float:
    """The cosine of two changes of weights; 0 where one is none."""

    def inner(a: Values, b: Values) -> float:
        return sum(float((x.double() * y.double()).sum()) for x, y in zip(a, b, strict=True))

    lengths = inner(first, first) * inner(second, second)
    return inner(first, second) / math.sqrt(lengths) if lengths > 0.0 else 0.0


def match(saved: Values, like: Values) -> Values:
    """Saved tensors, or none, on the devices of these; ValueError if they are of other weights."""
    if not saved:
        return []
    if [tuple(t.shape) for t in saved] != [tuple(t.shape) for t in like]:
        raise ValueError("the saved history is of weights of other shapes")
    return [tensor.to(other.device) for tensor, other in zip(saved, like, strict=True)]
