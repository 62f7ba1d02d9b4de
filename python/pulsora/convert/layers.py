"""Conversion of single layers of torch to their analog twins, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from pulsora.convert.report import analog_parts, is_conv1d
from pulsora.nn import (
    AnalogConv1d,
    AnalogConv2d,
    AnalogConv3d,
    AnalogConvNd,
    AnalogGRU,
    AnalogLinear,
    AnalogLSTM,
    AnalogRNN,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from pulsora.config import TileConfig
    from pulsora.nn import AnalogModule, AnalogRNNBase

    Conversion: TypeAlias = Callable[..., nn.Module]

__all__ = [
    "TO_ANALOG",
    "conversion_of",
    "digital",
    "digital_recurrent",
    "is_on_meta",
    "require_twin",
]


def is_on_meta(layer: nn.Module) -> bool:
    """Whether a layer has a parameter on torch's meta device, without values."""
    return any(parameter.is_meta for parameter in layer.parameters())


def _linear(layer: nn.Linear, config: TileConfig, **options: Any) -> AnalogLinear:
    made = AnalogLinear(
        layer.in_features, layer.out_features, layer.bias is not None, config, **options
    )
    _take_over(made, layer)
    return made


def _conv1d(layer: Any, config: TileConfig, **options: Any) -> AnalogLinear:  # noqa: ANN401
    """Converts the Conv1D of transformers."""
    inputs, outputs = layer.weight.shape
    made = AnalogLinear(inputs, outputs, config=config, **options)
    _take_over(made, layer, layer.weight.T)
    made.digital_class = type(layer)
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


_ANALOG = (AnalogLinear, AnalogConv1d, AnalogConv2d, AnalogConv3d, AnalogRNN, AnalogLSTM, AnalogGRU)
_CONVOLUTIONS: dict[type[nn.Module], type[AnalogConvNd]] = {
    nn.Conv1d: AnalogConv1d,
    nn.Conv2d: AnalogConv2d,
    nn.Conv3d: AnalogConv3d,
}


def _recurrent(made: type[AnalogRNNBase], names: tuple[str, ...]) -> Conversion:
    """Returns the conversion to `made`, which takes the arguments `names` from the layer."""

    def convert(layer: nn.RNNBase, config: TileConfig, **options: Any) -> AnalogRNNBase:
        arguments = {name: getattr(layer, name) for name in names}
        twin = made(**arguments, config=config, **options)
        for each in analog_parts(twin):
            each.digital_dtype = layer.get_parameter("weight_ih_l0").dtype
            each.tiles.awaits_weights = is_on_meta(layer)
        if not is_on_meta(layer):
            twin.set_weights(dict(layer.state_dict()))
        for name, parameter in layer.named_parameters():
            part = name.removeprefix("weight_")
            if part != name:
                matrix = cast("AnalogModule", twin.get_submodule(part))
                matrix.carrier.requires_grad_(parameter.requires_grad)
            elif options.get("digital_bias", True):
                _move_to(parameter, twin.get_parameter(name).device)
                setattr(twin, name, parameter)
        return twin

    return convert


_RECURRENT: dict[type[nn.Module], Conversion] = {
    kind: _recurrent(made, made.settings)
    for kind, made in ((nn.RNN, AnalogRNN), (nn.LSTM, AnalogLSTM), (nn.GRU, AnalogGRU))
}


def digital_recurrent(layer: AnalogRNNBase) -> nn.Module:
    """A recurrent layer of torch with the weights of an analog one."""
    weights = layer.get_weights()
    part = next(analog_parts(layer))
    made = layer.digital(device=part.tiles.device, dtype=part.digital_dtype)
    made.load_state_dict(weights)
    for name, parameter in list(made.named_parameters()):
        where = name.removeprefix("weight_").removeprefix("bias_")
        own = layer._parameters.get(name)  # noqa: SLF001 - a bias, unless that is in tiles
        of = cast("AnalogModule", layer.get_submodule(where)).carrier if own is None else own
        parameter.requires_grad_(of.requires_grad)
        if own is not None and _are_equal(own, parameter):
            setattr(made, name, own)  # the same parameter, which other layers may have too
    return made


