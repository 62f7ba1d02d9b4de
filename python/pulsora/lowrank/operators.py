"""The operators torch.ops.pulsora.gated_low_rank, ..._linear, ..._backward and adapter_gradients.

The operators hand the memory of tensors to the core; `pulsora.lowrank.functional` adds autograd.
They are registered by define, impl and register_fake: `torch.library.custom_op` takes the host
several times as long, about as long as a small update itself.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import torch
from torch.library import define, impl, register_fake
from torch.nn.functional import linear

from pulsora import _core
from pulsora.lowrank import plain
from pulsora.lowrank.checks import (
    check_adapter,
    check_apart,
    check_linear,
    check_update,
    outputs_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

__all__ = [
    "adapter_gradients",
    "gated_low_rank",
    "gated_low_rank_backward",
    "gated_low_rank_linear",
    "write_adapter_gradients",
]

_UPDATE = "Tensor x, Tensor v, Tensor? codes, Tensor u, str u_layout, float scale"
_PLACES = ("cpu", "cuda")
_MOST_THREADS = 64

define("pulsora::gated_low_rank", f"({_UPDATE}, Tensor? base) -> Tensor")
define(
    "pulsora::gated_low_rank_linear",
    "(Tensor x, Tensor weight, Tensor? bias, Tensor v, Tensor? codes, Tensor u, str u_layout, "
    "float scale) -> Tensor",
)
define("pulsora::gated_low_rank_backward", f"(Tensor dy, {_UPDATE}, bool[4] wanted) -> Tensor[]")
define(
    "pulsora::adapter_gradients",
    "(Tensor dc, Tensor a, Tensor b, Tensor(a!)? da, Tensor(b!)? db, bool[2] accumulate) -> ()",
)


def _place(tensor: Tensor) -> tuple[int, int, int]:
    """Device, stream and threads, as the core takes them."""
    if tensor.is_cuda:
        device = tensor.get_device()
        return device, torch.cuda.current_stream(device).cuda_stream, 1
    return -1, 0, min(torch.get_num_threads(), _MOST_THREADS)


def _rows(tensor: Tensor) -> Tensor:
    """[..., K] as a matrix with contiguous rows; a copy only if its strides need one."""
    if tensor.dim() != 2:
        tensor = tensor.reshape(prod(tensor.shape[:-1]), tensor.shape[-1])
    return tensor if tensor.stride(1) == 1 or tensor.shape[1] < 2 else tensor.contiguous()


_NO_CODES = (0, 0, 1, 0, 0, 0)


def _laid_out(
    codes: Tensor | None, wanted: tuple[int, ...]
) -> tuple[Tensor | None, tuple[int, int, int, int, int, int]]:
    """Codes, and how rows share codes: (rows, N, inner, strides of outer, inner and column)."""
    if codes is None:
        return None, _NO_CODES
    if codes.shape != wanted:
        codes = codes.expand(wanted)
    rows = prod(wanted[:-1])
    runs: list[tuple[int, int]] = []  # (size, stride), innermost first
    for size, stride in zip(reversed(wanted[:-1]), reversed(codes.stride()[:-1]), strict=True):
        if size == 1:
            continue
        if runs and stride == runs[-1][0] * runs[-1][1]:
            runs[-1] = (runs[-1][0] * size, runs[-1][1])
        else:
            runs.append((size, stride))
    if len(runs) > 2:  # too irregular to be described by two strides
        codes = codes.contiguous()
        runs = [(rows, wanted[-1])]
    if len(runs) < 2:
        stride = runs[0][1] if runs else 0
        return codes, (rows, wanted[-1], 1, stride, 0, codes.stride(-1))
    (inner, inner_stride), (_, outer_stride) = runs
    return codes, (rows, wanted[-1], inner, outer_stride, inner_stride, codes.stride(-1))


def _gated_low_rank(
    x: Tensor,
    v: Tensor,
    codes: Tensor | None,
    u: Tensor,
    u_layout: str,
    scale: float,
    base: Tensor | None,
) -> Tensor:
    check_update(x, v, codes, u, u_layout, base)
    if x.dtype == torch.float64:
        return plain.update(x, v, codes, u, u_layout, scale, base)
    gates, layout = _laid_out(codes, (*x.shape[:-1], v.shape[1]))
    y = x.new_empty((*x.shape[:-1], outputs_of(u, u_layout)))
    added = None if base is None else _rows(base)
    wide = u if u_layout == "kn" else u.t()
    _core.gated_low_rank(_rows(x), v, gates, layout, wide, scale, added, _rows(y), *_place(x))
    return y


@register_fake("pulsora::gated_low_rank")  # type: ignore[untyped-decorator]
def _fake_gated_low_rank(
    x: Tensor,
    v: Tensor,
    codes: Tensor | None,
    u: Tensor,
    u_layout: str,
    scale: float,  # noqa: ARG001 - as the operator has it
    base: Tensor | None,
) -> Tensor:
    check_update(x, v, codes, u, u_layout, base)
    return x.new_empty((*x.shape[:-1], outputs_of(u, u_layout)))


# Least elements of a result for a fused kernel. No kernel of a GPU is expected to pay for fewer,
# and asking the core takes the host some microseconds.
_LEAST_FUSED = 1 << 17
# Tests set this, so that a kernel serves wherever it can, even where it is not expected to pay.
always_fused = False


def _allows_tf32() -> bool:
    """Whether torch may use TF32 for float32 products on a GPU, faster than exact kernels."""
    try:
        return torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:  # the two interfaces of torch disagree
        return True


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x weight^T + bias in the type of x, contiguous, and without a record for autograd."""
    if torch.is_autocast_enabled(x.device.type):
        with torch.autocast(x.device.type, enabled=False):
            return _product(x, weight, bias)
    with torch.no_grad():
        return linear(x, weight, bias).contiguous()


