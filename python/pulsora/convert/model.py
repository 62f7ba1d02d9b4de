"""Conversion of the layers of a torch model to analog layers, and back."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from pulsora import _core
from pulsora.convert.checks import require_digital_outputs, require_outputs, warn_of_outputs
from pulsora.convert.copies import copied
from pulsora.convert.hooks import in_place_of
from pulsora.convert.layers import (
    TO_ANALOG,
    conversion_of,
    digital,
    digital_recurrent,
    require_twin,
)
from pulsora.convert.programmed import take_programmed
from pulsora.convert.report import (
    TWINS,
    analog_parts,
    choice,
    conversion_report,
    is_conv1d,
    mark_as_chosen,
    own_forward,
    tables,
    why_digital,
)
from pulsora.nn import AnalogModule, AnalogRNNBase, GatedAdapter
from pulsora.nn.autograd.analog_parameter import analog_arrays
from pulsora.nn.tiles.layer_names import set_names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pulsora.config import TileConfig
    from pulsora.convert.layers import Conversion

__all__ = [
    "convert_to_analog",
    "convert_to_digital",
    "converted_copy",
    "replaced",
]


def convert_to_analog(
    model: nn.Module,
    config: TileConfig | Callable[[str, nn.Module], TileConfig | None],
    *,
    exclude: Collection[str] = (),
    untie: Collection[str] = (),
    conversions: Mapping[type[nn.Module], Conversion] | None = None,
    seed: int | None = None,
    **options: Any,
) -> nn.Module:
    """Returns a copy of the model with analog linear, convolutional and recurrent layers.

    Analog layers have the weights of the layers that they replace. The Conv1D of transformers
    (GPT-2) counts as a linear layer.

    `pulsora.conversion_report(model)` says for each layer that holds a matrix whether it is analog,
    or why not. A warning names layers that stay digital without the user's choice. Layers that
    shared their weight share their tiles. A layer that shares its weight with an embedding table (a
    tied head) stays digital. Frozen parameters stay frozen, and biases stay the same parameters.
    Hooks on forward and backward passes move to the analog layers.

    Each layer and its twin, perfectly read, are compared on a few random inputs, without hooks.

    Args:
        model: Any torch model. It is not changed.
        config: Configuration of all tiles; or a function of a layer's name and the layer that
            gives its configuration, or None to leave it digital.
        exclude: Names of layers to leave digital, as `model.named_modules()` gives them, or last
            parts of names ('conv1d') where no layer has the name itself; a name also covers what
            is inside.
        untie: Names of layers that share their weight with an embedding table, and shall get tiles
            with a copy of the weight.
        conversions: Functions for types of layers that have no analog twin of their own, or for
            which another is wanted. `function(layer, config, **options)` gives the module that
            takes the place of a layer of exactly that type, weights included; the options (seed,
            tile_id, device and those below) are those of `AnalogModule`. tile_id is the first free
            number; the tiles of the module are numbered from there.
        seed: Seed of all tiles, each with its own tile_id; by default drawn from
            torch's generator.
        **options: digital_bias, max_input_size, max_output_size, device, threads, weight_scaling,
            scaling_per and learn_out_scaling of the analog layers, as `AnalogModule` explains them.
            The tiles are on the device of the layer by default.

    Raises:
        TypeError: if `conversions` has something else than types of layers and functions, or one of
            these gives no module.
        ValueError: if a name in `exclude` or `untie` does not occur, a layer in `untie`
            is not tied to a table, conversion would separate tied layers, or a layer computes
            something else than its twin would. For twins that `conversions` gives, that is a
            warning.
        RuntimeError: naming a layer whose weight torch computes from others and cannot copy.
    """
    converted = converted_copy(
        model, config, exclude=exclude, untie=untie, conversions=conversions, seed=seed, **options
    )
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


def converted_copy(
    model: nn.Module,
    config: TileConfig | Callable[[str, nn.Module], TileConfig | None],
    *,
    exclude: Collection[str] = (),
    untie: Collection[str] = (),
    conversions: Mapping[type[nn.Module], Conversion] | None = None,
    seed: int | None = None,
    **options: Any,
) -> nn.Module:
    """Returns the result of `convert_to_analog`, without its warning about digital layers."""
    functions = _functions(conversions)
    names = dict(model.named_modules(remove_duplicate=False))
    exclude = _whole_names(names, exclude)
    for argument, given in (("exclude", exclude), ("untie", untie)):
        unknown = sorted(set(given) - set(names))
        if unknown:
            raise ValueError(
                f"{argument} = {unknown}: the model has no such layers; it has "
                f"{[name for name, layer in names.items() if _convertible(layer, functions)]}"
            )
    if seed is None:
        seed = int(torch.randint(2**62, (), device="cpu").item())
    converted = copied(model)
    _untie(converted, untie)
    chosen = _chosen(converted, config, exclude, functions)
    _require_shareable(converted, chosen, digital_bias=options.get("digital_bias", True))
    tiles = 0
    made: dict[nn.Module, nn.Module] = {}
    owners: dict[object, nn.Module] = {}
    for layer, (name, layer_config) in chosen.items():
        place = next((parameter.device for parameter in layer.parameters()), None)
        settings = {"device": place, "seed": seed, "tile_id": tiles} | options
        twin = _twin(name, layer, layer_config, functions, settings)
        first = owners.setdefault(getattr(layer, "weight", layer), twin)
        if first is twin:
            tiles += sum(len(part.tiles) for part in analog_parts(twin))
        elif isinstance(first, AnalogModule) and isinstance(twin, AnalogModule):
            twin._share(first)  # noqa: SLF001 - of this package
        else:
            raise ValueError(
                f"layer '{name}' shares its weight, but conversions[{type(layer).__name__}] gives "
                "no AnalogModule, which could share tiles; exclude it, or give it a weight of its "
                "own"
            )
        is_ours = conversion_of(layer, functions) is conversion_of(layer, TO_ANALOG)
        (require_outputs if is_ours else warn_of_outputs)(name, layer, twin)
        made[layer] = in_place_of(layer, twin)
    whole = replaced(converted, made)
    set_names(analog_arrays(whole))
    return whole


def _twin(
    name: str,
    layer: nn.Module,
    config: TileConfig,
    functions: dict[type[nn.Module], Conversion],
    settings: dict[str, Any],
) -> nn.Module:
    """Returns what the function for a type of layers makes of a layer."""
    function: Any = conversion_of(layer, functions)
    try:
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
    return twin


def convert_to_digital(model: nn.Module, *, programmed: bool = False) -> nn.Module:
    """A copy of the model with torch's layers in place of analog ones.

    Their weights are what a perfect read of the tiles would see, adapters included. Layers that
    shared their tiles share the weight; what was frozen stays frozen; hooks on forward and backward
    passes stay. Each layer, perfectly read, and its twin are compared on a few random inputs,
    without hooks.

    Args:
        model: A model with analog layers.
        programmed: Whether layers of InferenceConfig give the weights that a perfect read of their
            programmed arrays sees now, drift and its compensation included, instead of the weights
            that were trained.

    Raises:
        StateError: with `programmed`, for layers that are not programmed.
        TypeError: for analog layers of other classes than those of `pulsora.nn`, and for subclasses
            of these with a forward of their own.
        ValueError: for gates on the adapters in tiles, and for layers whose twins would give other
            outputs.
    """
    converted = copied(model)
    if programmed:
        take_programmed(converted)
    for name, layer in converted.named_modules():
        require_twin(name, layer)
        if isinstance(layer, GatedAdapter) and layer.in_tiles and layer.gate is not None:
            raise ValueError(
                f"the adapters in the tiles of layer '{name}' have a gate, which no digital layer "
                "has; pulsora.peft.merge_adapters(model) merges those with constant gates"
            )
    recurrent = [layer for layer in converted.modules() if isinstance(layer, AnalogRNNBase)]
    inside = {part for layer in recurrent for part in analog_parts(layer)}
    single = [part for part in analog_parts(converted) if part not in inside]
    made: dict[nn.Module, Any] = {layer: digital(layer) for layer in single}
    made |= {layer: digital_recurrent(layer) for layer in recurrent}
    first: dict[object, Any] = {}
    for layer in single:
        twin = made[layer]
        twin.weight = first.setdefault(layer.carrier, twin).weight
    names = {layer: name for name, layer in converted.named_modules()}
    for layer, twin in made.items():
        require_digital_outputs(names[layer], layer, in_place_of(layer, twin))
    return replaced(converted, made)


def _whole_names(names: Mapping[str, nn.Module], given: Collection[str]) -> list[str]:
    """Returns names of layers for names, or for last parts of names where no layer is called so."""
    if isinstance(given, str):
        raise TypeError("exclude: give a list of names, not one text")
    found = []
    for part in given:
        ends = [name for name in names if name.endswith(f".{part}")]
        found += [part] if part in names or not ends else ends
    return found


def _functions(
    conversions: Mapping[type[nn.Module], Conversion] | None,
) -> dict[type[nn.Module], Conversion]:
    """The function that converts each type of layers."""
    if conversions is not None and not isinstance(conversions, Mapping):
        raise TypeError(
            f"conversions = {conversions!r}: give functions by types of layers, "
            "{MyLayer: function}"
        )
    given: dict[Any, Any] = dict(conversions or {})
    for kind, function in given.items():
        is_class = isinstance(function, type) and issubclass(function, nn.Module)
        is_type = isinstance(kind, type) and issubclass(kind, nn.Module)
        if not (is_type and callable(function)) or is_class:
            raise TypeError(
                f"conversions = {{{kind!r}: {function!r}}}: give functions by types of layers, "
                "{MyLayer: function}, each of which takes (layer, config, **options) and returns "
                "the analog layer"
            )
    return TO_ANALOG | given


def _convertible(layer: nn.Module, functions: dict[type[nn.Module], Conversion]) -> bool:
    has_twin = conversion_of(layer, functions) is not None
    is_plain = type(layer) in TWINS or is_conv1d(layer)
    return has_twin and not (is_plain and (why_digital(layer) or own_forward(layer)))


def _chosen(
    model: nn.Module,
    config: TileConfig | Callable[[str, nn.Module], TileConfig | None],
    exclude: Collection[str],
    functions: dict[type[nn.Module], Conversion],
) -> dict[Any, tuple[str, TileConfig]]:
    """The layers that become analog, with their names and configurations."""
    chosen: dict[Any, tuple[str, TileConfig]] = {}
    of_tables = tables(model)
    whole: list[str] = []  # names of chosen layers, whose submodules are converted with them
    for layer in model.modules():
        mark_as_chosen(layer, "")  # removes the mark of an earlier conversion
    for name, layer in model.named_modules(remove_duplicate=False):
        if any(name == kept or name.startswith(f"{kept}.") for kept in exclude):
            mark_as_chosen(layer, "excluded")
        elif any(not outer or name.startswith(f"{outer}.") for outer in whole):
            continue
        elif layer in chosen:
            whole.append(name)
        elif _convertible(layer, functions) and getattr(layer, "weight", None) not in of_tables:
            layer_config = config(name, layer) if callable(config) else config
            if layer_config is None:
                mark_as_chosen(layer, "config gave None")
            else:
                chosen[layer] = (name, layer_config)
                whole.append(name)
    return chosen


def _untie(model: nn.Module, names: Collection[str]) -> None:
    """Gives layers that share their weight a copy of it."""
    of_tables = tables(model)
    for name in names:
        layer: Any = model.get_submodule(name)
        weight = getattr(layer, "weight", None)
        if weight not in of_tables:
            raise ValueError(
                f"untie has '{name}', which does not share its weight with a table; leave it out"
            )
        layer.weight = nn.Parameter(weight.detach().clone(), weight.requires_grad)
        settings = getattr(model, "config", None)
        if getattr(settings, "tie_word_embeddings", False):  # transformers would tie them again
            settings.tie_word_embeddings = False  # type: ignore[union-attr]


def _require_shareable(
    model: nn.Module, chosen: Mapping[Any, tuple[str, TileConfig]], *, digital_bias: bool
) -> None:
    """Raises ValueError if conversion would separate layers that share a weight or tiled bias."""
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


def replaced(model: nn.Module, made: Mapping[Any, nn.Module]) -> nn.Module:
    """Returns the model with layers replaced as `made` says, wherever they occur."""
    if model in made:
        return made[model]
    for layer in list(model.modules()):  # a list: without the modules inside new layers
        for name, child in layer._modules.items():  # noqa: SLF001 - shared layers too
            if child in made:
                setattr(layer, name, made[child])
    return model


def _kind(layer: nn.Module) -> tuple[object, ...]:
    """Returns a key that is equal for layers that can share their tiles."""
    if type(layer) in TWINS and hasattr(layer, "weight"):
        return type(layer), getattr(layer, "groups", 1)
    return (layer,)


def _require_both_frozen(name: str, layer: nn.Module) -> None:
    own = dict(layer.named_parameters(recurse=False))
    for bias, values in own.items():
        weight = bias.replace("bias", "weight")
        if weight in own and own[weight].requires_grad != values.requires_grad:
            raise ValueError(
                f"layer '{name}' has only one of {weight} and {bias} frozen, but with digital_bias "
                "= False both are in the same tiles; freeze both or none, or use digital_bias = "
                "True"
            )
