"""Conversion of the layers of a torch model to analog layers, and back."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

from pulsora._internal.checks import require_boolean
from pulsora._internal.modules import require_module
from pulsora._internal.seeds import drawn_seed
from pulsora.convert.checks import require_digital_outputs, require_outputs, warn_of_outputs
from pulsora.convert.choice import (
    chosen_layers,
    conversion_functions,
    convertible,
    require_names,
    require_shareable,
    unchanged_on_error,
    untie_layers,
    whole_names,
)
from pulsora.convert.copies import copied
from pulsora.convert.hooks import in_place_of
from pulsora.convert.layers import digital, digital_recurrent, require_twin
from pulsora.convert.programmed import take_programmed
from pulsora.convert.replacing import (
    is_own_conversion,
    places_of,
    release,
    require_twins,
    twin_of,
    weight_key,
)
from pulsora.convert.report import analog_parts, conversion_report, named_analog_parts
from pulsora.nn import AnalogModule, AnalogRNNBase, GatedAdapter
from pulsora.nn.fused_encoders import unfuse
from pulsora.nn.tiles.followed_weights import FollowedWeights
from pulsora.nn.tiles.layer_names import set_names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from torch import nn

    from pulsora.config import TileConfig
    from pulsora.convert.layers import Conversion

__all__ = [
    "convert_to_analog",
    "convert_to_digital",
    "converted",
    "replaced",
]


def convert_to_analog(
    model: nn.Module,
    config: TileConfig | Callable[[str, nn.Module], TileConfig | None],
    *,
    inplace: bool = False,
    exclude: Collection[str] = (),
    untie: Collection[str] = (),
    conversions: Mapping[type[nn.Module], Conversion] | None = None,
    seed: int | None = None,
    **options: Any,
) -> nn.Module:
    """Returns a copy of the model with analog linear, convolutional and recurrent layers.

    Analog layers have the weights of the layers that they replace. The Conv1D of transformers
    (GPT-2) counts as a linear layer. Layers that are analog already stay as they are, whatever
    `config` says: convert them by `pulsora.convert_to_digital` first.

    `pulsora.conversion_report(model)` says for each layer that holds a matrix whether it is analog,
    or why not. A warning names layers that stay digital without the user's choice. Layers that
    shared their weight share their tiles. A layer that shares its weight with an embedding table (a
    tied head) stays digital. Frozen parameters stay frozen, and biases stay the same parameters.
    Hooks on forward and backward passes move to the analog layers.

    Each layer and its twin, perfectly read, are compared on a few random inputs, without hooks.

    Layers on torch's meta device have no weights, and their twins wait for some:
    `pulsora.load_weights(model, files)` reads them from files, so that no digital copy is ever in
    memory. Until then, forward passes, `state_dict()` and pickles raise a StateError.

    Args:
        model: Any torch model. It is not changed, unless `inplace`.
        config: Configuration of all tiles; or a function of a layer's name and the layer that
            gives its configuration, or None to leave it digital.
        inplace: Whether the model itself is changed and returned, and each digital weight is freed
            as soon as its tiles have it, so that the peak of memory is the larger of the digital
            and the analog model, and one layer. Digital layers that have been replaced, and
            parameters that others still hold, are then empty; of a single layer the twin is
            returned. All errors that can be foreseen come before the first layer is replaced, and
            the model is as it was. Later ones (no memory left, an interrupt, functions of
            `conversions`, warnings made errors) leave the layers before analog and the rest
            digital.
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
            The tiles are on the device of the layer by default, and of a layer on the meta device
            on the CPU.

    Raises:
        TypeError: if `conversions` has something else than types of layers and functions, or one of
            these gives no module.
        ValueError: if a name in `exclude` or `untie` does not occur, a layer in `untie`
            is not tied to a table, conversion would separate tied layers, or a layer computes
            something else than its twin would. For twins that `conversions` gives, that is a
            warning.
        RuntimeError: naming a layer whose weight torch computes from others and cannot copy.
    """
    made = converted(
        model,
        config,
        inplace=inplace,
        exclude=exclude,
        untie=untie,
        conversions=conversions,
        seed=seed,
        **options,
    )
    surprising = [row for row in conversion_report(made) if row.is_surprising]
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
    return made


def converted(
    model: nn.Module,
    config: TileConfig | Callable[[str, nn.Module], TileConfig | None],
    *,
    inplace: bool = False,
    exclude: Collection[str] = (),
    untie: Collection[str] = (),
    conversions: Mapping[type[nn.Module], Conversion] | None = None,
    seed: int | None = None,
    **options: Any,
) -> nn.Module:
    """Returns the result of `convert_to_analog`, without its warning about digital layers."""
    require_module(model)
    functions = conversion_functions(conversions)
    require_names("untie", untie)
    untie = list(untie)
    names = dict(model.named_modules(remove_duplicate=False))
    exclude = whole_names(names, exclude)
    for argument, given in (("exclude", exclude), ("untie", untie)):
        unknown = sorted(set(given) - set(names))
        if unknown:
            raise ValueError(
                f"{argument} = {unknown}: the model has no such layers; it has "
                f"{[name for name, layer in names.items() if convertible(layer, functions)]}"
            )
    del names
    require_boolean("inplace", inplace)
    if seed is None:
        seed = drawn_seed()
    whole = model if inplace else copied(model)
    options = {"seed": seed} | options
    with unchanged_on_error(whole) as undo:
        untie_layers(whole, untie, undo)
        chosen = chosen_layers(whole, config, exclude, functions)
        require_shareable(whole, chosen, digital_bias=options.get("digital_bias", True))
        if inplace:
            require_twins(chosen, functions, options)
    undo.clear()
    places = places_of(whole, chosen)
    left = Counter(map(weight_key, chosen))
    tiles = 0
    owners: dict[int, nn.Module] = {}
    for layer, (name, layer_config) in list(chosen.items()):
        del chosen[layer]  # nothing but the model holds the layers that are still to come
        twin = twin_of(name, layer, layer_config, functions, {"tile_id": tiles} | options)
        key = weight_key(layer)
        first = owners.setdefault(key, twin)
        if first is twin:
            tiles += sum(len(part.tiles) for part in analog_parts(twin))
        elif isinstance(first, AnalogModule) and isinstance(twin, AnalogModule):
            twin._share(first)  # noqa: SLF001 - of this package
            # Its cells have these values, so that they have no change to follow.
            twin._keep_followed(isinstance(twin.held, FollowedWeights))  # noqa: SLF001
        else:
            raise ValueError(
                f"layer '{name}' shares its weight, but conversions[{type(layer).__name__}] gives "
                "no AnalogModule, which could share tiles; exclude it, or give it a weight of its "
                "own"
            )
        is_ours = is_own_conversion(layer, functions)
        (require_outputs if is_ours else warn_of_outputs)(name, layer, twin)
        in_place_of(layer, twin)
        for parent, child in places.pop(layer, ()):
            setattr(parent, child, twin)
        whole = twin if layer is whole else whole
        left[key] -= 1
        if is_ours and not left[key]:
            release(layer, twin)
    set_names((name, part.tiles) for name, part in named_analog_parts(whole))
    unfuse(whole)
    return whole


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
            that were trained. Corrections by `pulsora.inference.fit_affine` are left out, with a
            warning.

    Raises:
        StateError: with `programmed`, for layers that are not programmed.
        TypeError: for analog layers of other classes than those of `pulsora.nn`, and for subclasses
            of these with a forward of their own.
        ValueError: for gates on the adapters in tiles, and for layers whose twins would give other
            outputs.
    """
    whole = copied(model)
    if programmed:
        take_programmed(whole)
    for name, layer in whole.named_modules():
        require_twin(name, layer)
        if isinstance(layer, GatedAdapter) and layer.in_tiles and layer.gate is not None:
            raise ValueError(
                f"the adapters in the tiles of layer '{name}' have a gate, which no digital layer "
                "has; pulsora.peft.merge_adapters(model) merges those with constant gates"
            )
    recurrent = [layer for layer in whole.modules() if isinstance(layer, AnalogRNNBase)]
    inside = {part for layer in recurrent for part in analog_parts(layer)}
    single = [part for part in analog_parts(whole) if part not in inside]
    made: dict[nn.Module, Any] = {layer: digital(layer) for layer in single}
    made |= {layer: digital_recurrent(layer) for layer in recurrent}
    first: dict[object, Any] = {}
    for layer in single:
        twin = made[layer]
        # Cells that follow one weight are those of their layer, and differ by its writes.
        is_followed = isinstance(layer.held, FollowedWeights)
        key: object = layer.held if is_followed else layer.carrier
        twin.weight = first.setdefault(key, twin).weight
    names = {layer: name for name, layer in whole.named_modules()}
    for layer, twin in made.items():
        require_digital_outputs(names[layer], layer, in_place_of(layer, twin))
    return replaced(whole, made)


def replaced(model: nn.Module, made: Mapping[Any, nn.Module]) -> nn.Module:
    """Returns the model with layers replaced as `made` says, wherever they occur."""
    if model in made:
        return made[model]
    for layer in list(model.modules()):  # a list: without the modules inside new layers
        for name, child in layer._modules.items():  # noqa: SLF001 - shared layers too
            if child in made:
                setattr(layer, name, made[child])
    return model
