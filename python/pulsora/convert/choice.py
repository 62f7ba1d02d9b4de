"""The layers of a model that become analog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import nn

from pulsora.convert.layers import TO_ANALOG, conversion_of
from pulsora.convert.report import (
    TWINS,
    besides,
    choice,
    is_conv1d,
    mark_as_chosen,
    own_forward,
    tables,
    why_digital,
)
from pulsora.tile.configuration import config_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from pulsora.config import TileConfig
    from pulsora.convert.layers import Conversion

__all__ = [
    "COPY_OF",
    "chosen_layers",
    "conversion_functions",
    "convertible",
    "require_names",
    "require_shareable",
    "unchanged_on_error",
    "untie_layers",
    "whole_names",
]


COPY_OF = "_pulsora_copy_of"
"""The attribute with the table, in a tuple, of which a layer has a copy (untie)."""


def whole_names(names: Mapping[str, nn.Module], given: Collection[str]) -> list[str]:
    """Returns names of layers for names, or for last parts of names where no layer is called so."""
    require_names("exclude", given)
    found = []
    for part in given:
        ends = [name for name in names if name.endswith(f".{part}")]
        found += [part] if part in names or not ends else ends
    return found


def require_names(argument: str, given: object) -> None:
    """Raises TypeError unless the argument is a list, set or the like; one text is none."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"{argument} = {given!r}: give a list of names, such as ['layer']")


def conversion_functions(
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


def convertible(layer: nn.Module, functions: dict[type[nn.Module], Conversion]) -> bool:
    """Whether one of the functions converts a layer, and nothing speaks against it."""
    function = conversion_of(layer, functions)
    is_plain = type(layer) in TWINS or is_conv1d(layer)
    if function is None or not is_plain:
        return function is not None
    reason = why_digital(layer)
    if function is not conversion_of(layer, TO_ANALOG) and reason == besides(layer):
        reason = ""  # a function of the user's sees to what the layer has besides its weights
    return not (reason or own_forward(layer))


def chosen_layers(
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
        elif convertible(layer, functions) and getattr(layer, "weight", None) not in of_tables:
            is_function = callable(config) and not isinstance(config, type)
            layer_config = config(name, layer) if is_function else config  # type: ignore[operator]
            if layer_config is None:
                mark_as_chosen(layer, "config gave None")
            else:
                what = f"layer '{name}': config" if is_function else "config"
                chosen[layer] = (name, config_of(layer_config, what))
                whole.append(name)
    return chosen


def untie_layers(
    model: nn.Module, names: Collection[str], undo: list[Callable[[], object]]
) -> None:
    """Gives layers that share their weight a copy of it; `undo` gets what shares it again."""
    of_tables = tables(model)
    for name in names:
        layer: Any = model.get_submodule(name)
        weight = getattr(layer, "weight", None)
        if weight not in of_tables:
            raise ValueError(
                f"untie has '{name}', which does not share its weight with a table; leave it out"
            )
        undo.append(partial(setattr, layer, "weight", weight))
        layer.weight = nn.Parameter(weight.detach().clone(), weight.requires_grad)
        # Files of the model may hold the table alone. A tuple, which is no submodule.
        undo.append(partial(vars(layer).pop, COPY_OF, None))
        vars(layer)[COPY_OF] = (model.get_submodule(of_tables[weight]),)
        settings = getattr(model, "config", None)
        if getattr(settings, "tie_word_embeddings", False):  # transformers would tie them again
            undo.append(partial(setattr, settings, "tie_word_embeddings", True))  # noqa: FBT003
            settings.tie_word_embeddings = False  # type: ignore[union-attr]


@contextmanager
def unchanged_on_error(model: nn.Module) -> Iterator[list[Callable[[], object]]]:
    """Calls the functions in a list, and restores marks, if the block raises an error."""
    undo: list[Callable[[], object]] = []
    marks = [(layer, choice(layer)) for layer in model.modules()]
    try:
        yield undo
    except BaseException:
        for function in reversed(undo):
            function()
        for layer, mark in marks:
            mark_as_chosen(layer, mark)
        raise


def require_shareable(
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
