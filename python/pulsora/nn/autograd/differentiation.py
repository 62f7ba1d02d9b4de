"""What torch may differentiate: backward passes once, transforms of torch.func for fixed weights."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from pulsora.config import IdealConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from pulsora.nn.base import AnalogModule

__all__ = [
    "NO_TRANSFORM",
    "differentiable_once",
    "in_transform",
    "perfect_product",
    "require_no_transform",
]

_NOT_TWICE = (
    "the backward pass of an analog layer cannot be differentiated again (gradient penalties, "
    "torch.autograd.grad(create_graph=True), Hessians), because it reads the tiles as they are; "
    "take differences of gradients, or the second derivatives of pulsora.convert_to_digital(model)"
)
NO_TRANSFORM = (
    "torch.func (vmap, grad, vjp, jvp, jacrev, jacfwd, hessian) is not available for analog "
    "layers, but for perfect reads (IdealConfig) of weights that are frozen, by "
    "layer.analog_weight.requires_grad_(False) or torch.no_grad(); use torch.autograd.grad or "
    "torch.autograd.functional.jacobian, batches in the first dimension instead of vmap, or "
    "pulsora.convert_to_digital(model)"
)


def in_transform() -> bool:
    """Whether a transform of torch.func is running."""
    is_active: bool = torch._C._are_functorch_transforms_active()  # noqa: SLF001 - no public name
    return is_active


def require_no_transform() -> None:
    """Raises RuntimeError inside a transform of torch.func."""
    if in_transform():
        raise RuntimeError(NO_TRANSFORM)


def perfect_product(
    layer: AnalogModule, x: Tensor, bias: Tensor | None, *, is_gated: bool
) -> Tensor:
    """Returns W x + bias [..., out_features] by operations of torch, for torch.func to transform.

    Raises:
        RuntimeError: for gates and tiles whose reads are not perfect, and for weights that are
            trained: no transform could take their gradient.
    """
    array, config = layer.tiles, layer.config
    is_trained = layer.analog_weight.requires_grad and torch.is_grad_enabled()
    is_perfect = isinstance(config, IdealConfig) and config.forward.is_perfect
    if not is_perfect or is_trained or is_gated:
        raise RuntimeError(NO_TRANSFORM)
    weight = array.get_weights()
    blocks = weight.reshape(array.groups, -1, weight.shape[1])
    lines = x.float().reshape(*x.shape[:-1], array.groups, -1)
    y = torch.einsum("...gc,grc->...gr", lines, blocks[..., : lines.shape[-1]]).flatten(-2)
    y = y + weight[:, -1] if layer.analog_bias else y
    y = y if layer.out_scaling is None else y * layer.out_scaling
    return y if bias is None else y + bias


def differentiable_once(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Does what torch's `once_differentiable` does, with an error that names analog layers."""

    @functools.wraps(backward)
    def wrapper(ctx: Any, *gradients: Any) -> Any:  # noqa: ANN401 - torch gives no types
        with torch.no_grad():
            results = backward(ctx, *gradients)
        if not torch.is_grad_enabled() or not any(
            isinstance(each, torch.Tensor) and each.requires_grad for each in gradients
        ):
            return results
        outputs = results if isinstance(results, tuple) else (results,)
        fail: Any = torch._C._functions.DelayedError(  # noqa: SLF001 - as torch's own does
            _NOT_TWICE.encode(), len(outputs)
        )
        return fail(*(None if each is None else each.detach().requires_grad_() for each in outputs))

    return wrapper
