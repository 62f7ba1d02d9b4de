"""The product of a layer's input with the weights in its tiles, for torch's autograd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pulsora._internal.transforms import in_transform
from pulsora.lowrank.functional import autocast_type
from pulsora.nn.autograd.differentiation import differentiable_once, no_transform
from pulsora.nn.autograd.factored_gradient import bias_gradient
from pulsora.nn.autograd.gated_product import gated_read, own, require_unchanged
from pulsora.nn.autograd.kept_inputs import inputs_to_keep, kept_inputs
from pulsora.nn.tiles.checkpointing import require_first_run
from pulsora.nn.tiles.layer_names import named_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from pulsora.nn.autograd.analog_parameter import AnalogParameter
    from pulsora.nn.tiles.patches import Patches
    from pulsora.nn.tiles.tile_read import ReadPosition

__all__ = ["NOT_TRACED", "not_traced", "outside_compile", "read_tiles", "require_untraced"]


class _AnalogProduct(torch.autograd.Function):
    """y = W x + bias on tiles. Backward reads W^T d, and gives the weights (x, d) as gradient.

    If several processes train the layer, x, d and the gradient of the bias cover the rows of all
    processes.
    """

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch gives no type
        x: Tensor,
        weight: AnalogParameter,
        bias: Tensor | None,
        position: ReadPosition,
        patches: Patches | None,
    ) -> Tensor:
        kept, ctx.patches = inputs_to_keep(x, patches)
        ctx.save_for_backward(kept, bias)
        ctx.weight, ctx.position = weight, position
        ctx.changes = weight.array.changes
        ctx.may_overflow = autocast_type(x) == torch.float16  # gradients that are scaled
        y = weight.array.forward(x, position)
        if bias is None:
            return y
        return y.add_(bias) if bias.dtype == y.dtype else y + bias  # nothing else holds y

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        kept, bias = ctx.saved_tensors
        x = kept_inputs(kept, ctx.patches)
        weight: AnalogParameter = ctx.weight
        array = weight.array
        process_group = array.process_group
        needs_x, needs_weight, needs_bias, *_ = ctx.needs_input_grad
        reads = needs_x or array.facts.reuses_reads
        if reads:
            require_unchanged(weight, ctx.changes)
        d = process_group.to_global(own(d)).float().contiguous()  # of a float64 bias, too
        gathered = process_group.gather(
            array,
            ctx.position.shard,
            [x if needs_weight else None, d if needs_weight or needs_bias else None],
        )
        dx = None
        if reads:
            with named_errors(array):
                # A layer's step refuses what is not finite, and a GradScaler leaves the step out.
                dx = array.backward(
                    d,
                    ctx.position,
                    is_temporary=ctx.patches is not None,
                    takes_infinite=needs_weight or ctx.may_overflow,
                )
            dx = process_group.to_local(dx)
        all_x, all_d = gathered()
        return (
            dx,
            weight.gradient(all_x, all_d) if needs_weight else None,
            bias_gradient(all_d, bias) if needs_bias else None,
            None,
            None,
        )


NOT_TRACED = (
    "an analog layer cannot be traced or run with other weights than its tiles' (torch.export, "
    "torch.jit, torch.func, torch.compile with fullgraph=True); use torch.compile without "
    "fullgraph, or trace pulsora.convert_to_digital(model)"
)


def not_traced() -> RuntimeError:
    """Returns the error about other weights than those of the tiles."""
    return no_transform() if in_transform() else RuntimeError(NOT_TRACED)


def require_untraced() -> None:
    """Raises RuntimeError if a tracer would record one read."""
    if (
        torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]
        or torch.compiler.is_exporting()
    ):
        raise RuntimeError(NOT_TRACED)


def outside_compile(read: Callable[..., Tensor], *arguments: object) -> Tensor:
    """Returns read(*arguments), which torch.compile leaves out of its graphs."""
    if torch.compiler.is_compiling():
        torch._dynamo.graph_break(msg=NOT_TRACED)  # noqa: SLF001 - documented for this
        read = torch.compiler.disable(read)  # type: ignore[no-untyped-call]
    return read(*arguments)


def read_tiles(
    x: Tensor,
    weight: AnalogParameter,
    bias: Tensor | None,
    gate: Tensor | None,
    rows: tuple[Sequence[int], int],
    *,
    training: bool,
    patches: Patches | None = None,
) -> Tensor:
    """Reads y = W x + bias, differentiable, outside torch.compile.

    `rows` and `training` are arguments of `begin_read`. `patches` are images from which x is
    taken, and which are kept instead of x.
    """
    return outside_compile(_product, x, weight, bias, gate, rows, training, patches)


def _product(
    x: Tensor,
    weight: AnalogParameter,
    bias: Tensor | None,
    gate: Tensor | None,
    rows: tuple[Sequence[int], int],
    training: bool,
    patches: Patches | None,
) -> Tensor:
    require_first_run()
    if gate is not None:
        return gated_read(x, gate, weight, bias, rows, training=training, patches=patches)
    position = weight.array.begin_read(*rows, training=training)
    y: Tensor = _AnalogProduct.apply(  # type: ignore[no-untyped-call]
        x, weight, bias, position, patches
    )
    return y
