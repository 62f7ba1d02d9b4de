"""Deep copies of models, with an error that names the layer that torch cannot copy."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import nn

from pulsora._internal.modules import require_module

__all__ = ["copied"]

_M = TypeVar("_M", bound=nn.Module)


def copied(model: _M) -> _M:
    """Returns a deep copy of a model.

    Raises:
        TypeError: unless the model is a module of torch.
        RuntimeError: naming a layer with a weight that torch computes from others and cannot copy.
    """
    require_module(model)
    try:
        return copy.deepcopy(model)
    except RuntimeError as error:
        for where, layer in model.named_modules():
            for name, value in vars(layer).items():
                if isinstance(value, torch.Tensor) and value.grad_fn is not None:
                    raise RuntimeError(
                        f"layer '{where}' ({type(layer).__name__}) cannot be copied, because its "
                        f"{name} is computed from other parameters (torch.nn.utils.prune, or the "
                        "older weight_norm and spectral_norm of torch.nn.utils). Make it a "
                        f"parameter first, by prune.remove(layer, '{name}'), remove_weight_norm or "
                        "remove_spectral_norm; torch.nn.utils.parametrizations can be copied, and "
                        "such layers stay digital"
                    ) from error
        raise
