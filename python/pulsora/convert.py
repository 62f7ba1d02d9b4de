"""Turning the layers of a torch model into analog ones, and back."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import nn

from pulsora.nn import AnalogConv2d, AnalogLinear, AnalogModule

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pulsora.config import TileConfig

__all__ = ["convert_to_analog", "convert_to_digital"]


def convert_to_analog(
    model: nn.Module,
    config: TileConfig | Callable[[str, nn.Module], TileConfig | None],
    *,
    exclude: Collection[str] = (),
    seed: int | None = None,
    **options: Any,
) -> nn.Module:
    """A copy of the model in which every Linear and Conv2d layer is analog, weights included.

    Args:
        model: Any torch model. It is not changed.
        config: Configuration of all tiles; or a function of a layer's name and the layer that
            gives its configuration, or None to leave it digital.
        exclude: Names of layers to leave digital, as `model.named_modules()` gives them; a name
            also covers what is inside.
        seed: Seed of all tiles, each of which has a number of its own; by default drawn from
            torch's generator.
        **options: digital_bias, max_input_size, max_output_size, device and threads of the
            analog layers.

    Raises:
        ValueError: if a name in `exclude` does not occur, or a convolution has groups or a
            padding mode other than zeros.
    """
    names = dict(model.named_modules(remove_duplicate=False))
    unknown = sorted(set(exclude) - set(names))
    if unknown:
        raise ValueError(
            f"exclude = {unknown}: the model has no such layers; it has "
            f"{[name for name, layer in names.items() if _convertible(layer)]}"
        )
    if seed is None:
        seed = int(torch.randint(2**62, ()).item())
    tiles = 0
    copies: dict[nn.Module, nn.Module] = {}

    def convert(name: str, layer: nn.Module) -> nn.Module | None:
        nonlocal tiles
        if any(name == kept or name.startswith(f"{kept}.") for kept in exclude):
            return None
        if not _convertible(layer):
            return None
        if layer not in copies:
            chosen = config(name, layer) if callable(config) else config
            if chosen is None:
                return None
            made = _analog(name, layer, chosen, seed=seed, tile_id=tiles, **options)
            tiles += len(made.tiles)
            copies[layer] = made
        return copies[layer]

    return _replace(copy.deepcopy(model), convert)


def convert_to_digital(model: nn.Module) -> nn.Module:
    """A copy of the model with torch's layers in place of analog ones.

    Their weights are what a perfect read of the tiles would see, adapters included.
    """
    return _replace(
        copy.deepcopy(model),
        lambda _, layer: _digital(layer) if isinstance(layer, AnalogModule) else None,
    )


def _convertible(layer: nn.Module) -> TypeGuard[nn.Linear | nn.Conv2d]:
    # Not their subclasses: those of torch are not called like layers (in MultiheadAttention).
    return type(layer) in {nn.Linear, nn.Conv2d}


def _replace(
    model: nn.Module, convert: Callable[[str, nn.Module], nn.Module | None], name: str = ""
) -> nn.Module:
    """Puts `convert(name, layer)` in the place of each layer for which it is not None."""
    converted = convert(name, model)
    if converted is not None:
        return converted
    for child_name, child in list(model._modules.items()):  # noqa: SLF001 - shared layers too
        if child is None:
            continue
        full_name = f"{name}.{child_name}" if name else child_name
        setattr(model, child_name, _replace(child, convert, full_name))
    return model


def _analog(
    name: str, layer: nn.Linear | nn.Conv2d, config: TileConfig, **options: Any
) -> AnalogModule:
    bias = layer.bias is not None
    made: AnalogModule
    if isinstance(layer, nn.Linear):
        made = AnalogLinear(layer.in_features, layer.out_features, bias, config, **options)
    else:
        made = AnalogConv2d(
            layer.in_channels,
            layer.out_channels,
            (layer.kernel_size[0], layer.kernel_size[1]),
            (layer.stride[0], layer.stride[1]),
            _zero_padding(name, layer),
            (layer.dilation[0], layer.dilation[1]),
            bias,
            config,
            **options,
        )
    made.train(layer.training)
    made.set_weights(layer.weight.flatten(1), layer.bias)
    made.analog_weight.requires_grad_(layer.weight.requires_grad)
    return made


def _zero_padding(name: str, layer: nn.Conv2d) -> tuple[int, int]:
    if layer.groups != 1:
        raise ValueError(
            f"layer '{name}' has groups = {layer.groups}, which tiles do not have; exclude it"
        )
    if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        raise ValueError(
            f"layer '{name}' has padding = {layer.padding!r}, padding_mode = "
            f"'{layer.padding_mode}'; analog layers pad with a number of zeros. Exclude it"
        )
    return layer.padding[0], layer.padding[1]


def _digital(layer: AnalogModule) -> nn.Module:
    weight, bias = layer.get_weights()
    made: nn.Linear | nn.Conv2d
    if isinstance(layer, AnalogLinear):
        made = nn.Linear(layer.in_features, layer.out_features, bias is not None)
    elif isinstance(layer, AnalogConv2d):
        made = nn.Conv2d(
            layer.in_channels,
            layer.out_channels,
            layer.kernel_size,
            layer.stride,
            layer.padding,
            layer.dilation,
            bias=bias is not None,
        )
    else:
        raise TypeError(f"{type(layer).__name__} has no digital twin")
    with torch.no_grad():
        made.weight.copy_(weight.reshape(made.weight.shape))
        if bias is not None and made.bias is not None:
            made.bias.copy_(bias)
    return made.train(layer.training)
