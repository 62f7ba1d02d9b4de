"""Checks of the operators' operands; values are not looked at, so that fake tensors pass too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pulsora._core import DeviceError, InputError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["TYPES", "check_adapter", "check_apart", "check_linear", "check_update", "outputs_of"]

TYPES = (torch.float32, torch.float16, torch.bfloat16)  # of the core
_TYPES = (*TYPES, torch.float64)
_LAYOUTS = ("kn", "nk")


def check_update(
    x: Tensor, v: Tensor, codes: Tensor | None, u: Tensor, u_layout: str, base: Tensor | None
) -> None:
    """Raises InputError, TypeError or DeviceError, naming the operand, unless all operands fit."""
    if u_layout not in _LAYOUTS:
        raise InputError(
            f"u_layout is {u_layout!r}; it must be 'kn' for u [K2, N] or 'nk' for u [N, K2]"
        )
    dtype, device = x.dtype, x.device
    if dtype not in _TYPES:
        _check_type("x", x)
    for name, tensor in (("v", v), ("codes", codes), ("u", u), ("base", base)):
        if tensor is not None and (tensor.dtype != dtype or tensor.device != device):
            _check_like("x", x, name, tensor)
    if x.dim() == 0:
        raise InputError("x is a single number; it must be [..., K1]")
    _check_matrix("v", v, "[K1, N]")
    _check_matrix("u", u, "[K2, N]" if u_layout == "kn" else "[N, K2]")
    inputs, rank = v.shape
    if x.shape[-1] != inputs:
        raise InputError(
            f"x is {_shape(x)} and v is {_shape(v)}; the last dimension of x must be the {inputs} "
            "rows of v"
        )
    if u.shape[1 if u_layout == "kn" else 0] != rank:
        other = "nk" if u_layout == "kn" else "kn"
        hint = f", or u_layout='{other}'" if rank in u.shape else ""
        raise InputError(
            f"u is {_shape(u)} with u_layout='{u_layout}' and v is {_shape(v)}; both must have the "
            f"same N: pass u {'[K2, N]' if u_layout == 'kn' else '[N, K2]'} with N = {rank}{hint}"
        )
    if codes is not None:
        _check_codes(codes, (*x.shape[:-1], rank))
    wanted = (*x.shape[:-1], outputs_of(u, u_layout))
    if base is not None and base.shape != wanted:
        raise InputError(
            f"base is {_shape(base)}; it must have the shape of the result, {list(wanted)}"
        )


def check_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    v: Tensor,
    codes: Tensor | None,
    u: Tensor,
    u_layout: str,
) -> None:
    """Raises InputError, TypeError or DeviceError, naming the operand, unless all operands fit."""
    check_update(x, v, codes, u, u_layout, None)
    _check_like("x", x, "weight", weight)
    wanted = (outputs_of(u, u_layout), x.shape[-1])
    if weight.shape != wanted:
        raise InputError(
            f"weight is {_shape(weight)}; with x {_shape(x)} and u {_shape(u)} it must be [K2, "
            f"K1], {list(wanted)}"
        )
    if bias is None:
        return
    _check_like("x", x, "bias", bias)
    if bias.shape != wanted[:1]:
        raise InputError(f"bias is {_shape(bias)}; it must be [K2], {list(wanted[:1])}")


def outputs_of(u: Tensor, u_layout: str) -> int:
    """K2, the number of outputs."""
    return u.shape[0 if u_layout == "kn" else 1]


def check_adapter(dc: Tensor, a: Tensor, b: Tensor, da: Tensor | None, db: Tensor | None) -> None:
    """Raises InputError, TypeError or DeviceError, naming the operand, unless all operands fit."""
    made = _check_types_of_adapter(dc, a, b, da, db)
    if dc.dim() == 0 or a.dim() == 0:
        raise InputError(
            f"dc is {_shape(dc)} and a is {_shape(a)}; they must be [..., n] and [..., K]"
        )
    _check_matrix("b", b, "[K, n]")
    if a.shape[:-1] != dc.shape[:-1]:
        raise InputError(
            f"a is {_shape(a)} and dc is {_shape(dc)}; all dimensions but the last must agree"
        )
    if b.shape != (a.shape[-1], dc.shape[-1]):
        raise InputError(
            f"b is {_shape(b)}; with dc {_shape(dc)} and a {_shape(a)} it must be "
            f"{[a.shape[-1], dc.shape[-1]]}"
        )
    for name, tensor, like in (("da", da, a), ("db", db, b)):
        if tensor is None:
            continue
        if tensor.shape != like.shape or tensor.dtype != made:
            kind = str(made).removeprefix("torch.")
            raise InputError(
                f"{name} is {_shape(tensor)} of {tensor.dtype}; it must be {kind} {_shape(like)}"
            )
        if not tensor.is_contiguous():
            raise InputError(f"{name} has gaps; it must be contiguous")


def _check_types_of_adapter(
    dc: Tensor, a: Tensor, b: Tensor, da: Tensor | None, db: Tensor | None
) -> torch.dtype:
    """Raises TypeError or DeviceError unless types and devices fit; the type of the results."""
    for name, tensor in (("dc", dc), ("a", a), ("b", b), ("da", da), ("db", db)):
        if tensor is not None:
            _check_type(name, tensor)
            _check_place("dc", dc, name, tensor)
    is_double = dc.dtype == torch.float64
    for name, tensor in (("a", a), ("b", b)):
        if (tensor.dtype == torch.float64) != is_double:
            raise TypeError(
                f"{name} has dtype {tensor.dtype} and dc has {dc.dtype}; float64 must be the type "
                f"of all three: pass {name}.to(dc.dtype)"
            )
    return torch.float64 if is_double else torch.float32


def check_apart(dc: Tensor, a: Tensor, b: Tensor, da: Tensor | None, db: Tensor | None) -> None:
    """Raises InputError if a result overlaps an operand (read after it) or the other result."""
    operands = (("dc", dc), ("a", a), ("b", b))
    for name, tensor, others in (("da", da, (*operands, ("db", db))), ("db", db, operands)):
        for other, operand in others:
            if tensor is not None and operand is not None and _share_memory(tensor, operand):
                raise InputError(
                    f"{name} and {other} share memory, which is read after it has been written; "
                    "give out memory of its own"
                )


def _check_codes(codes: Tensor, wanted: tuple[int, ...]) -> None:
    padded = (1,) * (len(wanted) - codes.dim()) + tuple(codes.shape)
    fits = len(padded) == len(wanted) and all(
        size in (1, target) for size, target in zip(padded, wanted, strict=True)
    )
    if not fits:
        raise InputError(f"codes are {_shape(codes)}, which does not broadcast to {list(wanted)}")


def _check_matrix(name: str, tensor: Tensor, meaning: str) -> None:
    if tensor.dim() != 2:
        raise InputError(f"{name} is {_shape(tensor)}; it must be a matrix {meaning}")


def _check_type(name: str, tensor: Tensor) -> None:
    if tensor.dtype not in _TYPES:
        raise TypeError(
            f"{name} has dtype {tensor.dtype}; convert it to float32, float16, bfloat16 or "
            f"float64, for example with {name}.float()"
        )


def _check_like(first: str, like: Tensor, name: str, tensor: Tensor) -> None:
    if tensor.dtype != like.dtype:
        raise TypeError(
            f"{name} has dtype {tensor.dtype} and {first} has {like.dtype}; pass "
            f"{name}.to({first}.dtype), or work under torch.autocast"
        )
    _check_place(first, like, name, tensor)


def _check_place(first: str, like: Tensor, name: str, tensor: Tensor) -> None:
    if tensor.device != like.device:
        raise DeviceError(
            f"{name} is on {tensor.device} and {first} on {like.device}; pass "
            f"{name}.to({first}.device)"
        )


def _share_memory(one: Tensor, other: Tensor) -> bool:
    """Whether the memory ranges of two tensors, from first to last number, overlap."""
    if not (one.numel() and other.numel()):
        return False
    spans = []
    for tensor in (one, other):
        last = sum(
            (size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True)
        )
        begin = tensor.data_ptr()
        spans.append((begin, begin + (last + 1) * tensor.element_size()))
    return spans[0][0] < spans[1][1] and spans[1][0] < spans[0][1]


def _shape(tensor: Tensor) -> list[int]:
    return list(tensor.shape)
