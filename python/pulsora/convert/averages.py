"""Averages of models: stochastic weight averaging, and moving averages of weights."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import nn

from pulsora.convert.arrays import layers_of_arrays
from pulsora.convert.copies import copied
from pulsora.nn.autograd.analog_parameter import AnalogParameter
from pulsora.nn.base import AnalogModule

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

__all__ = ["average"]

_M = TypeVar("_M", bound="nn.Module")


def average(models: Iterable[_M], weights: Iterable[float] | None = None) -> _M:
    """Returns a copy of the first model with the mean of the weights of all models.

        averaged = pl.average([averaged, model], [0.999, 0.001])  # a moving average (EMA)

    Analog layers are averaged by `get_weights` and written by `set_weights`: without noise, within
    the bounds of the cells of the first model. Digital parameters and floating-point buffers are
    averaged too. Everything else is the first model's: other buffers, seeds, counters of tiles.

    Args:
        models: Models of one structure, on any devices; they do not change.
        weights: A number for each model, 0 or larger; by default all are equal. They are divided by
            their sum.

    Returns:
        The averaged copy, on the device and in the mode (training or evaluation) of the first
        model.

    Raises:
        TypeError: if `models` are not modules.
        ValueError: if there is no model, `weights` do not fit, or a layer, parameter or buffer
            differs in kind or shape; the text names it.
    """
    if isinstance(models, nn.Module):  # nn.Sequential is an iterable of its layers
        raise TypeError(f"models is one {type(models).__name__}: give a list of models")
    given = list(models)
    if not given:
        raise ValueError("models is empty: give at least one model")
    for i, model in enumerate(given):
        if not isinstance(model, nn.Module):
            raise TypeError(
                f"models[{i}] is of type {type(model).__name__}: give a torch.nn.Module"
            )
    shares = _shares(weights, len(given))
    layers = [layers_of_arrays(model) for model in given]
    tensors = [_tensors(model) for model in given]
    for i in range(1, len(given)):
        _require_alike(i, layers[0], layers[i])
        _require_alike(i, tensors[0], tensors[i])

    averaged = copied(given[0])
    for name, layer in layers_of_arrays(averaged).items():
        each = [layers_of[name].get_weights() for layers_of in layers]
        biases = [bias for _, bias in each if bias is not None]
        layer.set_weights(
            _mean([weight for weight, _ in each], shares), _mean(biases, shares) if biases else None
        )
    with torch.no_grad():
        for name, tensor in _tensors(averaged).items():
            tensor.copy_(_mean([tensors_of[name] for tensors_of in tensors], shares))
    return averaged


def _shares(weights: Iterable[float] | None, count: int) -> list[float]:
    """Returns the weights divided by their sum."""
    values = [1.0] * count if weights is None else [float(each) for each in weights]
    if len(values) != count:
        raise ValueError(f"weights has {len(values)} numbers, but there are {count} models")
    total = math.fsum(values)
    if not all(math.isfinite(each) and each >= 0.0 for each in values) or total <= 0.0:
        raise ValueError(
            f"weights = {values}: give finite numbers, 0 or larger, that are not all 0"
        )
    return [each / total for each in values]


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """Returns what is averaged outside of tiles: parameters and floating-point buffers."""
    scalings = {
        id(layer.out_scaling) for layer in model.modules() if isinstance(layer, AnalogModule)
    }
    found = {
        name: each
        for name, each in model.named_parameters()
        if not isinstance(each, AnalogParameter) and id(each) not in scalings
    }
    buffers = dict(model.named_buffers())
    return found | {
        name: each
        for name, each in buffers.items()
        if each.is_floating_point() or each.is_complex()
    }


def _require_alike(
    i: int,
    first: dict[str, AnalogModule] | dict[str, Tensor],
    other: dict[str, AnalogModule] | dict[str, Tensor],
) -> None:
    """Raises ValueError if a layer or tensor of models[i] differs from that of models[0]."""
    for name in (*first, *other):
        forms = [_form(among.get(name)) for among in (first, other)]
        if forms[0] != forms[1]:
            raise ValueError(
                f"{name or 'the layer'!r} is {forms[0]} in models[0], but {forms[1]} in "
                f"models[{i}]; average models of one structure"
            )


def _form(value: AnalogModule | Tensor | None) -> str:
    if value is None:
        return "missing"
    if isinstance(value, AnalogModule):
        rows, columns = value.tiles.shape
        shape = [rows, columns - value.analog_bias]
        has_bias = value.analog_bias or value.bias is not None
        bias = "with" if has_bias else "without"
        return f"an analog layer of shape {shape} {bias} a bias"
    return f"a digital tensor of shape {[*value.shape]}"


def _mean(values: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    """Returns the weighted mean, summed in double precision."""
    first = values[0]
    wide = torch.promote_types(first.dtype, torch.float64)
    # A share of 0 leaves a model out, even if its values are not finite.
    total = torch.zeros_like(first, dtype=wide)
    for share, value in zip(shares, values, strict=True):
        if share > 0.0:
            total += share * value.detach().to(first.device, wide)
    return total.to(first.dtype)
