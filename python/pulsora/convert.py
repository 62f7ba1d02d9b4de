"""Turning the layers of a torch model into analog ones, and back."""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from pulsora.conversion import (
    TWINS,
    analog_parts,
    choice,
    conversion_report,
    mark_as_chosen,
    why_digital,
)
from pulsora.nn import (
    AnalogConv1d,
    AnalogConv2d,
    AnalogConv3d,
    AnalogConvNd,
    AnalogGRU,
    AnalogLinear,
    AnalogLSTM,
    AnalogModule,
    AnalogRNN,
    AnalogRNNBase,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import TypeAlias

    from pulsora.config import TileConfig

    Conversion: TypeAlias = Callable[..., nn.Module]

__all__ = ["convert_to_analog", "convert_to_digital"]


def convert_to_analog(
    model: nn.Module,
    config: TileConfig | Callable[[str, nn.Module], TileConfig | None],
    *,
    exclude: Collection[str] = (),
    conversions: Mapping[type[nn.Module], Conversion] | None = None,
    seed: int | None = None,
    **options: Any,
) -> nn.Module:
    """A copy of the model in which linear, convolutional and recurrent layers are analog.

    They have the weights of the layers whose place they take.

    `pulsora.conversion_report(model)` tells of each layer that holds a matrix whether it has become
    analog, or why not. A warning names those that stay digital although nobody left them so.
    Layers that shared their weight share their tiles; what was frozen stays frozen; biases are the
    parameters they were. Hooks on forward and backward passes go over to the analog layers.

    Args:
        model: Any torch model. It is not changed.
        config: Configuration of all tiles; or a function of a layer's name and the layer that
            gives its configuration, or None to leave it digital.
        exclude: Names of layers to leave digital, as `model.named_modules()` gives them; a name
            also covers what is inside.
        conversions: Functions for types of layers that have no analog twin of their own, or for which
            another is wanted. `function(layer, config, **options)` gives the module that takes the
            place of a layer of exactly that type, weights included; the options (seed, tile_id,
            device and those below) are those of `AnalogModule`. tile_id is the first number that
            is free; the tiles of the module count on from it.
        seed: Seed of all tiles, each of which has a number of its own; by default drawn from
            torch's generator.
        **options: digital_bias, max_input_size, max_output_size, device, threads, weight_scaling,
            scaling_per and learn_out_scaling of the analog layers, as `AnalogModule` explains them. They are on the device of the layer by default.

    Raises:
        TypeError: if `conversions` has something else than types of layers and functions, or one of
            these gives no module.
        ValueError: if a name in `exclude` does not occur, or layers share a weight that could not
            be shared afterwards.
    """
    functions = _functions(conversions)
    names = dict(model.named_modules(remove_duplicate=False))
    unknown = sorted(set(exclude) - set(names))
    if unknown:
        raise ValueError(
            f"exclude = {unknown}: the model has no such layers; it has "
            f"{[name for name, layer in names.items() if _convertible(layer, functions)]}"
        )
    if seed is None:
        seed = int(torch.randint(2**62, (), device="cpu").item())
    converted = copy.deepcopy(model)
    chosen = _chosen(converted, config, exclude, functions)
    _require_shareable(converted, chosen, digital_bias=options.get("digital_bias", True))
    tiles = 0
    made: dict[nn.Module, nn.Module] = {}
    owners: dict[object, nn.Module] = {}
    for layer, (name, layer_config) in chosen.items():
        place = next((parameter.device for parameter in layer.parameters()), None)
        settings = {"device": place, "seed": seed, "tile_id": tiles} | options
        twin = functions[type(layer)](layer, layer_config, **settings)
        if not isinstance(twin, nn.Module):
            raise TypeError(
                f"conversions[{type(layer).__name__}] gave {twin!r} for layer '{name}': return a "
                "torch.nn.Module"
            )
        first = owners.setdefault(getattr(layer, "weight", layer), twin)
        if first is twin:
            tiles += sum(len(part.tiles) for part in analog_parts(twin))
        elif isinstance(first, AnalogModule) and isinstance(twin, AnalogModule):
            twin.analog_weight = first.analog_weight
        else:
            raise ValueError(
                f"layer '{name}' shares its weight, but conversions[{type(layer).__name__}] gives no "
                "AnalogModule, which could share tiles; exclude it, or give it a weight of its own"
            )
        made[layer] = _in_place_of(layer, twin)
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
    shared their tiles share the weight; what was frozen stays frozen; hooks on forward and backward
    passes stay.

    Raises:
        TypeError: for analog layers of other classes than those of `pulsora.nn`.
    """
    converted = copy.deepcopy(model)
    recurrent = [layer for layer in converted.modules() if isinstance(layer, AnalogRNNBase)]
    inside = {part for layer in recurrent for part in analog_parts(layer)}
    single = [part for part in analog_parts(converted) if part not in inside]
    made: dict[nn.Module, Any] = {layer: _digital(layer) for layer in single}
    made |= {layer: _digital_recurrent(layer) for layer in recurrent}
    first: dict[object, Any] = {}
    for layer, twin in made.items():
        _in_place_of(layer, twin)
    for layer in single:
        twin = made[layer]
        twin.weight = first.setdefault(layer.analog_weight, twin).weight
    return _replace(converted, made)


def _functions(
    conversions: Mapping[type[nn.Module], Conversion] | None,
) -> dict[type[nn.Module], Conversion]:
    """The function that converts each type of layers."""
    given: dict[Any, Any] = {} if conversions is None else dict(conversions)
    for kind, function in given.items():
        if not (isinstance(kind, type) and issubclass(kind, nn.Module) and callable(function)):
            raise TypeError(
                f"conversions = {{{kind!r}: {function!r}}}: give functions by types of layers, "
                "{MyLayer: function}"
            )
    return {nn.Linear: _linear} | dict.fromkeys(_CONVOLUTIONS, _conv) | _RECURRENT | given


def _convertible(layer: nn.Module, functions: Mapping[type[nn.Module], Conversion]) -> bool:
    # Not their subclasses: those of torch are not called like layers (in MultiheadAttention).
    kind = type(layer)
    return kind in functions and (kind not in TWINS or not why_digital(layer))


def _chosen(
    model: nn.Module,
    config: TileConfig | Callable[[str, nn.Module], TileConfig | None],
    exclude: Collection[str],
    functions: Mapping[type[nn.Module], Conversion],
) -> dict[Any, tuple[str, TileConfig]]:
    """The layers that become analog, with their names and configurations."""
    chosen: dict[Any, tuple[str, TileConfig]] = {}
    whole: list[str] = []  # names of those, which are converted with what is inside
    for layer in model.modules():
        mark_as_chosen(layer, "")  # of an earlier conversion
    for name, layer in model.named_modules(remove_duplicate=False):
        if any(name == kept or name.startswith(f"{kept}.") for kept in exclude):
            mark_as_chosen(layer, "excluded")
        elif any(not outer or name.startswith(f"{outer}.") for outer in whole):
            continue
        elif layer in chosen:
            whole.append(name)
        elif _convertible(layer, functions):
            layer_config = config(name, layer) if callable(config) else config
            if layer_config is None:
                mark_as_chosen(layer, "config gave None")
            else:
                chosen[layer] = (name, layer_config)
                whole.append(name)
    return chosen


def _require_shareable(
    model: nn.Module, chosen: Mapping[Any, tuple[str, TileConfig]], *, digital_bias: bool
) -> None:
    """ValueError if conversion would part layers that share a weight, or a bias that goes into tiles."""
    owners: dict[nn.Parameter, tuple[str, nn.Module]] = {}
    for name, layer in model.named_modules():
        if layer in chosen and not digital_bias:
            _require_both_frozen(name, layer)
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
            if not {layer, other} <= set(chosen) or _kind(layer) != _kind(other):
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


def _kind(layer: nn.Module) -> tuple[object, ...]:
    """What layers have to agree in to share their tiles."""
    if type(layer) in TWINS and hasattr(layer, "weight"):
        return type(layer), getattr(layer, "groups", 1)
    return (layer,)


def _require_both_frozen(name: str, layer: nn.Module) -> None:
    own = dict(layer.named_parameters(recurse=False))
    for bias, values in own.items():
        weight = bias.replace("bias", "weight")
        if weight in own and own[weight].requires_grad != values.requires_grad:
            raise ValueError(
                f"layer '{name}' has only one of {weight} and {bias} frozen, but with digital_bias = "
                "False both are in the same tiles; freeze both or none, or use digital_bias = True"
            )


_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
)


def _in_place_of(layer: nn.Module, twin: nn.Module) -> nn.Module:
    """The twin, in the mode and with the hooks of the layer that it replaces."""
    for name in _HOOKS:
        getattr(twin, name).update(getattr(layer, name))
    twin._is_full_backward_hook = layer._is_full_backward_hook  # noqa: SLF001
    return twin.train(layer.training)


def _linear(layer: nn.Linear, config: TileConfig, **options: Any) -> AnalogLinear:
    made = AnalogLinear(
        layer.in_features, layer.out_features, layer.bias is not None, config, **options
    )
    _take_over(made, layer)
    return made


def _conv(
    layer: nn.Conv1d | nn.Conv2d | nn.Conv3d, config: TileConfig, **options: Any
) -> AnalogConvNd:
    made = _CONVOLUTIONS[type(layer)](
        layer.in_channels,
        layer.out_channels,
        layer.kernel_size,
        layer.stride,
        layer.padding,
        layer.dilation,
        layer.bias is not None,
        config,
        groups=layer.groups,
        padding_mode=layer.padding_mode,
        **options,
    )
    _take_over(made, layer)
    return made


_CONVOLUTIONS: dict[type[nn.Module], type[AnalogConvNd]] = {
    nn.Conv1d: AnalogConv1d,
    nn.Conv2d: AnalogConv2d,
    nn.Conv3d: AnalogConv3d,
}


def _recurrent(made: type[AnalogRNNBase], names: tuple[str, ...]) -> Conversion:
    """The function for a recurrent layer, which hands on these arguments."""

    def convert(layer: nn.RNNBase, config: TileConfig, **options: Any) -> AnalogRNNBase:
        arguments = {name: getattr(layer, name) for name in names}
        twin = made(**arguments, config=config, **options)
        twin.set_weights(dict(layer.state_dict()))
        for name, parameter in layer.named_parameters():
            part = name.removeprefix("weight_")
            if part != name:
                weight = twin.get_parameter(f"{part}.analog_weight")
                weight.requires_grad_(parameter.requires_grad)
            elif options.get("digital_bias", True):
                parameter.data = parameter.data.to(twin.get_parameter(name).device)
                setattr(twin, name, parameter)
        return twin

    return convert


_RECURRENT: dict[type[nn.Module], Conversion] = {
    kind: _recurrent(made, made.settings)
    for kind, made in ((nn.RNN, AnalogRNN), (nn.LSTM, AnalogLSTM), (nn.GRU, AnalogGRU))
}


def _digital_recurrent(layer: AnalogRNNBase) -> nn.Module:
    weights = layer.get_weights()
    made = layer.digital(device=next(analog_parts(layer)).tiles.device)
    made.load_state_dict(weights)
    for name, parameter in made.named_parameters():
        part = name.removeprefix("weight_").removeprefix("bias_")
        own = layer._parameters.get(name)  # noqa: SLF001 - a bias, unless that is in tiles
        of = layer.get_parameter(f"{part}.analog_weight") if own is None else own
        parameter.requires_grad_(of.requires_grad)
    return made


def _take_over(made: AnalogModule, layer: Any) -> None:  # noqa: ANN401 - a layer with weight and bias
    """Writes the weights of a layer of torch, and takes its bias and what of it is frozen."""
    bias: nn.Parameter | None = layer.bias
    made.set_weights(layer.weight.flatten(1), bias)
    made.analog_weight.requires_grad_(layer.weight.requires_grad)
    if bias is not None and made.bias is not None:
        bias.data = bias.data.to(made.bias.device)
        made.bias = bias


def _digital(layer: AnalogModule) -> nn.Module:
    weight, bias = layer.get_weights()
    settings: dict[str, Any] = {"bias": bias is not None, "device": weight.device}
    made: Any
    if isinstance(layer, AnalogLinear):
        made = nn.Linear(layer.in_features, layer.out_features, **settings)
    elif isinstance(layer, AnalogConvNd):
        made = layer.digital(**settings)
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
    twin: nn.Module = made
    return twin