def _take_over(
    made: AnalogModule,
    layer: Any,  # noqa: ANN401
    weight: torch.Tensor | None = None,
) -> None:
    """Writes the weights of a layer of torch, and takes over its bias and requires_grad."""
    bias: nn.Parameter | None = layer.bias
    made.digital_dtype = layer.weight.dtype
    if is_on_meta(layer):
        made.tiles.awaits_weights = True
    else:
        made.set_weights(layer.weight.flatten(1) if weight is None else weight, bias)
    made.carrier.requires_grad_(layer.weight.requires_grad)
    if bias is not None and made.bias is not None:
        _move_to(bias, made.bias.device)
        made.bias = bias


def _move_to(parameter: nn.Parameter, device: torch.device) -> None:
    if not parameter.is_meta:
        parameter.data = parameter.data.to(device)


def require_twin(where: str, layer: nn.Module) -> None:
    """Raises TypeError for a subclass that computes something else than its class of pulsora.nn."""
    kind = type(layer)
    base = next((each for each in kind.__mro__ if each in _ANALOG), kind)
    methods = [each for each in ("forward", "product", "__call__") if hasattr(base, each)]
    own = [
        method
        for method in methods
        if getattr(kind, method) is not getattr(base, method) or method in vars(layer)
    ]
    if base in _ANALOG and own:
        raise TypeError(
            f"layer '{where}' ({kind.__name__}) is of a subclass of {base.__name__} with {own[0]} "
            "of its own, and may compute something else than the layer of torch; put a layer of "
            "torch that you make in its place first"
        )


def digital(layer: AnalogModule) -> nn.Module:
    """A linear or convolutional layer of torch with the weights of an analog one.

    Raises:
        TypeError: for classes of analog layers that are not of `pulsora.nn`.
    """
    weight, bias = layer.get_weights()
    settings: dict[str, Any] = {
        "bias": bias is not None,
        "device": weight.device,
        "dtype": layer.digital_dtype,
    }
    made: Any
    if isinstance(layer, AnalogLinear) and layer.digital_class is not None:
        made = layer.digital_class(layer.out_features, layer.in_features)
        made = made.to(weight.device, layer.digital_dtype)
        weight = weight.T  # a Conv1D of transformers has [inputs, outputs]
    elif isinstance(layer, AnalogLinear):
        made = nn.Linear(layer.in_features, layer.out_features, **settings)
    elif isinstance(layer, AnalogConvNd):
        made = layer.digital(**settings)
    else:
        raise TypeError(f"{type(layer).__name__} has no digital twin")
    with torch.no_grad():
        made.weight.copy_(weight.reshape(made.weight.shape))
        if bias is not None and made.bias is not None:
            made.bias.copy_(bias)
    made.weight.requires_grad_(layer.carrier.requires_grad)
    if made.bias is not None:
        frozen = layer.carrier if layer.bias is None else layer.bias
        made.bias.requires_grad_(frozen.requires_grad)
        if layer.bias is not None and _are_equal(layer.bias, made.bias):
            made.bias = layer.bias  # the same parameter, which other layers may have too
    twin: nn.Module = made
    return twin


def _are_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one type and device have equal values."""
    return (one.dtype, one.device) == (other.dtype, other.device) and torch.equal(one, other)


TO_ANALOG: dict[type[nn.Module], Conversion] = (
    {nn.Linear: _linear} | dict.fromkeys(_CONVOLUTIONS, _conv) | _RECURRENT
)
"""The function that makes the analog twin, by type of layer."""


def conversion_of(
    layer: nn.Module, functions: dict[type[nn.Module], Conversion]
) -> Conversion | None:
    """Returns the function for exactly the type of a layer, or for a Conv1D of transformers."""
    # Subclasses have none: torch does not call its own like layers (in MultiheadAttention).
    return functions.get(type(layer), _conv1d if is_conv1d(layer) else None)
