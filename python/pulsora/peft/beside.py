"""Parameters that are trained beside an adapter: into a file of PEFT, and out of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from pulsora.convert.copies import copied
from pulsora.convert.layers import digital, digital_recurrent
from pulsora.convert.report import analog_parts
from pulsora.nn import AnalogConvNd, AnalogLinear, AnalogModule, AnalogRNNBase, GatedAdapter
from pulsora.nn.gates import Gate
from pulsora.peft.changes import adapted, change_of_tiles, gate_codes, tile_weights
from pulsora.peft.files import Beside

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from torch import Tensor, nn

    from pulsora.peft.files import AdapterFile

__all__ = ["collect", "load_beside", "train_again", "without_twin"]


class _Own(NamedTuple):
    """A parameter or buffer of the model without adapters.

    Attributes:
        value: Its value; of analog layers what perfect reads see.
        is_trained: Whether it has a gradient.
        is_analog: Whether it is in cells.
        is_buffer: Whether it is a buffer.
    """

    value: Tensor
    is_trained: bool
    is_analog: bool = False
    is_buffer: bool = False


def collect(model: nn.Module, base: nn.Module | None, adapter: int | None) -> Beside:
    """Returns the parameters that are trained beside the adapters of a model.

    These are the parameters with requires_grad, without factors and gates. With the model `base`
    that the file will be loaded onto, these are the parameters and buffers that differ from its
    own, without frozen cells.
    """
    layers = dict(adapted(model))
    own = _state(model, layers, adapter)
    before = {} if base is None else _state(base)
    trained = {name for name, each in own.items() if _is_trained(each, before.get(name))}
    parameters = {name for name in trained if not own[name].is_buffer}
    modules = _modules(list(dict(_plain_modules(model))), parameters, layers)
    inside = {name for name in own if any(name.startswith(f"{each}.") for each in modules)}
    alone = trained - inside
    biases = {name for name in alone if name.rpartition(".")[2] == "bias"}
    all_adapted = all(name.rpartition(".")[0] in layers for name in biases)
    bias = ("lora_only" if all_adapted else "all") if biases else "none"
    tensors = {name: each.value for name, each in own.items() if name in inside | trained}
    return Beside(tensors, modules, bias)


def _is_trained(own: _Own, before: _Own | None) -> bool:
    if before is None:
        return own.is_trained
    first = before.value.to(own.value.device, own.value.dtype)
    is_other = first.shape != own.value.shape or not torch.equal(first, own.value)
    # Frozen cells differ from the weights that were written to them, which nobody has trained.
    return is_other and (own.is_trained or not own.is_analog)


def _modules(names: Sequence[str], trained: Collection[str], layers: Collection[str]) -> list[str]:
    """Returns the modules that go into PEFT's modules_to_save as a whole.

    PEFT takes every module whose name ends so, so that a name has to be the end of no other.
    """
    # Names that PEFT makes inside of an adapted layer.
    inner = [f"{name}.{part}{rest}" for name in layers for part in _OF_PEFT for rest in _RESTS]
    owners = {each.rpartition(".")[0] for each in trained if each.rpartition(".")[2] != "bias"}
    taken: list[str] = []
    for name in names:
        if not name or name not in owners or any(name.startswith(f"{each}.") for each in taken):
            continue
        is_apart = not any(
            f"{each}.".startswith(f"{name}.") or name.startswith(f"{each}.") for each in layers
        )
        if is_apart and [each for each in (*names, *inner) if each.endswith(name)] == [name]:
            taken.append(name)
    return taken


_OF_PEFT = (
    *("base_layer", "lora_A", "lora_B", "lora_dropout", "lora_embedding_A", "lora_embedding_B"),
    "lora_magnitude_vector",
)
_RESTS = ("", ".default")


def _plain_modules(
    model: nn.Module, name: str = ""
) -> Iterator[tuple[str, tuple[nn.Module, GatedAdapter | None]]]:
    """Yields modules with their names in the model without adapters, and their adapter."""
    adapter = model if isinstance(model, GatedAdapter) else None
    inner: nn.Module = model if adapter is None else adapter.base
    if isinstance(inner, Gate):
        return
    yield name, (inner, adapter)
    if isinstance(inner, AnalogModule | AnalogRNNBase):
        return
    for last, child in inner.named_children():
        yield from _plain_modules(child, f"{name}.{last}" if name else last)


def _state(
    model: nn.Module, layers: Collection[str] = (), adapter: int | None = None
) -> dict[str, _Own]:
    """Returns parameters and buffers of a model by their names in the model without adapters."""
    state: dict[str, _Own] = {}
    for name, (layer, outer) in _plain_modules(model):
        if isinstance(layer, AnalogModule) and name in layers and (not outer or outer.in_tiles):
            own = _beside_tiles(name, layer, outer, adapter)
        else:
            own = _own(layer)
        state |= {f"{name}.{last}" if name else last: each for last, each in own.items()}
    return state


def without_twin(model: nn.Module) -> list[str]:
    """Returns what is trained, but not in a file: analog layers of other classes."""
    return [
        f"the trained layer '{name}' ({type(layer).__name__})"
        for name, (layer, _) in _plain_modules(model)
        if isinstance(layer, AnalogModule) and not _has_twin(layer)
        if any(each.requires_grad for each in layer.parameters())
    ]


def _has_twin(layer: nn.Module) -> bool:
    return isinstance(layer, AnalogLinear | AnalogConvNd)


def _own(layer: nn.Module) -> dict[str, _Own]:
    if isinstance(layer, AnalogModule) and not _has_twin(layer):
        return {}
    if isinstance(layer, AnalogModule | AnalogRNNBase):
        place = next(analog_parts(layer)).tiles.device
        # A new layer of torch draws initial weights; saving shall not change what is drawn later.
        with torch.random.fork_rng([place] if place.type == "cuda" else []):
            twin = digital(layer) if isinstance(layer, AnalogModule) else digital_recurrent(layer)
        learned = _learned(layer)
        return {
            name: _Own(each.detach(), each.requires_grad or name in learned, is_analog=True)
            for name, each in twin.named_parameters()
        }
    own = {
        name: _Own(each.detach(), each.requires_grad)
        for name, each in layer.named_parameters(recurse=False)
    }
    persistent = layer.named_buffers(recurse=False)
    return own | {
        name: _Own(each.detach(), is_trained=False, is_buffer=True)
        for name, each in persistent
        if name not in layer._non_persistent_buffers_set  # noqa: SLF001
    }


def _learned(layer: nn.Module) -> set[str]:
    """Returns torch's names of weights and biases with a trained scale, or adapters in tiles."""
    names: set[str] = set()
    for name, part in layer.named_modules():
        if not isinstance(part, AnalogModule):
            continue
        end = f"_{name}" if name else ""
        change = change_of_tiles(part)
        inputs = part.tiles.shape[1] - part.analog_bias
        is_scaled = part.out_scaling is not None and part.out_scaling.requires_grad
        if is_scaled or bool(change[:, :inputs].any()):
            names.add(f"weight{end}")
        if part.analog_bias and (is_scaled or bool(change[:, inputs:].any())):
            names.add(f"bias{end}")
    return names


