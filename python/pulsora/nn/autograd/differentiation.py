"""Backward passes that are differentiable once, and products that torch.func can transform."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from pulsora._internal.transforms import in_transform
from pulsora.config import IdealConfig
from pulsora.nn.tiles.layer_names import described

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from pulsora.nn.autograd.analog_parameter import AnalogParameter
    from pulsora.nn.tiles.tile_array import TileArray

__all__ = [
    "differentiable_once",
    "no_transform",
    "perfect_product",
    "require_no_transform",
]

_NOT_TWICE = (
    "the backward pass of {} cannot be differentiated again (gradient penalties, "
    "torch.autograd.grad(create_graph=True), Hessians), because it reads the tiles as they are; "
    "take differences of gradients, or the second derivatives of pulsora.convert_to_digital(model)"
)
_NO_TRANSFORM = (
    "torch.func (vmap, grad, vjp, jvp, jacrev, jacfwd, hessian) is not available for {}, "
    "but for perfect reads (IdealConfig) of weights that are frozen, by "
    "layer.requires_grad_(False) or torch.no_grad(); use torch.autograd.grad or "
    "torch.autograd.functional.jacobian, batches in the first dimension instead of vmap, or "
    "pulsora.convert_to_digital(model)"
)


def no_transform(array: TileArray | None = None) -> RuntimeError:
    """Returns the error about a transform of torch.func, naming the layer if it is known."""
    layer = "an analog layer" if array is None else described(array)
    return RuntimeError(_NO_TRANSFORM.format(layer))


def require_no_transform(array: TileArray) -> None:
    """Raises RuntimeError inside a transform of torch.func."""
    if in_transform():
        raise no_transform(array)


def perfect_product(
    x: Tensor,
    parameter: AnalogParameter,
    added: tuple[Tensor | None, Tensor | None, bool],
    gate: Tensor | None,
) -> Tensor:
    """Returns W x + bias [..., out_features] by operations of torch, for torch.func to transform.

    Args:
        x: Inputs [..., in_features].
        parameter: The weights.
        added: The factors on outputs and the bias, or None; and whether the last column of the
            matrix is a bias.
        gate: A gate on the adapters of the tiles, or None.

    Raises:
        RuntimeError: for gates and tiles whose reads are not perfect, and for weights that are
            trained: no transform could take their gradient.
    """
    array = parameter.array
    config = array.config
    is_perfect = isinstance(config, IdealConfig) and config.forward.is_perfect
    if not is_perfect or gate is not None or (parameter.requires_grad and torch.is_grad_enabled()):
        raise no_transform(array)
    weight = array.get_weights()
    blocks = weight.reshape(array.groups, -1, weight.shape[1])
    lines = x.float().reshape(*x.shape[:-1], array.groups, -1)
    y = torch.einsum("...gc,grc->...gr", lines, blocks[..., : lines.shape[-1]]).flatten(-2)
    scaling, bias, has_bias_in_cells = added
    y = y + weight[:, -1] if has_bias_in_cells else y
    y = y if scaling is None else y * scaling
    return y if bias is None else y + bias


class _Refusal(torch.autograd.Function):
    """Passes tensors on; to differentiate them is an error."""

    @staticmethod
    def forward(ctx: Any, reason: str, count: int, *tensors: Tensor | None) -> Any:  # noqa: ANN401
        """Returns the first `count` tensors; they depend on all."""
        ctx.reason = reason
        return tuple(None if each is None else each.detach() for each in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:  # noqa: ANN401 - torch gives no types
        """Raises the error."""
        raise RuntimeError(ctx.reason)


def differentiable_once(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Makes second derivatives of a backward pass an error that names the layer.

    torch's `once_differentiable` cuts the results off from the gradients, so that
    torch.autograd.functional.hessian takes second derivatives to be 0.
    """

    @functools.wraps(backward)
    def wrapper(ctx: Any, *gradients: Any) -> Any:  # noqa: ANN401 - torch gives no types
        with torch.no_grad():
            results = backward(ctx, *gradients)
        if not torch.is_grad_enabled() or not any(
            isinstance(each, torch.Tensor) and each.requires_grad for each in gradients
        ):
            return results
        outputs = results if isinstance(results, tuple) else (results,)
        reason = _NOT_TWICE.format(_layer_of(ctx))
        apply: Any = _Refusal.apply
        return apply(reason, len(outputs), *outputs, *gradients)

    return wrapper


def _layer_of(ctx: Any) -> str:  # noqa: ANN401 - torch gives no type
    """The name in errors of the layer whose backward pass runs."""
    for name in ("weight", "parameter", "held"):
        array = getattr(getattr(ctx, name, None), "array", None)
        if array is not None:
            return described(array)
    return "an analog layer"
