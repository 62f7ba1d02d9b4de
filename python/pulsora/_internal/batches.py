"""Batches as callers give them: inputs of a model, or pairs of inputs and targets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["hits", "inputs_of", "of_samples", "pair_of", "require_pairs"]


def inputs_of(batches: object) -> Iterator[Any]:
    """Yields the inputs of batches; of pairs (input, target) the input. A tensor is one batch.

    Raises:
        TypeError: If there is nothing to go through, before the first input.
        ValueError: For a batch that is an empty tuple or list.
    """
    given = [batches] if isinstance(batches, torch.Tensor) else batches
    _require_iterable(given, "inputs, such as [x], or a tensor, which is one batch")
    each: Any = given
    return (_input_of(number, batch) for number, batch in enumerate(each))


def _input_of(number: int, batch: Any) -> Any:  # noqa: ANN401
    if not isinstance(batch, tuple | list):
        return batch
    if not batch:
        raise ValueError(f"batches[{number}] = {batch!r}: give an input, or a pair (input, target)")
    return batch[0]


def require_pairs(batches: object) -> None:
    """Raises TypeError unless batches can be gone through again and again.

    A generator would be at its end after the first time.
    """
    _require_iterable(batches, "pairs (input, target), such as [(x, target)], or a DataLoader")
    if isinstance(batches, Iterator):
        raise TypeError(
            f"batches is of type {type(batches).__name__}, which can be gone through once; give "
            "list(batches), or a DataLoader"
        )


def pair_of(batch: object) -> tuple[Any, Any]:
    """Returns the input and the target of a batch.

    Raises:
        TypeError: Unless it is a pair.
    """
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        count = f" of {len(batch)}" if isinstance(batch, tuple | list) else ""
        raise TypeError(
            f"batches has an entry of type {type(batch).__name__}{count}; give pairs (input, "
            "target), such as [(x, target)]"
        )
    x, target = batch
    return x, target


def hits(y: Any, wanted: Any) -> torch.Tensor:  # noqa: ANN401
    """Returns for each sample whether the largest output (or `logits`) is its target's class.

    Raises:
        TypeError: For outputs that are no tensor and have no `logits`.
        ValueError: Unless there is one target for each sample.
    """
    logits = y.get("logits") if isinstance(y, Mapping) else getattr(y, "logits", y)
    if not isinstance(logits, torch.Tensor):
        raise TypeError(
            f"the model gave an output of type {type(y).__name__}, which is no tensor and has no "
            "'logits'; give a metric of your own"
        )
    if logits.shape[-1:] == (1,):
        raise ValueError(
            f"the outputs have shape {list(logits.shape)}, and a single class, which is always the "
            "largest; give a metric of your own, such as "
            "lambda y, target: (y.squeeze(-1) > 0) == target"
        )
    found: torch.Tensor = logits.argmax(-1)
    shape = getattr(wanted, "shape", None)
    if shape is None or tuple(shape) != tuple(found.shape):
        given = f"type {type(wanted).__name__}" if shape is None else f"shape {list(shape)}"
        raise ValueError(
            f"targets have {given}, and the classes of the outputs shape {list(found.shape)}; give "
            "the number of a class for each sample, or a metric of your own"
        )
    same: torch.Tensor = found == wanted
    return same


def of_samples(
    metric: str | Callable[[Any, torch.Tensor], torch.Tensor] | None,
    y: Any,  # noqa: ANN401
    wanted: torch.Tensor,
) -> torch.Tensor:
    """Returns the metric of each sample; without a function, whether it is a hit.

    Raises:
        ValueError: Unless the metric gives real numbers [samples], or as many for each sample.
    """
    if metric is None or isinstance(metric, str):
        return hits(y, wanted).float()
    found: object = metric(y, wanted)
    if not isinstance(found, torch.Tensor) or found.ndim == 0:
        is_number = isinstance(found, torch.Tensor | int | float)
        given = f"{type(found).__name__}{' of no dimension' if is_number else ''}"
        raise ValueError(
            f"the metric gave {given}; it must give a tensor with one number for each sample (a "
            "loss: reduction='none')"
        )
    if found.ndim > 1:
        raise ValueError(
            f"the metric gave a tensor of shape {list(found.shape)}; it must give one number for "
            "each sample: take the mean over the other dimensions, or flatten() them"
        )
    if found.is_complex():
        raise ValueError(
            f"the metric gave complex numbers, {found.dtype}; it must give real ones, such as "
            "their abs()"
        )
    if len(found) % max(len(wanted), 1) or len(found) < min(len(wanted), 1):
        raise ValueError(
            f"the metric gave {len(found)} numbers for {len(wanted)} samples; it must give one for "
            "each sample, or as many for each"
        )
    return found


def _require_iterable(batches: object, wanted: str) -> None:
    is_one = isinstance(batches, str | bytes | Mapping | torch.Tensor)
    if is_one or not any(hasattr(batches, name) for name in ("__iter__", "__getitem__")):
        shown = f" = {batches!r}" if isinstance(batches, bool | int | float | None) else ""
        raise TypeError(
            f"batches{shown} is of type {type(batches).__name__}; give a list of {wanted}"
        )
