"""Backward passes of analog layers, which cannot be differentiated again."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["differentiable_once", "require_no_transform"]

_NOT_TWICE = (
    "the backward pass of an analog layer cannot be differentiated again (gradient penalties, "
    "torch.autograd.grad(create_graph=True), Hessians), because it reads the tiles as they are; "
    "take differences of gradients, or the second derivatives of pulsora.convert_to_digital(model)"
)
_NO_TRANSFORM = (
    "torch.func (vmap, grad, vjp, jvp, jacrev, jacfwd, hessian) is not available for analog "
    "layers; use torch.autograd.grad or torch.autograd.functional.jacobian, batches in the first "
    "dimension instead of vmap, or pulsora.convert_to_digital(model)"
)


def require_no_transform() -> None:
    """Raises RuntimeError inside a transform of torch.func."""
    if torch._C._are_functorch_transforms_active():  # noqa: SLF001 - torch has no public name
        raise RuntimeError(_NO_TRANSFORM)


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