def _beside_tiles(
    name: str, layer: AnalogModule, outer: GatedAdapter | None, adapter: int | None
) -> dict[str, _Own]:
    """Returns the bias of a layer with adapters in its tiles; its weight goes into the factors."""
    if layer.bias is not None:
        return {"bias": _Own(layer.bias.detach(), layer.bias.requires_grad)}
    if not layer.analog_bias:
        return {}
    codes = None if outer is None else gate_codes(name, outer, adapter)
    bias = (layer.get_weights() if codes is None else tile_weights(layer, codes))[1]
    is_changed = bool(change_of_tiles(layer, codes)[:, -1].any())
    is_trained = is_changed or layer.carrier.requires_grad
    return {} if bias is None else {"bias": _Own(bias, is_trained, True)}  # noqa: FBT003


def load_beside(
    model: nn.Module, files: Sequence[AdapterFile], *, load_modules: bool
) -> tuple[nn.Module, list[str]]:
    """Returns the model with what files bring beside their factors, and the names of it.

    The model is copied if something differs.

    Raises:
        ValueError: for parameters that the model has not, of other shapes, that differ from the
            model's although the file does not say that they were trained (unless `load_modules`),
            and for modules that were trained but are not in the file.
    """
    own = _state(model)
    wanted: dict[str, Tensor] = {}
    brought: list[str] = []
    for file in files:
        _require_whole(own, file)
        for name, value in file.beside.items():
            _require_like(own.get(name), name, value, file)
            mine = own[name].value
            given = value.to(mine.dtype)
            if name in wanted and not torch.equal(wanted[name], given):
                raise ValueError(f"{file.path} brings another '{name}' than the file before")
            is_same = torch.equal(mine.cpu(), given)
            if not (is_same or load_modules or file.brings(name)):
                raise ValueError(
                    f"{file.path} holds '{name}' of the model it was made for, which differs from "
                    "this model's; give that model, or load_modules = True to load it as well"
                )
            wanted[name] = given
            brought += [name] if file.brings(name) or not is_same else []
    other = {
        name: each for name, each in wanted.items() if not torch.equal(own[name].value.cpu(), each)
    }
    _require_alone(model, other, wanted)
    if other:
        model = copied(model)
        modules = dict(_plain_modules(model))
        for name in dict.fromkeys(each.rpartition(".")[0] for each in other):
            start = f"{name}." if name else ""
            values = {
                each.removeprefix(start): value
                for each, value in other.items()
                if each.rpartition(".")[0] == name
            }
            _set(modules[name][0], values)
    return model, list(dict.fromkeys(brought))


