"""Weights of a digital model, read from safetensors files into the model it was converted to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from pulsora._internal.checks import require_boolean
from pulsora._internal.progress import Shown
from pulsora._internal.weight_files import TensorReader, stored_tensors, tensor_files
from pulsora.convert.digital_names import digital_places
from pulsora.nn import AnalogModule
from pulsora.nn.options import place_of
from pulsora.nn.tiles.followed_weights import FollowedWeights

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from torch import Tensor

    from pulsora._internal.weight_files import StoredTensor
    from pulsora.convert.digital_names import Place

__all__ = ["LoadedWeights", "device_of", "give_memory", "load_weights"]

_SHOWN = 8  # names in an error


@dataclass(frozen=True)
class LoadedWeights:
    """The names that `load_weights` has read, and those that it has not.

    Attributes:
        loaded: Names of the tensors that were read, as the model has them.
        missing: Names of tensors of the model that are not in the files.
        unexpected: Names in the files that the model does not have.
    """

    loaded: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]

    def __str__(self) -> str:
        rows = [f"{len(self.loaded)} tensors loaded"]
        rows += [f"not in the files: {name}" for name in self.missing]
        rows += [f"not in the model: {name}" for name in self.unexpected]
        return "\n".join(rows)


@torch.no_grad()
def load_weights(
    model: nn.Module,
    files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    names: Callable[[str], str | None] | None = None,
    device: str | torch.device | None = None,
    strict: bool = True,
    progress: bool | Callable[[int, int], object] = False,
) -> LoadedWeights:
    """Reads the weights of a digital model from files into the analog model, tensor by tensor.

        with torch.device("meta"):
            model = MyModel()
        model = pulsora.convert_to_analog(model, config)
        pulsora.load_weights(model, "model.safetensors")

    The model is one that `convert_to_analog` or `pulsora.peft.add_adapters` has made; the files are
    those of the model before. Weights are written to tiles as by `set_weights`, with scales chosen
    anew. What is on torch's meta device gets memory, and stays the same parameter for optimisers.
    Adapters and gates stay as they are. No more than one tensor is in memory beside the model, and
    nothing in the files is executed.

    Numbers of 16 and 64 bits are converted to the type that the model has. A tensor that the model
    shares between layers may be in the files under any of its names. A layer that `untie` has given
    a copy of a table takes the table, if the files do not have its own weight.

    Args:
        model: The model, in memory or on the meta device, in part or as a whole. It is changed.
        files: A safetensors file, an index of Hugging Face (model.safetensors.index.json), a folder
            with one of these, or a list of files.
        names: Function that gives the name in the model for a name in the files, or None to leave
            the tensor out. By default names are equal.
        device: Device of what was on the meta device, outside of tiles; by default the device of
            the tiles.
        strict: Whether names that are missing in the files, or that the model does not have, are an
            error.
        progress: Whether a line on stderr shows how many tensors are read; or a function that is
            called with the numbers of tensors so far and of all.

    Returns:
        The names that were loaded, missing and unexpected.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: For pickles, damaged files, names that are missing or unexpected (`strict`),
            other shapes, and types that are no floating-point numbers; nothing has changed then.
        InputError: Naming the layer, for a weight that is not finite. Tensors before it have been
            loaded; layers on the meta device that were not reached still wait for weights.
        TypeError: For a `RuleLinear`.
    """
    require_boolean("strict", strict)
    stored = stored_tensors(tensor_files(files))
    found = _renamed(stored, names)
    places = digital_places(model)
    taken, missing, unexpected = _matched(places, found)
    if strict and (missing or unexpected):
        _refuse(places, found, missing, unexpected)
    taken, halves = _without_halves(places, taken)
    missing += halves
    for place, tensors in taken:
        for tensor in tensors:
            _require_fit(place, tensor)
    on = device_of(model, device)
    biases = {place.layers[0]: tensors[0] for place, tensors in taken if place.is_bias}
    order = {each.name: number for number, each in enumerate(stored)}
    work = sorted((order[tensors[0].name], number) for number, (_, tensors) in enumerate(taken))
    shown = Shown(progress, len(taken), "tensors")
    with TensorReader() as reader:
        for _, tensors in taken:
            _require_one(reader, tensors)
        for _, number in work:
            place, tensors = taken[number]
            if not place.layers:
                _fill(place, reader.read(tensors[0]), on)
            elif not place.is_bias:
                _write(place, reader, tensors[0], biases.get(place.layers[0]))
            shown.add(1)
    loaded = tuple(place.names[0] for place, _ in taken)
    return LoadedWeights(loaded, tuple(missing), tuple(unexpected))


def _renamed(
    stored: Sequence[StoredTensor], names: Callable[[str], str | None] | None
) -> dict[str, StoredTensor]:
    """Returns the tensors of files by the names in the model."""
    found: dict[str, StoredTensor] = {}
    for each in stored:
        name = each.name if names is None else names(each.name)
        if name is None:
            continue
        if name in found:
            raise ValueError(
                f"names gives '{name}' for '{found[name].name}' and for '{each.name}'; give each "
                "tensor a name of its own, or None to leave it out"
            )
        found[name] = each
    return found


def _matched(
    places: Sequence[Place], found: Mapping[str, StoredTensor]
) -> tuple[list[tuple[Place, list[StoredTensor]]], list[str], list[str]]:
    """Returns places with their tensors, missing names and unexpected names."""
    taken, missing = [], []
    known: set[str] = set()
    for place in places:
        known.update(place.names)
        own = [name for name in place.names if name in found]
        own = own or [name for name in place.instead if name in found]
        if own:
            taken.append((place, [found[name] for name in own]))
        elif place.is_needed:
            missing.append(place.names[0])
    return taken, missing, [name for name in found if name not in known]


def _without_halves(
    places: Sequence[Place], taken: list[tuple[Place, list[StoredTensor]]]
) -> tuple[list[tuple[Place, list[StoredTensor]]], list[str]]:
    """Leaves out weights without their bias in cells, and biases without weight; and their names.

    Both are columns of one matrix, which is written as a whole.
    """
    wanted = Counter(place.layers[0] for place in places if place.layers)
    there = Counter(place.layers[0] for place, _ in taken if place.layers)
    cut = {layer for layer, parts in there.items() if parts < wanted[layer]}
    halves = [place for place, _ in taken if place.layers and place.layers[0] in cut]
    whole = [(place, own) for place, own in taken if place not in halves]
    return whole, [place.names[0] for place in halves]


def _refuse(
    places: Sequence[Place],
    found: Mapping[str, StoredTensor],
    missing: Sequence[str],
    unexpected: Sequence[str],
) -> None:
    """Raises ValueError about names, with the remedy that seems to fit."""
    of_buffers = {name for place in places if place.is_buffer for name in place.names}
    buffers = [name for name in missing if name in of_buffers]
    remedy = "pass strict = False to leave them as they are, or names = a function for other names"
    if any(".tiles." in f".{name}" for name in unexpected):
        remedy = (
            "the files hold the state of an analog model, which model.load_state_dict(state), or "
            "pulsora.load(model, folder) takes"
        )
    elif (prefix := _prefix(places, found)) is not None:
        old, new = prefix
        how = f"{new!r} + name" if new else f"name.removeprefix({old!r})"
        remedy = f"they fit with names = lambda name: {how}"
    elif buffers and not set(missing) - set(buffers) and not unexpected:
        remedy = (
            "a model computes such buffers when it is made: make it with them in memory, by "
            "accelerate.init_empty_weights(), or assign values to them before"
        )
    texts = [
        f"{what}: {', '.join(some[:_SHOWN])}"
        + (f" and {len(some) - _SHOWN} more" if len(some) > _SHOWN else "")
        for what, some in (("not in the files", missing), ("not in the model", unexpected))
        if some
    ]
    raise ValueError(f"{'; '.join(texts)}; {remedy}")


def _prefix(places: Sequence[Place], found: Mapping[str, StoredTensor]) -> tuple[str, str] | None:
    """Returns a prefix of the files and one of the model with which most names would fit."""
    needed = {name for place in places for name in place.names}
    most = len(found) // 2
    for start in sorted({name.partition(".")[0] for name in needed}):
        if sum(f"{start}.{each}" in needed for each in found) > most:
            return "", f"{start}."
    for start in sorted({name.partition(".")[0] for name in found}):
        fits = (each.startswith(f"{start}.") and each[len(start) + 1 :] in needed for each in found)
        if sum(fits) > most:
            return f"{start}.", ""
    return None


def _require_fit(place: Place, stored: StoredTensor) -> None:
    """Raises ValueError for a tensor of another shape, or of a type that does not fit."""
    name = f"'{stored.name}' in {stored.path}"
    if stored.shape != place.shape:
        raise ValueError(
            f"{name} has shape {list(stored.shape)}, but in the model '{place.names[0]}' has "
            f"{list(place.shape)}; make the model with the sizes of the files"
        )
    is_floating = place.tensor is None or place.tensor.is_floating_point()
    if is_floating and not stored.is_floating:
        raise ValueError(
            f"{name} is of type {stored.dtype}, but '{place.names[0]}' takes F64, F32, BF16 or F16 "
            "(quantised weights lack their scales): save the model in one of these"
        )
    if not is_floating and stored.dtype.startswith(("F", "BF", "C")):
        raise ValueError(
            f"{name} is of type {stored.dtype}, but '{place.names[0]}' holds whole numbers"
        )


def _require_one(reader: TensorReader, tensors: Sequence[StoredTensor]) -> None:
    """Raises ValueError if a shared tensor is in the files with different values."""
    for other in tensors[1:]:
        first = reader.read(tensors[0]).clone()
        if not torch.equal(first, reader.read(other).to(first.dtype)):
            raise ValueError(
                f"'{tensors[0].name}' and '{other.name}' are one tensor in the model, but differ "
                "in the files; untie the layers (untie of convert_to_analog), or leave one out by "
                "names"
            )


def device_of(model: nn.Module, device: str | torch.device | None) -> torch.device:
    """Returns the device of tensors that get memory."""
    if device is not None:
        return place_of(torch.device(device))
    tiles = (layer.tiles.device for layer in model.modules() if isinstance(layer, AnalogModule))
    held = (each.device for each in model.parameters() if not each.is_meta)
    return next(tiles, next(held, torch.device("cpu")))


def _write(
    place: Place, reader: TensorReader, weight: StoredTensor, bias: StoredTensor | None
) -> None:
    """Writes a weight to the tiles of its layers, with a bias in cells."""
    added = None if bias is None else reader.read(bias).float().clone()
    values = reader.read(weight)
    values = values.T if place.is_transposed else values.flatten(1)
    try:
        for layer in place.layers:
            layer._take(values, added)  # noqa: SLF001 - of this package
    except ValueError as error:
        raise type(error)(f"'{place.names[0]}': {error}") from None
    for layer in place.layers:  # the writes to others have changed a weight that they share
        layer._keep_followed(isinstance(layer.held, FollowedWeights))  # noqa: SLF001


def _fill(place: Place, values: Tensor, device: torch.device) -> None:
    """Gives values to a parameter or buffer of torch."""
    if place.tensor is not None:
        give_memory(place.tensor, device)
        place.tensor.copy_(values)


@torch.no_grad()
def give_memory(tensor: Tensor, device: torch.device) -> None:
    """Gives memory on a device to a parameter or buffer that is on the meta device.

    The tensor object stays, with its attributes, for optimisers that have it.
    """
    if tensor.is_meta:
        made = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
        if isinstance(tensor, nn.Parameter):
            made = nn.Parameter(made, requires_grad=tensor.requires_grad)
        torch._C._swap_tensor_impl(tensor, made)  # noqa: SLF001
