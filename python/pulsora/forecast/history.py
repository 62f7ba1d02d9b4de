"""Statistics of the weights during a training: means of blocks, and a mean over the end."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    Values = list[Tensor]

__all__ = ["BlockMeans", "History", "Mean", "cosine", "drift", "inner", "match", "windows"]


class Mean:
    """The mean of weights that are added one by one."""

    def __init__(self) -> None:
        self.count = 0
        self._sums: Values = []

    def add(self, values: Values) -> None:
        """Adds one more set of weights."""
        if self.count == 0:
            self._sums = [value.clone() for value in values]
        else:
            torch._foreach_add_(self._sums, values)
        self.count += 1

    def shift(self, deltas: Values) -> None:
        """Adds a change to everything added so far."""
        if self.count:
            torch._foreach_add_(self._sums, deltas, alpha=float(self.count))

    def value(self) -> Values:
        """The mean of at least one set of weights."""
        return [total / self.count for total in self._sums]

    def clear(self) -> None:
        """Drops all weights."""
        self.count, self._sums = 0, []

    def state_dict(self) -> dict[str, Any]:
        """The state, as plain values and tensors."""
        return {"count": self.count, "sums": self._sums}

    @classmethod
    def loaded(cls, saved: Mapping[str, Any], like: Values) -> Mean:
        """The mean with this state, for weights like `like`."""
        made = cls()
        made.count, made._sums = int(saved["count"]), match(saved["sums"], like)
        return made


class BlockMeans:
    """The means of the weights over the latest blocks.

    Args:
        samples: Samples of the weights in a block.
        kept: Number of blocks kept; the oldest is dropped first.
    """

    def __init__(self, samples: int, kept: int) -> None:
        self.samples = samples
        self.kept = kept
        self.means: list[Values] = []
        self.times: list[float] = []  # mean times of the blocks
        self._open = Mean()
        self._open_times = 0.0

    def add(self, values: Values, time: float) -> bool:
        """Adds the weights after `time` passes; returns whether they complete a block."""
        self._open.add(values)
        self._open_times += time
        if self._open.count < self.samples:
            return False
        self.means = [*self.means, self._open.value()][-self.kept :]
        self.times = [*self.times, self._open_times / self.samples][-self.kept :]
        self.restart()
        return True

    def shift(self, deltas: Values) -> None:
        """Shifts all means by a change of the weights, so that the history has no jump in it."""
        for mean in self.means:
            torch._foreach_add_(mean, deltas)
        self._open.shift(deltas)

    def restart(self) -> None:
        """Drops the open block, so that the next block begins now."""
        self._open.clear()
        self._open_times = 0.0

    def state_dict(self) -> dict[str, Any]:
        """The state, as plain values and tensors."""
        times = {"times": self.times, "open_times": self._open_times}
        return {"means": self.means, "open": self._open.state_dict(), **times}

    def loaded(self, saved: Mapping[str, Any], like: Values) -> BlockMeans:
        """Block means like this from a saved state, for weights like `like`."""
        made = BlockMeans(self.samples, self.kept)
        made.means = [match(mean, like) for mean in saved["means"]]
        made._open = Mean.loaded(saved["open"], like)
        made.times, made._open_times = list(saved["times"]), float(saved["open_times"])
        return made


@dataclass(frozen=True)
class History:
    """The history of a training, as forecasters see it.

    Attributes:
        blocks: Means of the weights.
        losses: Mean training losses of blocks, the latest last.
        block: Passes of a block.
        rates: Function from numbers of steps, in rising order, to the learning rates after them
            over the present rate.
    """

    blocks: BlockMeans
    losses: Sequence[float]
    block: int
    rates: Callable[[Sequence[int]], list[float]]


def windows(blocks: BlockMeans, window: int) -> tuple[Values, Values, float]:
    """Means of the weights over two adjacent windows of blocks, and the passes between them.

    The second window ends with the latest block. At least two blocks are needed; with fewer than
    two windows, a window is half of the blocks.
    """
    width = min(window, len(blocks.means) // 2)
    late, early = Mean(), Mean()
    for number in range(width):
        late.add(blocks.means[-1 - number])
        early.add(blocks.means[-1 - width - number])
    passed = sum(blocks.times[-width:]) - sum(blocks.times[-2 * width : -width])
    return early.value(), late.value(), passed / width


def drift(blocks: BlockMeans, window: int) -> Values:
    """Drift of the weights per pass, from the mean of one window of blocks to the next."""
    early, late, passed = windows(blocks, window)
    return [(a - b) / passed for a, b in zip(late, early, strict=True)]


def inner(first: Values, second: Values) -> float:
    """The inner product of two changes of weights."""
    pairs = zip(first, second, strict=True)
    return sum(float((x.double() * y.double()).sum()) for x, y in pairs)


def cosine(first: Values, second: Values) -> float:
    """The cosine of two changes of weights; 0 if one is zero."""
    lengths = inner(first, first) * inner(second, second)
    return inner(first, second) / math.sqrt(lengths) if lengths > 0.0 else 0.0


def match(saved: Values, like: Values) -> Values:
    """Saved tensors, or none, on the devices of `like`; ValueError if their shapes differ."""
    if not saved:
        return []
    if [tuple(t.shape) for t in saved] != [tuple(t.shape) for t in like]:
        raise ValueError("the saved history is of weights of other shapes")
    return [tensor.to(other.device) for tensor, other in zip(saved, like, strict=True)]