def _require_like(own: _Own | None, name: str, value: Tensor, file: AdapterFile) -> None:
    if own is None:
        raise ValueError(
            f"{file.path} holds more than factors of fully connected layers: '{name}', which this "
            "model has not as a parameter or buffer; factors of embeddings and convolutions have "
            "no meaning here"
        )
    if own.value.shape != value.shape:
        raise ValueError(
            f"{file.path}: '{name}' has shape {list(value.shape)}, but the model's has "
            f"{list(own.value.shape)}"
        )
    if own.value.is_floating_point() != value.is_floating_point() or value.is_complex():
        raise ValueError(f"{file.path}: '{name}' has type {value.dtype}, not {own.value.dtype}")
    if not value.float().isfinite().all():
        raise ValueError(f"{file.path}: '{name}' has values that are not finite (nan or inf)")


def _require_whole(own: Mapping[str, _Own], file: AdapterFile) -> None:
    """Raises ValueError if a module that was trained as a whole is not in a file."""
    for name in own:
        is_adapted = name.rpartition(".")[0] in file.factors
        if name not in file.beside and not is_adapted and file.is_saved_whole(name):
            raise ValueError(
                f"{file.path}: by modules_to_save, '{name}' was trained, but it is not in the file"
            )


def _require_alone(model: nn.Module, other: Collection[str], wanted: Collection[str]) -> None:
    """Raises ValueError if a value would also change a parameter that the files do not have."""
    names: dict[nn.Parameter, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    for tied in names.values():
        if set(tied) & set(other) and set(tied) - set(wanted):
            raise ValueError(
                f"the files bring another {sorted(set(tied) & set(other))}, which is tied to "
                f"{sorted(set(tied) - set(wanted))}; give the layer a weight of its own before"
            )


@torch.no_grad()
def _set(layer: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Writes parameters and buffers of a layer."""
    if isinstance(layer, AnalogRNNBase):
        layer.set_weights(layer.get_weights() | dict(values))
    elif isinstance(layer, AnalogModule):
        weight, bias = layer.get_weights()
        weight = values.get("weight", weight).reshape(weight.shape)
        layer.set_weights(weight, values.get("bias", bias))
    else:
        own: dict[str, Any] = {**dict(layer.named_parameters()), **dict(layer.named_buffers())}
        for name, value in values.items():
            own[name].copy_(value)


def train_again(model: nn.Module, names: Sequence[str]) -> None:
    """Makes the parameters trainable that files bring."""
    modules = dict(_plain_modules(model))
    for name in names:
        module, _, last = name.rpartition(".")
        layer: Any = modules[module][0]
        own = layer._parameters.get(last)  # noqa: SLF001 - not the copy of an analog layer
        if own is not None:
            own.requires_grad_(True)  # noqa: FBT003 - torch's own
        elif isinstance(layer, AnalogModule):
            layer.carrier.requires_grad_(True)  # noqa: FBT003
        elif isinstance(layer, AnalogRNNBase):
            layer.requires_grad_(True)  # noqa: FBT003
