"""Rules of `torch.vmap` for the operators: the whole batch is one call.

Where the factors v and u (and the weight of a layer) are shared by the batch, the batch is one more
dimension of x, and the operator takes it. Where factors differ within the batch, the batched
products of torch take it, in single precision for types of 16 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.library import register_vmap

from pulsora._core import InputError
from pulsora.lowrank import operators, plain
from pulsora.lowrank.checks import check_adapter, check_linear, check_update

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

Dims = tuple[int | None, ...]


def _one(tensor: Tensor | None, dim: int | None) -> Tensor | None:
    """The operand of the first member of the batch, for checks."""
    return tensor if tensor is None or dim is None else tensor.select(dim, 0)


def _first(operands: Sequence[Tensor | None], dims: Dims) -> Any:  # noqa: ANN401 - as handed in
    return [_one(each, dim) for each, dim in zip(operands, dims, strict=True)]


def _leading(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    """The operand with the batch as its first dimension."""
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _rows_of(tensor: Tensor) -> Tensor:
    """[B, ..., K] as [B, M, K]."""
    return tensor.reshape(tensor.shape[0], -1, tensor.shape[-1])


class _Batch:
    """The operands of an update with the batch as their first dimension."""

    def __init__(
        self,
        size: int,
        x: tuple[Tensor, int | None],
        codes: tuple[Tensor | None, int | None],
        like_y: tuple[Tensor | None, int | None],
    ) -> None:
        self.x = _leading(*x, size)
        self.codes: Any = codes[0]
        if self.codes is not None:  # it broadcasts along the rows of each member of the batch
            own = _leading(self.codes, codes[1], size)
            ones = [1] * (self.x.dim() - own.dim())
            self.codes = own.reshape(size, *ones, *own.shape[1:])
        self.like_y: Any = None if like_y[0] is None else _leading(like_y[0], like_y[1], size)

    def in_rows(self) -> tuple[Tensor, Tensor | None, Any]:
        """Returns x, codes and the operand like y as [B, M, ...]."""
        codes = self.codes
        if codes is not None:
            codes = _rows_of(codes.expand(*self.x.shape[:-1], codes.shape[-1]))
        return _rows_of(self.x), codes, None if self.like_y is None else _rows_of(self.like_y)

    def shaped(self, made: Tensor) -> Tensor:
        """[B, M, K] as [B, ..., K]."""
        return made.reshape(*self.x.shape[:-1], made.shape[-1])


@register_vmap("pulsora::gated_low_rank")  # type: ignore[untyped-decorator]
def _update(
    info: Any,  # noqa: ANN401 - torch has no type for it
    in_dims: Dims,
    x: Tensor,
    v: Tensor,
    codes: Tensor | None,
    u: Tensor,
    u_layout: str,
    scale: float,
    base: Tensor | None,
) -> tuple[Tensor, int]:
    of_x, of_v, of_codes, of_u, _, _, of_base = in_dims
    one = _first((x, v, codes, u, base), (of_x, of_v, of_codes, of_u, of_base))
    check_update(one[0], one[1], one[2], one[3], u_layout, one[4])
    size = info.batch_size
    batch = _Batch(size, (x, of_x), (codes, of_codes), (base, of_base))
    if of_v is None and of_u is None:
        made = operators.gated_low_rank(batch.x, v, batch.codes, u, u_layout, scale, batch.like_y)
        return made, 0
    v, u = _leading(v, of_v, size), _leading(u, of_u, size)
    rows, gates, added = batch.in_rows()
    return batch.shaped(plain.update(rows, v, gates, u, u_layout, scale, added)), 0


@register_vmap("pulsora::gated_low_rank_linear")  # type: ignore[untyped-decorator]
def _layer(
    info: Any,  # noqa: ANN401
    in_dims: Dims,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    v: Tensor,
    codes: Tensor | None,
    u: Tensor,
    u_layout: str,
    scale: float,
) -> tuple[Tensor, int]:
    one = _first((x, weight, bias, v, codes, u), in_dims[:6])
    check_linear(one[0], one[1], one[2], one[3], one[4], one[5], u_layout)
    of_x, of_weight, of_bias, of_v, of_codes, of_u = in_dims[:6]
    size = info.batch_size
    batch = _Batch(size, (x, of_x), (codes, of_codes), (None, None))
    if all(dim is None for dim in (of_weight, of_bias, of_v, of_u)):
        made = operators.gated_low_rank_linear(
            batch.x, weight, bias, v, batch.codes, u, u_layout, scale
        )
        return made, 0
    weight, v, u = (
        _leading(each, dim, size) for each, dim in ((weight, of_weight), (v, of_v), (u, of_u))
    )
    bias = None if bias is None else _leading(bias, of_bias, size).unsqueeze(1)
    rows, gates, _ = batch.in_rows()
    made = plain.update_of_layer(rows, weight, bias, v, gates, u, u_layout, scale)
    return batch.shaped(made), 0


@register_vmap("pulsora::gated_low_rank_backward")  # type: ignore[untyped-decorator]
def _backward(
    info: Any,  # noqa: ANN401
    in_dims: Dims,
    dy: Tensor,
    x: Tensor,
    v: Tensor,
    codes: Tensor | None,
    u: Tensor,
    u_layout: str,
    scale: float,
    wanted: Sequence[bool],
) -> tuple[list[Tensor], list[int | None]]:
    one = _first((dy, x, v, codes, u), in_dims[:5])
    check_update(one[1], one[2], one[3], one[4], u_layout, one[0])
    of_dy, of_x, of_v, of_codes, of_u = in_dims[:5]
    size = info.batch_size
    batch = _Batch(size, (x, of_x), (codes, of_codes), (dy, of_dy))
    made: Any
    if of_v is None and of_u is None and not wanted[1] and not wanted[3]:
        made = operators.gated_low_rank_backward(
            batch.like_y, batch.x, v, batch.codes, u, u_layout, scale, wanted
        )
    else:
        v, u = _leading(v, of_v, size), _leading(u, of_u, size)
        rows, gates, dy_rows = batch.in_rows()
        made = plain.rounded_gradients(dy_rows, rows, v, gates, u, u_layout, scale)
        made[0] = batch.shaped(made[0])
        if made[2] is not None:
            made[2] = batch.shaped(made[2]).sum_to_size(batch.codes.shape)
    if wanted[2] and codes is not None:
        made[2] = made[2].reshape(size, *one[3].shape)
    kept = [
        x.new_empty(0) if each is None or not is_wanted else each
        for each, is_wanted in zip(made, wanted, strict=True)
    ]
    return kept, [0 if is_wanted else None for is_wanted in wanted]


@register_vmap("pulsora::adapter_gradients")  # type: ignore[untyped-decorator]
def _of_adapter(
    info: Any,  # noqa: ANN401
    in_dims: Dims,
    dc: Tensor,
    a: Tensor,
    b: Tensor,
    da: Tensor | None,
    db: Tensor | None,
    accumulate: Sequence[bool],
) -> tuple[None, None]:
    check_adapter(*_first((dc, a, b, da, db), in_dims[:5]))
    to = []
    for name, tensor, dim in (("da", da, in_dims[3]), ("db", db, in_dims[4])):
        if tensor is not None and dim is None:
            raise InputError(
                f"{name} is one tensor for a batch made by vmap; give out tensors of the batch"
            )
        to.append(None if tensor is None else _leading(tensor, dim, info.batch_size))
    kind, size = plain.sum_type(dc.dtype), info.batch_size
    dc, a, b = (
        _leading(each, dim, size).to(kind)
        for each, dim in zip((dc, a, b), in_dims[:3], strict=True)
    )
    of_a, of_b = plain.gradients_of_adapter(
        _rows_of(dc), _rows_of(a), b, (da is not None, db is not None)
    )
    shaped = None if of_a is None else of_a.reshape(*a.shape)
    operators.write_adapter_gradients((shaped, of_b), to, accumulate)
    return None, None