def _gated_low_rank_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    v: Tensor,
    codes: Tensor | None,
    u: Tensor,
    u_layout: str,
    scale: float,
) -> Tensor:
    check_linear(x, weight, bias, v, codes, u, u_layout)
    if x.dtype == torch.float64:
        return plain.update_of_layer(x, weight, bias, v, codes, u, u_layout, scale)
    gates, layout = _laid_out(codes, (*x.shape[:-1], v.shape[1]))
    wide = u if u_layout == "kn" else u.t()
    place = _place(x)
    large = always_fused or prod(x.shape[:-1]) * weight.shape[0] >= _LEAST_FUSED
    if x.is_cuda and large and (x.dtype != torch.float32 or not _allows_tf32()):
        y = x.new_empty((*x.shape[:-1], weight.shape[0]))
        row = None if bias is None else bias.unsqueeze(0)
        if _core.gated_low_rank_linear(
            _rows(x), weight, row, v, gates, layout, wide, scale, _rows(y), always_fused, *place
        ):
            return y
    y = _product(x, weight, bias)
    added = _rows(y)
    _core.gated_low_rank(_rows(x), v, gates, layout, wide, scale, added, added, *place)
    return y


@register_fake("pulsora::gated_low_rank_linear")  # type: ignore[untyped-decorator]
def _fake_gated_low_rank_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    v: Tensor,
    codes: Tensor | None,
    u: Tensor,
    u_layout: str,
    scale: float,  # noqa: ARG001 - as the operator has it
) -> Tensor:
    check_linear(x, weight, bias, v, codes, u, u_layout)
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


def _check_backward(
    dy: Tensor, x: Tensor, v: Tensor, codes: Tensor | None, u: Tensor, u_layout: str
) -> None:
    # The gradient has the shape and type of a base.
    check_update(x, v, codes, u, u_layout, dy)


