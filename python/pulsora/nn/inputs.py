"""Checks of the input of analog layers, and the type of their output."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pulsora.lowrank.functional import autocast_type

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "output_type",
    "owned",
    "require_input",
    "require_numbers",
    "require_tensor",
    "require_type",
    "require_written",
]


def require_tensor(x: object) -> None:
    """Raises TypeError unless x is a tensor."""
    if not isinstance(x, torch.Tensor):
        hint = ", as by torch.from_numpy(x)" if type(x).__module__ == "numpy" else ""
        raise TypeError(f"x is of type {type(x).__name__}: give a tensor of torch{hint}")


def require_written(name: str, values: Tensor, shape: tuple[int, ...] | None = None) -> None:
    """Raises an error unless values to be written are a tensor of real numbers, in memory."""
    if not isinstance(values, torch.Tensor):
        raise TypeError(f"{name} is of type {type(values).__name__}: give a tensor of torch")
    if values.is_complex():
        raise TypeError(
            f"{name} has type {values.dtype}: cells hold real numbers; give {name}.real"
        )
    if values.is_meta and name == "weight":  # a bias may get its values later
        raise ValueError(
            f"{name} is on the meta device and has no values; load them from files by "
            "pulsora.load_weights(model, files)"
        )
    if shape is not None and values.shape != shape:
        raise ValueError(f"{name} has shape {list(values.shape)}; expected {list(shape)}")


def require_type(x: Tensor, dtype: torch.dtype) -> None:
    """Raises TypeError unless x has the type of the layer, as torch does outside autocast."""
    if x.dtype != dtype and not torch.is_autocast_enabled(x.device.type):
        raise TypeError(
            f"x has type {x.dtype}, and this layer {dtype}: convert one by .to(...), or use "
            "torch.autocast"
        )


def require_numbers(x: Tensor) -> None:
    """Raises TypeError unless x is a dense tensor of floating-point numbers."""
    require_tensor(x)
    if not x.is_floating_point():
        raise TypeError(f"x has type {x.dtype}: give floating-point values, as by x.float()")
    if x.layout != torch.strided:
        raise TypeError(f"x is sparse ({x.layout}): give a dense tensor, as by x.to_dense()")


def require_input(x: Tensor, features: int, device: torch.device) -> None:
    """Raises an error unless a layer with so many features takes x.

    Raises:
        TypeError: for anything but tensors, for whole numbers and sparse tensors.
        ValueError: for another device or number of features.
    """
    require_numbers(x)
    if x.device != device:
        raise ValueError(f"x is on {x.device}, and this layer on {device}; move one by .to(...)")
    if x.shape[-1:] != (features,):
        raise ValueError(
            f"x has shape {list(x.shape)}: this layer takes {features} features in the last "
            "dimension"
        )


def owned(x: Tensor, weight: Tensor) -> Tensor:
    """Returns x, or a copy if its memory may be overwritten before the step that makes pulses of x.

    The caller may write to a mini-batch, to memory of NumPy and through `x.data`, and torch notices
    no such write. Results of torch's operations have memory of their own.
    """
    require_tensor(x)
    if torch.compiler.is_compiling() or not (weight.requires_grad and torch.is_grad_enabled()):
        return x
    base = x._base if x._is_view() else x  # noqa: SLF001
    if base is not None and base.grad_fn is not None:
        return x
    is_recorded = x.is_cuda and torch.cuda.is_current_stream_capturing()
    return x if is_recorded else x.clone()


def output_type(x: Tensor) -> torch.dtype:
    """Returns the type of y that a layer of torch would return."""
    return autocast_type(x) or x.dtype
