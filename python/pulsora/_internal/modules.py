"""Models that callers give."""

from __future__ import annotations

from torch import nn

__all__ = ["require_module"]


def require_module(model: object) -> None:
    """Raises TypeError unless a model is a module of torch."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is of type {type(model).__name__}: give a torch.nn.Module")
