"""Layers of a model that give way to their analog twins, and trials before the first one does."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from pulsora import _core
from pulsora.config import IdealConfig
from pulsora.convert.checks import require_outputs
from pulsora.convert.choice import COPY_OF
from pulsora.convert.copies import copied
from pulsora.convert.layers import TO_ANALOG, conversion_of, is_on_meta
from pulsora.nn.options import blank_weights
from pulsora.nn.tiles.weight_scaling import require_finite_weights

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pulsora.config import TileConfig
    from pulsora.convert.layers import Conversion

__all__ = ["is_own_conversion", "places_of", "release", "require_twins", "twin_of", "weight_key"]


def twin_of(
    name: str,
    layer: nn.Module,
    config: TileConfig,
    functions: dict[type[nn.Module], Conversion],
    settings: dict[str, Any],
) -> nn.Module:
    """Returns what the function for a type of layers makes of a layer."""
    function: Any = conversion_of(layer, functions)
    place = next((parameter.device for parameter in layer.parameters()), None)
    settings = {"device": "cpu" if is_on_meta(layer) else place} | settings
    try:
        if is_own_conversion(layer, functions):
            with blank_weights():
                twin = function(layer, config, **settings)
        else:
            twin = function(layer, config, **settings)
    except (TypeError, ValueError) as error:
        kind = type(error)
        if kind not in {TypeError, ValueError, _core.ConfigError, _core.InputError}:
            raise  # of the user's own; its arguments are unknown
        raise kind(f"layer '{name or type(layer).__name__}': {error}") from None
    if not isinstance(twin, nn.Module):
        raise TypeError(
            f"conversions[{type(layer).__name__}] gave {twin!r} for layer '{name}': return a "
            "torch.nn.Module"
        )
    if COPY_OF in vars(layer):
        vars(twin)[COPY_OF] = vars(layer)[COPY_OF]
    return twin


def is_own_conversion(layer: nn.Module, functions: dict[type[nn.Module], Conversion]) -> bool:
    """Whether the function that converts a layer is of this package."""
    return conversion_of(layer, functions) is conversion_of(layer, TO_ANALOG)


def weight_key(layer: nn.Module) -> int:
    """Returns a number that is equal for layers of a model that share their weight."""
    weight = layer._parameters.get("weight")  # noqa: SLF001 - no weight that is computed
    return id(layer if weight is None else weight)


def places_of(
    model: nn.Module, layers: Collection[nn.Module]
) -> dict[nn.Module, list[tuple[nn.Module, str]]]:
    """Returns where layers occur in a model: modules, and names of attributes in these."""
    found: dict[nn.Module, list[tuple[nn.Module, str]]] = {}
    for parent in model.modules():
        for name, child in parent._modules.items():  # noqa: SLF001 - shared layers too
            if child is not None and child in layers:
                found.setdefault(child, []).append((parent, name))
    return found


def release(layer: nn.Module, twin: nn.Module) -> None:
    """Empties the parameters of a layer that its twin has not taken over."""
    kept = set(twin.parameters())
    for parameter in layer.parameters():
        if parameter not in kept:
            parameter.data = parameter.data.new_empty(0)


def require_twins(
    chosen: Mapping[nn.Module, tuple[str, TileConfig]],
    functions: dict[type[nn.Module], Conversion],
    settings: Mapping[str, Any],
) -> None:
    """Raises the errors of a conversion, as far as they can be known before it.

    Weights have to be finite. A layer of each kind is converted for a trial, on which sizes and
    settings depend. Each layer is compared with a twin of floating-point weights. Layers that
    functions of the user convert are left to these.
    """
    tried: list[tuple[object, ...]] = []
    exact = {name: value for name, value in settings.items() if name == "digital_bias"}
    for layer, (name, config) in chosen.items():
        if not is_own_conversion(layer, functions):
            continue
        own = list(layer.named_parameters())
        for parameter, values in own:
            if not values.is_meta:
                _require_finite(name, parameter, values.detach())
        sizes = tuple((each, tuple(values.shape)) for each, values in own)
        kind = (repr(layer), sizes, own[0][1].dtype, own[0][1].device, config)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if kind not in tried:
                tried.append(kind)
                twin_of(name, copied(layer), config, functions, {"tile_id": 0, **settings})
            if not is_on_meta(layer):
                layer = copied(layer)  # noqa: PLW2901 - whose bias the twin takes over
                options = {"tile_id": 0, "seed": 0, **exact}
                require_outputs(
                    name, layer, twin_of(name, layer, IdealConfig(), functions, options)
                )


@torch.no_grad()
def _require_finite(name: str, parameter: str, values: torch.Tensor) -> None:
    if values.isfinite().all():
        return
    try:
        require_finite_weights(values.reshape(len(values), -1), "every weight must be finite")
    except _core.InputError as error:
        raise _core.InputError(f"layer '{name}', {parameter}: {error}") from None
