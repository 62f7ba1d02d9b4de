"""Limits of weights that act after every step of any optimiser."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

__all__ = ["clip_after_steps", "clipped", "limit_of"]

_layers: weakref.WeakSet[nn.Module] = weakref.WeakSet()
_hooks: list[Any] = []


def limit_of(weight: Tensor, config: Any) -> Tensor | None:  # noqa: ANN401 - InferenceConfig
    """Returns the largest magnitude of weights [out_features, ...], of all or of each output.

    "fixed": clip_value. "gaussian": clip_sigma standard deviations (n - 1) of all weights about
    their mean, or of each output. "average_channel_max": the mean over outputs of their largest
    magnitude. A clip_value above 0 caps the others.
    """
    rows = weight.detach().flatten(1)
    limit: Tensor
    if config.clip == "none":
        return None
    if config.clip == "fixed":
        return rows.new_tensor(config.clip_value)
    if config.clip == "gaussian":
        limit = config.clip_sigma * rows.std()
    elif config.clip == "gaussian_per_output":
        limit = config.clip_sigma * rows.std(dim=1, keepdim=True)
    else:
        limit = rows.abs().amax(dim=1).mean()
    if config.clip_value > 0.0:
        limit = limit.clamp(max=config.clip_value)
    return limit


def clipped(weight: Tensor, config: Any) -> Tensor:  # noqa: ANN401 - InferenceConfig
    """Returns the weights within the limit of the configuration."""
    limit = limit_of(weight, config)
    if limit is None:
        return weight.detach().clone()
    rows = weight.detach().flatten(1)
    return torch.minimum(torch.maximum(rows, -limit), limit).reshape(weight.shape)


def clip_after_steps(layer: nn.Module) -> None:
    """Limits a layer's weight (WeightCarrier) after each step of an optimiser that has it."""
    if getattr(_config(layer), "clip", "none") == "none":
        return
    _layers.add(layer)
    if not _hooks:  # once in a process, for all optimisers
        hook: Callable[..., None] = _clip_layers
        _hooks.append(register_optimizer_step_post_hook(hook))


@torch.no_grad()
def _clip_layers(optimizer: torch.optim.Optimizer, _arguments: object, _options: object) -> None:
    stepped = {id(each) for group in optimizer.param_groups for each in group["params"]}
    for layer in list(_layers):
        weight: Any = layer.carrier
        if id(weight) in stepped:
            weight.copy_(clipped(weight, _config(layer)))


def _config(layer: Any) -> Any:  # noqa: ANN401 - InferenceConfig of a WeightCarrier
    return layer.held.array.config
