"""Outputs of an adapted layer with factors of torch, fused with its base where that is plain."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from pulsora._internal.transforms import in_transform
from pulsora.lowrank import gated_low_rank, plain
from pulsora.lowrank.checks import TYPES
from pulsora.lowrank.functional import autocast_type

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["named_conv1d", "plain_linear", "with_update"]


def with_update(
    y: Tensor, x: Tensor, v: Tensor, codes: Tensor | None, u: Tensor, scale: float
) -> Tensor:
    """Returns y + scale ((x v) .* codes) u^T, by the fused operator where it takes the tensors."""
    if in_transform():  # some transforms, such as jacfwd, refuse the fused operator
        return y + plain.update(x, v, codes, u, "kn", scale, None).to(y.dtype)
    if y.dtype == x.dtype:
        return gated_low_rank(x, v, codes, u, u_layout="kn", scale=scale, base=y)
    return y + gated_low_rank(x, v, codes, u, u_layout="kn", scale=scale).to(y.dtype)


def plain_linear(base: nn.Module, x: Tensor) -> tuple[Tensor, Tensor | None] | None:
    """Returns weight [out, in] and bias if the base is exactly x weight^T + bias, else None."""
    if in_transform():
        return None
    # A class named Conv1D that is not of transformers may compute something else.
    is_conv1d = named_conv1d(base) and type(base).__module__.startswith("transformers.")
    if not (is_conv1d or type(base) is nn.Linear) or "forward" in vars(base) or _has_hooks(base):
        return None
    weight = cast("Tensor", base.weight)
    bias = cast("Tensor | None", base.bias)
    if type(weight) not in (nn.Parameter, torch.Tensor) or weight.device != x.device:
        return None  # quantised, distributed and other tensors have products of their own
    kinds = {x.dtype, weight.dtype} | (set() if bias is None else {bias.dtype})
    if (wanted := autocast_type(x)) is not None:
        # torch's own product converts a trained weight once for all its uses.
        fits = kinds <= set(TYPES) and (weight.dtype == wanted or not weight.requires_grad)
    else:
        fits = len(kinds) == 1 and x.dtype in TYPES
    if not fits:
        return None
    return (weight.t() if is_conv1d else weight), bias


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def _has_hooks(module: nn.Module) -> bool:
    """Whether a call of the module runs more than its forward."""
    own = any(getattr(module, name) for name in _HOOKS)
    return own or bool(
        nn.modules.module._has_any_global_hook()  # type: ignore[no-untyped-call] # noqa: SLF001
    )


def named_conv1d(module: nn.Module) -> bool:
    """Whether the module is named like Conv1D of transformers, with weight [inputs, outputs]."""
    return type(module).__name__ == "Conv1D"
