"""Counts of values by the upper bits of their magnitude, and ranges from them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["BINS", "INFINITE", "BinCounts", "counted", "range_of", "root_mean_square"]

_DROPPED = 13  # bits of a float's 31 without its sign: 10 bits of the fraction are kept
BINS = 1 << (31 - _DROPPED)
"""Number of bins."""

INFINITE = 0x7F80_0000 >> _DROPPED
"""The first bin of values that are not finite."""


def counted(x: Tensor) -> Tensor:
    """Counts values by their bins, [BINS]."""
    return torch.bincount(_bins(x).flatten(), minlength=BINS)[:BINS].cpu()


def range_of(count: Tensor, share: float) -> float:
    """Returns the upper end of the bin in which this share of the values is reached."""
    filled = count.nonzero().flatten()
    return _range_of(filled, count[filled], share)


def root_mean_square(count: Tensor) -> float:
    """Returns the root mean square of counted values, each in the middle of its bin."""
    filled = count.nonzero().flatten()
    low, high = _edges(filled).double(), _edges(filled + 1).double()
    middle = torch.where(filled == 0, 0.0, (low + high) / 2)
    return math.sqrt(float((count[filled] * middle.square()).sum()) / int(count.sum()))


class BinCounts:
    """Counts of values by group and bin, which take memory for the bins that are filled.

    Counts are integers, so that the order of values and their split over calls do not matter.
    """

    def __init__(self) -> None:
        self._keys = torch.empty(0, dtype=torch.int64)  # group BINS + bin, ascending
        self._counts = torch.empty(0, dtype=torch.int64)

    def add(self, x: Tensor, groups: Tensor) -> None:
        """Counts values [m, n]; column j belongs to the group groups[j]."""
        new = BinCounts()
        keys, counts = torch.unique(_bins(x) + groups * BINS, return_counts=True)
        new._keys, new._counts = keys.cpu(), counts.cpu()
        self.__dict__.update(vars(self + new))

    def __add__(self, other: BinCounts) -> BinCounts:
        """Adds counts of the same groups."""
        both = BinCounts()
        keys = torch.cat([self._keys, other._keys])
        both._keys, place = torch.unique(keys, return_inverse=True)
        counts = torch.cat([self._counts, other._counts])
        both._counts = torch.zeros_like(both._keys).index_add_(0, place, counts)
        return both

    def are_finite(self) -> bool:
        """Whether all values were finite."""
        return not bool((self._keys % BINS >= INFINITE).any())

    def ranges(self, share: float) -> dict[int, float]:
        """Returns `range_of` the values of each group that has other values than 0."""
        groups, sizes = torch.unique_consecutive(self._keys // BINS, return_counts=True)
        found = {}
        keys_of = torch.split(self._keys, sizes.tolist())
        counts_of = torch.split(self._counts, sizes.tolist())
        for group, keys, counts in zip(groups.tolist(), keys_of, counts_of, strict=True):
            bins = keys - group * BINS
            if int(bins[-1]) > 0:
                found[group] = _range_of(bins, counts, share)
        return found


def _bins(x: Tensor) -> Tensor:
    """Returns the upper bits of magnitudes."""
    return x.detach().float().abs().contiguous().view(torch.int32).long() >> _DROPPED


def _edges(bins: Tensor) -> Tensor:
    """Returns the lower ends of bins."""
    return (bins.to(torch.int32) << _DROPPED).view(torch.float32)


def _range_of(bins: Tensor, counts: Tensor, share: float) -> float:
    below = counts.cumsum(0)
    reached = int((below.double() >= share * float(below[-1])).nonzero()[0])
    return float(_edges(bins[reached : reached + 1].clamp(min=1) + 1))
