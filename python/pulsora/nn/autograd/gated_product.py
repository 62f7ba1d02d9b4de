"""Differentiable reads of tiles whose adapters are gated, with a gradient of the gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pulsora.nn.autograd.differentiation import differentiable_once
from pulsora.nn.autograd.factored_gradient import bias_gradient
from pulsora.nn.autograd.kept_inputs import inputs_to_keep, kept_inputs
from pulsora.nn.tiles.checkpointing import repeats
from pulsora.nn.tiles.layer_names import named_errors
from pulsora.nn.tiles.separate_tiles import adapter_in
from pulsora.nn.tiles.tile_read import for_tile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from pulsora.nn.autograd.analog_parameter import AnalogParameter
    from pulsora.nn.tiles.patches import Patches
    from pulsora.nn.tiles.tile_array import TileArray
    from pulsora.nn.tiles.tile_read import ReadPosition

__all__ = ["flat_gate", "gated_read", "own", "require_unchanged"]


def own(d: Tensor) -> Tensor:
    """Returns d, or a copy if another library has its memory, and may write to it before a step."""
    return d if d.untyped_storage().resizable() else d.clone()


def require_unchanged(weight: AnalogParameter, changes: int) -> None:
    """Raises RuntimeError, as torch does, if the weights have changed since their forward read."""
    changed = weight.array.changes - changes
    if changed:
        raise RuntimeError(
            f"the weight of {weight.described}, which a backward pass has to read, has been "
            f"modified by an inplace operation ({changed} times: a step, set_weights or "
            "load_state_dict) since the forward pass; run the backward pass before the step, or "
            "the forward pass again after it"
        )


def flat_gate(gate: Tensor, x: Tensor) -> Tensor:
    """Expands a gate to [m, rank] for the m samples of x [..., in_features].

    Raises:
        TypeError: if it is no tensor.
        ValueError: if it does not broadcast.
    """
    if not isinstance(gate, torch.Tensor):
        raise TypeError(
            f"gate is a {type(gate).__name__}; give a tensor, or constant weights to "
            "pulsora.nn.GatedAdapter"
        )
    try:
        whole = gate.expand(*x.shape[:-1], gate.shape[-1])
    except (IndexError, RuntimeError):
        raise ValueError(
            f"gate has shape {list(gate.shape)}, which does not broadcast to "
            f"{[*x.shape[:-1], 'rank']}, as x of shape {list(x.shape)} asks for"
        ) from None
    return whole.reshape(-1, gate.shape[-1])


def gated_read(
    x: Tensor,
    gate: Tensor,
    weight: AnalogParameter,
    bias: Tensor | None,
    rows: tuple[Sequence[int], int],
    *,
    training: bool,
    patches: Patches | None = None,
) -> Tensor:
    """Reads y = W x + alpha A (gate * (B x)) + bias, with the same gate in all tiles of a layer.

    Args:
        x: Inputs [m, in_features].
        gate: Weights [m, rank], or [m, 1] for all components alike.
        weight: Weight of the layer.
        bias: Bias of the layer, if it has one.
        rows: Arguments of `begin_read`, as is `training`.
        training: Whether the module that reads is in training mode.
        patches: Images from which x is taken, and which are kept instead of x.

    Raises:
        ValueError: if a tile has no adapter, the adapters have different ranks, or the gate another
            shape.
        RuntimeError: within a part of a model that is run again for its gradient.
    """
    array = weight.array
    ranks = {adapter_in(tile).rank for tile in array}
    if len(ranks) > 1:
        raise ValueError(
            f"gate: the adapters of this layer's tiles have ranks {sorted(ranks)}, so that no gate "
            "fits all; give LRTTConfig(rank=...) a number that fits the smallest tile"
        )
    (rank,) = ranks
    if gate.shape[1] not in {1, rank}:
        raise ValueError(
            f"gate has {gate.shape[1]} numbers for each sample, but the tiles' adapters have "
            f"{rank} components; give {rank}, or one for all"
        )
    if gate.device != array.device:
        raise ValueError(
            f"gate is on {gate.device}, and this layer on {array.device}; move one by .to(...)"
        )
    # A copy, so that nothing writes to it before the update.
    weights = gate.float().expand(len(x), rank).clone(memory_format=torch.contiguous_format)
    if repeats():
        raise RuntimeError(
            "gated reads of tiles cannot be repeated (gradient checkpointing with replayed_reads); "
            "leave the layer out of the checkpointed part"
        )
    position = array.begin_read(*rows, training=training)
    y: Tensor = _GatedProduct.apply(  # type: ignore[no-untyped-call]
        x, weights, weight, bias, position, patches
    )
    return y


class _GatedProduct(torch.autograd.Function):
    """A gated read. Its backward pass reads too, and gives the weights (x, d, gate) as gradient."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch gives no type
        x: Tensor,
        gate: Tensor,
        weight: AnalogParameter,
        bias: Tensor | None,
        position: ReadPosition,
        patches: Patches | None,
    ) -> Tensor:
        with weight.array.process_group.reading(weight.array):
            y, ctx.reads = _forward(weight.array, x, gate, position)
        kept, ctx.patches = inputs_to_keep(x, patches)
        ctx.save_for_backward(kept, gate, bias)
        ctx.weight, ctx.position = weight, position
        ctx.changes = weight.array.changes
        return y if bias is None else y + bias

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        kept, gate, bias = ctx.saved_tensors
        x = kept_inputs(kept, ctx.patches)
        weight: AnalogParameter = ctx.weight
        process_group, position = weight.array.process_group, ctx.position
        needs_x, needs_gate, needs_weight, needs_bias, *_ = ctx.needs_input_grad
        reads = needs_x or needs_gate or weight.array.facts.reuses_reads
        if reads:
            require_unchanged(weight, ctx.changes)
        d = process_group.to_global(own(d)).float().contiguous()  # of a float64 bias, too
        gathered = process_group.gather(
            weight.array,
            position.shard,
            [
                x if needs_weight else None,
                d if needs_weight or needs_bias else None,
                gate.detach() if needs_weight else None,
            ],
        )
        dx = d_gate = None
        if reads:
            reading = process_group.reading(weight.array, backward=True)
            with named_errors(weight.array), reading:
                read = _backward(weight.array, d, gate, ctx.reads, position)
            dx, d_gate = map(process_group.to_local, read)
        all_x, all_d, all_gate = gathered()
        return (
            dx,
            d_gate,
            weight.gradient(all_x, all_d, all_gate) if needs_weight else None,
            bias_gradient(all_d, bias) if needs_bias else None,
            None,
            None,
        )


