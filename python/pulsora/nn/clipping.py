"""Limits of weights that act after every step of any optimiser."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor, nn

__all__ = ["clip_after_steps", "clip_all", "clipped", "limit_of"]

_layers: weakref.WeakSet[nn.Module] = weakref.WeakSet()
_hooks: list[Any] = []

_LEAST_LIMIT = 1e-6
"""The smallest learned limit: weights keep their sign, by which the limit can grow again."""


def limit_of(weight: Tensor, config: Any) -> Tensor | None:  # noqa: ANN401 - InferenceConfig
    """Returns the largest magnitude of weights [out_features, ...], of all or of each output.

    "fixed": clip_value. "gaussian": clip_sigma standard deviations (n - 1) of all weights about
    their mean, or of each output. "average_channel_max": the mean over outputs of their largest
    magnitude. "learned" starts from clip_sigma standard deviations of each output, or where these
    are 0, from its largest magnitude, or 1. A clip_value above 0 caps the others.
    """
    rows = weight.detach().flatten(1)
    limit: Tensor
    if config.clip == "none":
        return None
    if config.clip == "fixed":
        return rows.new_full((), config.clip_value)
    if config.clip.startswith("gaussian"):
        limit = _gaussian_limit(rows, config)
    elif config.clip == "learned":
        limit = _first_limit(rows, config.clip_sigma)
    else:
        limit = rows.abs().amax(dim=1).mean()
    if config.clip_value > 0.0:
        limit = limit.clamp(max=config.clip_value)
    return limit


def _gaussian_limit(rows: Tensor, config: Any) -> Tensor:  # noqa: ANN401 - InferenceConfig
    """Returns clip_sigma standard deviations; infinity for a single weight, which has none."""
    per_output = config.clip == "gaussian_per_output"
    if (rows.shape[1] if per_output else rows.numel()) < 2:
        return rows.new_full((), torch.inf)
    spread = rows.std(dim=1, keepdim=True) if per_output else rows.std()
    limit: Tensor = config.clip_sigma * spread
    return limit


def _first_limit(rows: Tensor, sigma: float) -> Tensor:
    """Returns the limit of each output, [out_features, 1], from which a learned one starts."""
    largest = rows.abs().amax(dim=1, keepdim=True)
    spread = torch.zeros_like(largest)
    if rows.shape[1] > 1:
        spread = sigma * rows.std(dim=1, keepdim=True)
    limit = torch.where(spread > 0.0, spread, largest)
    return torch.where(limit > 0.0, limit, torch.ones_like(limit))


def clipped(
    weight: Tensor,
    config: Any,  # noqa: ANN401 - InferenceConfig
    learned: Tensor | None = None,
) -> Tensor:
    """Returns the weights within the limit of the configuration, or within the `learned` one."""
    limit = limit_of(weight, config) if learned is None else learned[:, None]
    if limit is None:
        return weight.detach().clone()
    rows = weight.detach().flatten(1)
    return torch.minimum(torch.maximum(rows, -limit), limit).reshape(weight.shape)


def clip_after_steps(layer: nn.Module) -> None:
    """Limits a layer's weight (WeightCarrier) after each step of an optimiser that trains it."""
    if getattr(_config(layer), "clip", "none") == "none":
        return
    _layers.add(layer)
    if not _hooks:  # once in a process, for all optimisers
        hook: Callable[..., None] = _clip_layers
        _hooks.append(register_optimizer_step_post_hook(hook))


def _clip_layers(optimizer: torch.optim.Optimizer, _arguments: object, _options: object) -> None:
    stepped = {id(each) for group in optimizer.param_groups for each in group["params"]}
    clip_all(layer for layer in list(_layers) if id(layer.carrier) in stepped)


@torch.no_grad()
def clip_all(layers: Iterable[Any]) -> None:
    """Limits the weights of these layers (WeightCarrier), where their configurations say so.

    Weights that are frozen stay as they are, as in a step of torch's optimisers.
    """
    for layer in layers:
        config, limit = _config(layer), layer.weight_clip
        if config.clip == "none" or not layer.carrier.requires_grad:
            continue
        if limit is not None:
            most = config.clip_value
            limit.clamp_(min=_LEAST_LIMIT, max=most if most > 0.0 else None)
        layer.carrier.copy_(clipped(layer.carrier, config, limit))


def _config(layer: Any) -> Any:  # noqa: ANN401 - InferenceConfig of a WeightCarrier
    return layer.held.array.config
