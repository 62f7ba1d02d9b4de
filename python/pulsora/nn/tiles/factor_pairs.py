"""The factors (x, d) of a gradient, from which pulses are made."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from pulsora import _core

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

__all__ = ["Pair", "TileSamples", "concatenated", "require_finite"]


class Pair(NamedTuple):
    """Inputs x [m, groups * in_features] and output gradients d [m, out_features] of a read."""

    x: Tensor
    d: Tensor
    versions: tuple[int, int]
    """Version counters of torch for x and d when the pair was made."""
    gate: Tensor | None = None
    """Weights [m, rank] of the adapters' components in a gated read; never written to."""

    @classmethod
    def of(cls, x: Tensor, d: Tensor, gate: Tensor | None = None) -> Pair:
        """Makes a pair of the present values."""
        return cls(x, d, (x._version, d._version), gate)  # noqa: SLF001 - documented by torch

    @classmethod
    def concatenated(cls, pairs: Sequence[Pair]) -> Pair:
        """Concatenates the samples of pairs; several pairs must be without gates."""
        if len(pairs) == 1:
            return pairs[0]
        return cls.of(torch.cat([x for x, *_ in pairs]), torch.cat([d for _, d, *_ in pairs]))

    def scaled(self, factor: Tensor | float) -> Pair:
        """Returns a pair with d times the factor; the tensors of this pair do not change."""
        d = self.d * factor
        return self._replace(d=d, versions=(self.versions[0], d._version))  # noqa: SLF001


class TileSamples(NamedTuple):
    """Contiguous samples of an update, with d divided by the scales of the weights."""

    x: Tensor
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


def require_finite(pairs: Sequence[Pair]) -> None:
    """Raises ValueError if one of the pairs holds a value that is not finite."""
    for name, values in (
        ("activations", [pair.x for pair in pairs]),
        ("gradients", [pair.d for pair in pairs]),
        ("gates", [pair.gate for pair in pairs if pair.gate is not None]),
    ):
        if not all(_is_finite(each) for each in values):
            raise ValueError(
                f"the {name} of an analog layer are not finite (nan or inf); no pulse was "
                "sent. Lower the learning rate or look at the loss"
            )


def _is_finite(values: Tensor) -> bool:
    """Whether all values are finite, in one pass over CPU memory; torch takes several."""
    if values.is_cpu and values.dtype == torch.float32:
        return _core.is_finite(values.detach().contiguous().numpy())
    return bool(values.isfinite().all())
