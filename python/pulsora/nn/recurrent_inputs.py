"""Checks of the inputs and the initial states of recurrent layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pulsora.nn.inputs import require_tensor

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from torch import Tensor

    State: TypeAlias = tuple[Tensor, ...]

__all__ = ["initial_state", "require_steps"]


def require_steps(x: Tensor, size: int, *, batch_first: bool, is_packed: bool) -> None:
    """Raises an error unless x is a tensor with steps of `size` features."""
    require_tensor(x)
    dimensions = (2,) if is_packed else (2, 3)
    fits = x.ndim in dimensions and x.shape[-1] == size
    if not fits or not (x.shape[batch_first] if x.ndim == 3 else len(x)):
        batch = "m, steps" if batch_first else "steps, m"
        raise ValueError(
            f"x has shape {list(x.shape)}: give [{batch}, {size}], [steps, {size}] for one "
            "sequence, or a PackedSequence of such features, with at least one step"
        )


def initial_state(
    hx: Tensor | State | None, shapes: Sequence[tuple[int, ...]], x: Tensor, *, is_one: bool
) -> State:
    """Returns the states before the first step, with a batch; zeros by default.

    Raises:
        ValueError: unless hx has these shapes, without the batch for one sequence.
    """
    if hx is None:
        return tuple(x.new_zeros(shape) for shape in shapes)
    given = (hx,) if isinstance(hx, torch.Tensor) else tuple(hx)
    if is_one:
        given = tuple(each[:, None] if each.ndim == 2 else each[None] for each in given)
    if [tuple(each.shape) for each in given] != list(shapes):
        wanted = [list(shape[::2] if is_one else shape) for shape in shapes]
        raise ValueError(
            f"hx has shapes {[list(each.shape) for each in given]}: give {wanted}, in a tuple if "
            "they are two"
        )
    return given
