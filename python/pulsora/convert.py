"""Turning the layers of a torch model into analog ones, and back."""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from pulsora.conversion import choice, conversion_report, mark_as_chosen, why_digital
from pulsora.nn import AnalogConv2d, AnalogLinear, AnalogModule

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

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

    `pulsora.conversion_report(model)` tells of each layer that holds a matrix whether it has become
    analog, or why not. A warning names those that stay digital although nobody left them so.
    Layers that shared their weight share their tiles; what was frozen stays frozen; biases are the
    parameters they were.

    Args:
        model: Any torch model. It is not changed.
        config: Configuration of all tiles; or a function of a layer's name and the layer that
            gives its configuration, or None to leave it digital.
        exclude: Names of layers to leave digital, as `model.named_modules()` gives them; a name
            also covers what is inside.
        seed: Seed of all tiles, each of which has a number of its own; by default drawn from
            torch's generator.
        **options: digital_bias, max_input_size, max_output_size, device and threads of the
            analog layers. They are on the device of the layer by default.

    Raises:
        ValueError: if a name in `exclude` does not occur, or layers share a weight that could not
            be shared afterwards.
    """
    names = dict(model.named_modules(remove_duplicate=False))
    unknown = sorted(set(exclude) - set(names))
    if unknown:
        raise ValueError(
            f"exclude = {unknown}: the model has no such layers; it has "
            f"{[name for name, layer in names.items() if _convertible(layer)]}"
        )
    if seed is None:
        seed = int(torch.randint(2**62, (), device="cpu").item())
    converted = copy.deepcopy(model)
    chosen = _chosen(converted, config, exclude)
    _require_shareable(converted, chosen, digital_bias=options.get("digital_bias", True))
    tiles = 0
    made: dict[nn.Module, AnalogModule] = {}
    owners: dict[nn.Parameter, AnalogModule] = {}
    for layer, (name, layer_config) in chosen.items():
        twin = _analog(name, layer, layer_config, seed=seed, tile_id=tiles, **options)
        first = owners.setdefault(layer.weight, twin)
        twin.analog_weight = first.analog_weight
        tiles += len(twin.tiles) if first is twin else 0
        made[layer] = twin
    converted = _replace(converted, made)
    surprising = [row for row in conversion_report(converted) if row.is_surprising]
    if surprising:
        warnings.warn(
            "these layers stay digital: "
            + "; ".join(
                f"{row.name or 'the model'} ({row.layer}: {row.detail})" for row in surprising
            )
            + ". Name them in exclude if that is meant; print(pulsora.conversion_report(model)) "
            "shows all layers",
            stacklevel=2,
        )
    return converted


def convert_to_digital(model: nn.Module) -> nn.Module:
    """A copy of the model with torch's layers in place of analog ones.

    Their weights are what a perfect read of the tiles would see, adapters included. Layers that
    shared their tiles share the weight; what was frozen stays frozen.
    """
    converted = copy.deepcopy(model)
    analog = [layer for layer in converted.modules() if isinstance(layer, AnalogModule)]
    made = {layer: _digital(layer) for layer in analog}
    first: dict[object, nn.Linear | nn.Conv2d] = {}
    for layer, twin in made.items():
        twin.weight = first.setdefault(layer.analog_weight, twin).weight
    return _replace(converted, made)


def _convertible(layer: nn.Module) -> bool:
    # Not their subclasses: those of torch are not called like layers (in MultiheadAttention).
    return type(layer) in {nn.Linear, nn.Conv2d} and not why_digital(layer)


def _chosen(
    model: nn.Module,
    config: TileConfig | Callable[[str, nn.Module], TileConfig | None],
    exclude: Collection[str],
) -> dict[Any, tuple[str, TileConfig]]:
    """The layers that become analog, with their names and configurations."""
    chosen: dict[Any, tuple[str, TileConfig]] = {}
    for layer in model.modules():
        mark_as_chosen(layer, "")  # of an earlier conversion
    for name, layer in model.named_modules(remove_duplicate=False):
        if any(name == kept or name.startswith(f"{kept}.") for kept in exclude):
            mark_as_chosen(layer, "excluded")
        elif _convertible(layer) and layer not in chosen:
            layer_config = config(name, layer) if callable(config) else config
            if layer_config is None:
                mark_as_chosen(layer, "config gave None")
            else:
                chosen[layer] = (name, layer_config)
    return chosen


def _require_shareable(
    model: nn.Module, chosen: Mapping[Any, tuple[str, TileConfig]], *, digital_bias: bool
) -> None:
    """ValueError if conversion would part layers that share a weight, or a bias that goes into tiles."""
    owners: dict[nn.Parameter, tuple[str, nn.Module]] = {}
    for name, layer in model.named_modules():
        if layer in chosen and choice(layer):
            raise ValueError(
                f"layer '{name}' occurs several times, and only some of its names are excluded; "
                "exclude all of them or none"
            )
        for parameter in layer.parameters(recurse=False):
            other_name, other = owners.setdefault(parameter, (name, layer))
            if other is layer or not {layer, other} & set(chosen):
                continue
            if parameter.ndim < 2 and digital_bias:
                continue
            both = f"layers '{other_name}' and '{name}' share a parameter"
            if not digital_bias and getattr(layer, "bias", None) is not None:
                raise ValueError(
                    f"{both}, but with digital_bias = False each has its bias in tiles of its own; "
                    "use digital_bias = True"
                )
            if not {layer, other} <= set(chosen) or type(layer) is not type(other):
                raise ValueError(
                    f"{both}, but not both become analog layers of one kind; exclude them, or give "
                    "them weights of their own"
                )
            if chosen[layer][1] != chosen[other][1]:
                raise ValueError(f"{both}, but config gives them different configurations")


def _replace(model: nn.Module, made: Mapping[Any, nn.Module]) -> nn.Module:
    """The model with layers replaced by what has been made of them, wherever they occur."""
    if model in made:
        return made[model]
    for layer in model.modules():
        for name, child in layer._modules.items():  # noqa: SLF001 - shared layers too
            if child in made:
                setattr(layer, name, made[child])
    return model


def _analog(
    name: str, layer: nn.Linear | nn.Conv2d, config: TileConfig, **options: Any
) -> AnalogModule:
    bias: nn.Parameter | None = layer.bias  # type: ignore[assignment]
    options = {"device": layer.weight.device} | options
    made: AnalogModule
    if isinstance(layer, nn.Linear):
        made = AnalogLinear(
            layer.in_features, layer.out_features, bias is not None, config, **options
        )
    else:
        made = AnalogConv2d(
            layer.in_channels,
            layer.out_channels,
            (layer.kernel_size[0], layer.kernel_size[1]),
            (layer.stride[0], layer.stride[1]),
            layer.padding,  # type: ignore[arg-type] # numbers, or the layer would not be here
            (layer.dilation[0], layer.dilation[1]),
            bias is not None,
            config,
            **options,
        )
    made.train(layer.training)
    made.set_weights(layer.weight.flatten(1), bias)
    made.analog_weight.requires_grad_(layer.weight.requires_grad)
    if bias is not None and made.bias is not None:
        bias.data = bias.data.to(made.bias.device)
        made.bias = bias
    elif bias is not None and bias.requires_grad != layer.weight.requires_grad:
        raise ValueError(
            f"layer '{name}' has only one of weight and bias frozen, but with digital_bias = False "
            "both are in the same tiles; freeze both or none, or use digital_bias = True"
        )
    return made


def _digital(layer: AnalogModule) -> nn.Linear | nn.Conv2d:
    weight, bias = layer.get_weights()
    made: nn.Linear | nn.Conv2d
    if isinstance(layer, AnalogLinear):
        made = nn.Linear(layer.in_features, layer.out_features, bias is not None, weight.device)
    elif isinstance(layer, AnalogConv2d):
        made = nn.Conv2d(
            layer.in_channels,
            layer.out_channels,
            layer.kernel_size,
            layer.stride,
            layer.padding,
            layer.dilation,
            bias=bias is not None,
            device=weight.device,
        )
    else:
        raise TypeError(f"{type(layer).__name__} has no digital twin")
    with torch.no_grad():
        made.weight.copy_(weight.reshape(made.weight.shape))
        if bias is not None and made.bias is not None:
            made.bias.copy_(bias)
    made.weight.requires_grad_(layer.analog_weight.requires_grad)
    if made.bias is not None:
        frozen = layer.analog_weight if layer.bias is None else layer.bias
        made.bias.requires_grad_(frozen.requires_grad)
    return made.train(layer.training)
