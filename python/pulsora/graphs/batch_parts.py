"""Tensors of a batch of any structure, and the structure that puts them back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from torch import Tensor

__all__ = ["put_together", "taken_apart"]

_TENSOR = "tensor"
_MAPPING = "mapping"
_SEQUENCE = "sequence"
_CONSTANT = "constant"
_CONSTANTS = (type(None), bool, int, float, str, bytes, torch.dtype, torch.device)


def taken_apart(batch: object, tensors: list[Tensor]) -> Hashable:
    """Appends the tensors of a batch to a list, and returns the rest, with all constants in it.

    Args:
        batch: A tensor, or tuples, lists and mappings of tensors and constants.
        tensors: The list.

    Raises:
        TypeError: For an object of any other type, in which tensors could hide.
    """
    if isinstance(batch, torch.Tensor):
        tensors.append(batch)
        return _TENSOR
    if isinstance(batch, Mapping):
        parts = tuple(taken_apart(value, tensors) for value in batch.values())
        return _MAPPING, type(batch), tuple(batch), parts
    if isinstance(batch, tuple | list):
        return _SEQUENCE, type(batch), tuple(taken_apart(each, tensors) for each in batch)
    if isinstance(batch, _CONSTANTS):
        return _CONSTANT, type(batch), batch
    raise TypeError(
        f"a batch has an object of type {type(batch).__name__}; a step takes tensors, and tuples, "
        "lists and mappings of tensors and constants"
    )


def put_together(structure: Any, tensors: Iterator[Tensor]) -> Any:  # noqa: ANN401
    """Returns a batch of a structure of `taken_apart`, with the next tensors."""
    if structure == _TENSOR:
        return next(tensors)
    kind, made, *rest = structure
    if kind == _CONSTANT:
        return rest[0]
    parts = [put_together(part, tensors) for part in rest[-1]]
    if kind == _MAPPING:
        return made(dict(zip(rest[0], parts, strict=True)))
    return made(*parts) if hasattr(made, "_fields") else made(parts)
