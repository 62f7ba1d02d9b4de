"""Batches and outputs of models: structures of tensors, whose rows are those of samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

__all__ = ["folded", "parts", "pieces", "row_count", "rows", "tensors", "whole_entry"]

_CUT = (torch.Tensor, tuple, list, dict)
"""Entries of mappings that the metric sees; others, such as caches, are left out."""


def folded(x: Any, count: int) -> Any:  # noqa: ANN401 - any structure of tensors
    """Returns a batch `count` times one after another, along the first dimension of its tensors."""
    return _mapped(x, lambda tensor: tensor.repeat(count, *[1] * (tensor.ndim - 1)))


def rows(values: Any, start: int, stop: int) -> Any:  # noqa: ANN401
    """Returns a structure with some rows of each tensor."""
    return _mapped(values, lambda tensor: tensor[start:stop])


def row_count(values: Any) -> int:  # noqa: ANN401
    """Returns the number of rows of the longest tensor; 1 without one."""
    return max((len(tensor) for tensor in tensors(values) if tensor.ndim), default=1)


def tensors(values: Any) -> list[Tensor]:  # noqa: ANN401
    """Returns the tensors of a structure, in order."""
    found: list[Tensor] = []
    _mapped(values, found.append, numbers=True)
    return found


def pieces(x: Any, wanted: Tensor, samples: int) -> list[tuple[Any, Tensor]]:  # noqa: ANN401
    """Cuts a batch and its targets into pieces of so many samples, if all tensors have as many."""
    sizes = {tensor.shape[:1] for tensor in (*tensors(x), wanted)}
    if sizes != {wanted.shape[:1]} or not wanted.ndim:
        return [(x, wanted)]
    starts = range(0, len(wanted), samples)
    return [(rows(x, i, i + samples), wanted[i : i + samples]) for i in starts]


def parts(y: Any, count: int) -> list[Any]:  # noqa: ANN401
    """Cuts an output in which `whole_entry` finds nothing into so many parts of equal size."""
    if count == 1 or y is None:
        return [y] * count
    if isinstance(y, torch.Tensor):
        return list(y.chunk(count))
    if hasattr(y, "items"):
        cut = {name: parts(value, count) for name, value in _seen(y).items()}
        return [_mapping(y, {name: cut[name][r] for name in cut}) for r in range(count)]
    columns = [parts(value, count) for value in y]
    return [_sequence(y, [column[r] for column in columns]) for r in range(count)]


def whole_entry(y: Any) -> str | None:  # noqa: ANN401
    """Returns what of an output has no rows of samples, in words, or None."""
    if y is None or (isinstance(y, torch.Tensor) and y.ndim):
        return None
    if isinstance(y, torch.Tensor):
        return "a tensor of no dimension, such as a loss"
    if hasattr(y, "items"):
        y = tuple(_seen(y).values())
    if not isinstance(y, tuple | list):
        return f"an entry of type {type(y).__name__}"
    return next((found for found in map(whole_entry, y) if found), None)


def _seen(y: Mapping[Any, Any]) -> dict[Any, Any]:
    """Returns the entries of a mapping that a metric sees."""
    return {name: value for name, value in y.items() if isinstance(value, _CUT)}


def _mapped(
    values: Any,  # noqa: ANN401
    change: Callable[[Tensor], Any],
    *,
    numbers: bool = False,
) -> Any:  # noqa: ANN401
    """Returns a structure with change(tensor) in place of each tensor.

    Tensors of no dimension stay, unless `numbers`.
    """
    if isinstance(values, torch.Tensor):
        return change(values) if values.ndim or numbers else values
    if isinstance(values, dict) or hasattr(values, "items"):
        given: Mapping[Any, Any] = values
        return {name: _mapped(value, change, numbers=numbers) for name, value in given.items()}
    if isinstance(values, tuple | list):
        return _sequence(values, [_mapped(value, change, numbers=numbers) for value in values])
    return values


def _mapping(like: Any, entries: dict[Any, Any]) -> Any:  # noqa: ANN401
    """Returns a mapping of the same type; types of named outputs take names."""
    are_names = all(isinstance(name, str) for name in entries)
    return type(like)(**entries) if are_names else dict(entries)


def _sequence(like: Any, entries: list[Any]) -> Any:  # noqa: ANN401
    """Returns a tuple, named tuple or list of the same type."""
    return type(like)(*entries) if hasattr(like, "_fields") else type(like)(entries)