def _forward(
    array: TileArray, x: Tensor, gate: Tensor, position: ReadPosition
) -> tuple[Tensor, list[list[Tensor]]]:
    """Reads y [m, out_features], and B x [m, rank] of each tile, which the backward pass needs."""
    y = x.new_zeros(len(x), array.shape[0])
    reads: list[list[Tensor]] = []
    for i, (row, tiles) in enumerate(zip(array.rows, array.grid, strict=True)):
        reads.append([])
        for col, tile in zip(array.cols, tiles, strict=True):
            lines = x[:, array.lines(i, col)]
            out = x.new_empty(len(x), tile.d_size), torch.empty_like(gate)
            _read(tile._core.forward_gated, position, (lines, gate), out)  # noqa: SLF001
            y[:, row] += out[0]
            reads[-1].append(out[1])
    return y if array.scales is None else y * array.scales, reads


def _backward(
    array: TileArray,
    d: Tensor,
    gate: Tensor,
    reads: list[list[Tensor]],
    position: ReadPosition,
) -> tuple[Tensor, Tensor]:
    """Reads dx [m, in_features] and the gradient of the gate [m, rank]."""
    d = d if array.scales is None else d * array.scales
    dx = d.new_zeros(len(d), array.groups * array.shape[1])
    d_gate = torch.zeros_like(gate)
    for i, (row, tiles) in enumerate(zip(array.rows, array.grid, strict=True)):
        back = d[:, row].contiguous()
        for col, tile, inner in zip(array.cols, tiles, reads[i], strict=True):
            out = d.new_empty(len(d), tile.x_size), torch.empty_like(gate)
            _read(tile._core.backward_gated, position, (back, gate, inner), out)  # noqa: SLF001
            dx[:, array.lines(i, col)] += out[0]
            d_gate += out[1]
    return dx, d_gate


def _read(
    by: Callable[..., object],
    position: ReadPosition,
    given: tuple[Tensor, ...],
    out: tuple[Tensor, Tensor],
) -> None:
    """Reads mini-batch after mini-batch into two tensors, which recorded steps keep."""
    shard = position.shard
    for each in zip(*(shard.split(tensor) for tensor in (*given, *out)), strict=True):
        *inputs, first, second = map(for_tile, each)
        by(*inputs, shard.first, shard.of, position.evaluation, (first, second))
