"""The gated low-rank update and its gradients in operations of torch.

They serve float64, batches made by `torch.vmap`, and derivatives of gradients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "gradients",
    "gradients_of_adapter",
    "rounded_gradients",
    "sum_type",
    "update",
    "update_of_layer",
]


def sum_type(dtype: torch.dtype) -> torch.dtype:
    """The type of sums: float64 for itself, otherwise float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def update(
    x: Tensor,
    v: Tensor,
    codes: Tensor | None,
    u: Tensor,
    u_layout: str,
    scale: float,
    base: Tensor | None,
) -> Tensor:
    """y = base + scale ((x v) * codes) u^T, rounded once to the type of x.

    Here and below, v and u (and the weight of a layer) are matrices, or batches of matrices
    [B, ...] beside a batch of rows [B, M, ...] for all others.
    """
    kind = sum_type(x.dtype)
    h = x.to(kind) @ v.to(kind)
    gated = h if codes is None else h * codes.to(kind)
    y = gated @ (u.mT if u_layout == "kn" else u).to(kind) * scale
    return (y if base is None else base.to(kind) + y).to(x.dtype)


def update_of_layer(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    v: Tensor,
    codes: Tensor | None,
    u: Tensor,
    u_layout: str,
    scale: float,
) -> Tensor:
    """y = x weight^T + bias + scale ((x v) * codes) u^T, rounded once to the type of x."""
    kind = sum_type(x.dtype)
    base = x.to(kind) @ weight.to(kind).mT
    return update(x, v, codes, u, u_layout, scale, base if bias is None else base + bias.to(kind))


def gradients(
    dy: Tensor, x: Tensor, v: Tensor, codes: Tensor | None, u: Tensor, u_layout: str, scale: float
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """Gradients of x, v, codes and u, in their type, which torch can differentiate again."""
    if x.is_cuda:
        x.new_zeros(())  # a first launch, without which cuBLAS warns in a thread of autograd
    wide = u if u_layout == "kn" else u.mT
    h, g = x @ v, dy @ wide * scale
    gated_h, gated_g = (h, g) if codes is None else (h * codes, g * codes)
    of_v = _rows(x, v).mT @ _rows(gated_g, v)
    of_u = _rows(dy, v).mT @ _rows(gated_h, v) * scale
    of_codes = None if codes is None else (h * g).sum_to_size(codes.shape)
    return gated_g @ v.mT, of_v, of_codes, of_u if u_layout == "kn" else of_u.mT


def rounded_gradients(
    dy: Tensor, x: Tensor, v: Tensor, codes: Tensor | None, u: Tensor, u_layout: str, scale: float
) -> list[Tensor | None]:
    """Gradients of x, v, codes and u, with sums in single precision, rounded once."""
    kind = sum_type(x.dtype)
    gates = None if codes is None else codes.to(kind)
    operands = dy.to(kind), x.to(kind), v.to(kind), gates, u.to(kind)
    made = gradients(*operands, u_layout, scale)
    return [None if each is None else each.to(x.dtype) for each in made]


def gradients_of_adapter(
    dc: Tensor, a: Tensor, b: Tensor, wanted: tuple[bool, bool]
) -> tuple[Tensor | None, Tensor | None]:
    """dA = dC b^T and dB = a^T dC of an adapter C = A B; None for a gradient that is not wanted."""
    of_b = _rows(a, b).mT @ _rows(dc, b) if wanted[1] else None
    return dc @ b.mT if wanted[0] else None, of_b


def _rows(tensor: Tensor, factor: Tensor) -> Tensor:
    """[..., K] as rows [M, K], or [B, M, K] beside a batch of factors."""
    return tensor.reshape(*factor.shape[:-2], -1, tensor.shape[-1])
