"""The factors (x, d) of a gradient, from which pulses are made."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from pulsora.nn.tiles.patches import Patches, as_matrix

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

__all__ = ["Factors", "Pair", "TileSamples", "concatenated"]


class Pair(NamedTuple):
    """Inputs x [m, groups * in_features] and output gradients d [m, out_features] of a read."""

    x: Tensor | Patches
    d: Tensor
    versions: tuple[int, int]
    """Version counters of torch for x and d when the pair was made."""
    gate: Tensor | None = None
    """Weights [m, rank] of the adapters' components in a gated read; never written to."""

    @classmethod
    def of(cls, x: Tensor | Patches, d: Tensor, gate: Tensor | None = None) -> Pair:
        """Makes a pair of the present values."""
        return cls(x, d, (x._version, d._version), gate)  # noqa: SLF001 - documented by torch

    @classmethod
    def concatenated(cls, pairs: Sequence[Pair]) -> Pair:
        """Concatenates the samples of pairs; several pairs must be without gates."""
        if len(pairs) == 1:
            return pairs[0]
        inputs = [pair.x for pair in pairs]
        patches = [x for x in inputs if isinstance(x, Patches)]
        alike = {(x.images.shape[1:], *x[1:]) for x in patches}
        x: Tensor | Patches
        if len(patches) == len(inputs) and len(alike) == 1:
            x = patches[0]._replace(images=torch.cat([each.images for each in patches]))
        else:
            x = torch.cat([as_matrix(each) for each in inputs])
        return cls.of(x, torch.cat([d for _, d, *_ in pairs]))

    def scaled(self, factor: Tensor | float) -> Pair:
        """Returns a pair with d times the factor; the tensors of this pair do not change."""
        d = self.d * factor
        return self._replace(d=d, versions=(self.versions[0], d._version))  # noqa: SLF001


class Factors:
    """The pairs (x, d) of a gradient, which all views of the gradient share.

    Attributes:
        pairs: The pairs; None if there were more backward passes than are kept.
        passes: Number of backward passes in the sum.
        is_fixed: Whether the update reuses reads of d, so that d may not be scaled afterwards.
        lost: Why pairs were dropped.
        has_warned: Whether a warning has told how many passes are kept.
    """

    __slots__ = ("has_warned", "is_fixed", "lost", "pairs", "passes")

    def __init__(
        self, pairs: tuple[Pair, ...] | None, *, is_fixed: bool = False, passes: int = 0
    ) -> None:
        self.pairs = pairs
        self.passes = passes
        self.is_fixed = is_fixed
        self.lost = ""
        self.has_warned = False

    def replaced(self, pairs: tuple[Pair, ...] | None) -> Factors:
        """Returns other pairs with these properties."""
        made = Factors(pairs, is_fixed=self.is_fixed, passes=self.passes)
        made.lost = self.lost
        return made

    def take(self, other: Factors) -> None:
        """Takes over the pairs of another gradient."""
        self.pairs, self.passes, self.lost = other.pairs, other.passes, other.lost

    def clear(self) -> None:
        """Makes the gradient zero."""
        self.pairs, self.passes, self.lost, self.has_warned = (), 0, "", False

    def drop(self, reason: str) -> None:
        """Drops the pairs, so that reading them is an error with this reason until clear()."""
        self.pairs, self.lost = None, reason

    @property
    def bytes(self) -> int:
        """Memory of x and d."""
        return sum(pair.x.nbytes + pair.d.nbytes for pair in self.pairs or ())


class TileSamples(NamedTuple):
    """Contiguous samples of an update, with d divided by the scales of the weights."""

    x: Tensor | Patches
    d: Tensor
    gate: Tensor | None
    """Weights of the adapters' components, if their read was gated."""


_MOST_CONCATENATED = 2**20
"""Most numbers in concatenated pairs: so few that copying them costs almost nothing."""


def concatenated(pairs: Sequence[Pair]) -> Iterator[Pair]:
    """Concatenates neighbouring pairs of few samples, such as the steps of a recurrent layer.

    An update by few samples costs a tile as much as one by some dozens, and how a mini-batch is
    split changes no bit of the result.
    """
    group: list[Pair] = []
    size = 0
    for pair in pairs:
        more = pair.x.numel() + pair.d.numel()
        gated = pair.gate is not None or (group and group[-1].gate is not None)
        if group and (gated or size + more > _MOST_CONCATENATED):
            yield Pair.concatenated(group)
            group, size = [], 0
        group.append(pair)
        size += more
    if group:
        yield Pair.concatenated(group)