def _gated_low_rank_backward(
    dy: Tensor,
    x: Tensor,
    v: Tensor,
    codes: Tensor | None,
    u: Tensor,
    u_layout: str,
    scale: float,
    wanted: Sequence[bool],
) -> list[Tensor]:
    _check_backward(dy, x, v, codes, u, u_layout)
    if x.dtype == torch.float64:
        all_made = plain.gradients(dy, x, v, codes, u, u_layout, scale)
        return [
            x.new_empty(0) if made is None or not is_wanted else made.contiguous()
            for made, is_wanted in zip(all_made, wanted, strict=True)
        ]
    of_x, of_v, of_codes, of_u = wanted
    batch = (*x.shape[:-1], v.shape[1])
    gates, layout = _laid_out(codes, batch)
    dx = x.new_empty(x.shape) if of_x else None
    dv = v.new_empty(v.shape) if of_v else None
    du = u.new_empty(u.shape) if of_u else None
    dcodes = x.new_empty(batch, dtype=torch.float32) if of_codes else None
    is_wide = u_layout == "kn"
    _core.gated_low_rank_backward(
        _rows(dy),
        _rows(x),
        v,
        gates,
        layout,
        u if is_wide else u.t(),
        scale,
        None if dx is None else _rows(dx),
        dv,
        None if dcodes is None else _rows(dcodes),
        du if is_wide or du is None else du.t(),
        *_place(x),
    )
    if dcodes is not None and codes is not None:
        dcodes = dcodes if dcodes.shape == codes.shape else dcodes.sum_to_size(codes.shape)
        dcodes = dcodes if dcodes.dtype == codes.dtype else dcodes.to(codes.dtype)
    return [x.new_empty(0) if made is None else made for made in (dx, dv, dcodes, du)]


@register_fake("pulsora::gated_low_rank_backward")  # type: ignore[untyped-decorator]
def _fake_gated_low_rank_backward(
    dy: Tensor,
    x: Tensor,
    v: Tensor,
    codes: Tensor | None,
    u: Tensor,
    u_layout: str,
    scale: float,  # noqa: ARG001 - as the operator has it
    wanted: Sequence[bool],
) -> list[Tensor]:
    _check_backward(dy, x, v, codes, u, u_layout)
    return [
        x.new_empty(like.shape if is_wanted and like is not None else 0)
        for like, is_wanted in zip((x, v, codes, u), wanted, strict=True)
    ]


def write_adapter_gradients(
    made: Sequence[Tensor | None], to: Sequence[Tensor | None], accumulate: Sequence[bool]
) -> None:
    """Writes gradients to tensors, or adds gradients to the values of tensors."""
    for gradient, target, adds in zip(made, to, accumulate, strict=True):
        if gradient is not None and target is not None:
            target.add_(gradient) if adds else target.copy_(gradient)


def _adapter_gradients(
    dc: Tensor,
    a: Tensor,
    b: Tensor,
    da: Tensor | None,
    db: Tensor | None,
    accumulate: Sequence[bool],
) -> None:
    check_adapter(dc, a, b, da, db)
    check_apart(dc, a, b, da, db)
    if dc.dtype == torch.float64:
        made = plain.gradients_of_adapter(dc, a, b, (da is not None, db is not None))
        write_adapter_gradients(made, (da, db), accumulate)
        return
    of_a, of_b = (None if made is None else _rows(made) for made in (da, db))
    _core.adapter_gradients(_rows(dc), _rows(a), b, of_a, of_b, accumulate, *_place(dc))


@register_fake("pulsora::adapter_gradients")  # type: ignore[untyped-decorator]
def _fake_adapter_gradients(
    dc: Tensor,
    a: Tensor,
    b: Tensor,
    da: Tensor | None,
    db: Tensor | None,
    accumulate: Sequence[bool],  # noqa: ARG001 - as the operator has it
) -> None:
    check_adapter(dc, a, b, da, db)


impl("pulsora::gated_low_rank", _PLACES, _gated_low_rank)
impl("pulsora::gated_low_rank_linear", _PLACES, _gated_low_rank_linear)
impl("pulsora::gated_low_rank_backward", _PLACES, _gated_low_rank_backward)
impl("pulsora::adapter_gradients", _PLACES, _adapter_gradients)

gated_low_rank = torch.ops.pulsora.gated_low_rank.default
gated_low_rank_linear = torch.ops.pulsora.gated_low_rank_linear.default
gated_low_rank_backward = torch.ops.pulsora.gated_low_rank_backward.default
adapter_gradients = torch.ops.pulsora.adapter_gradients.default
