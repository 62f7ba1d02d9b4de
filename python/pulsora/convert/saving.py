"""Models saved and loaded in parts, so that no second copy of the model is in memory."""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parameter import is_lazy

from pulsora._internal.checks import require_at_least, require_folder
from pulsora._internal.files import replace_file
from pulsora._internal.modules import require_module
from pulsora._internal.progress import Shown
from pulsora._internal.weight_files import (
    TensorReader,
    is_storable,
    require_safetensors,
    stored_tensors,
    tensor_files,
    write_tensors,
)
from pulsora.convert.loading import device_of, give_memory
from pulsora.convert.report import state_hooks
from pulsora.nn import AnalogModule
from pulsora.nn.rule_linear import RuleLinear
from pulsora.nn.tiles.followed_weights import followed_layers
from pulsora.state import StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from torch import Tensor, nn

    from pulsora._internal.weight_files import StoredTensor
    from pulsora.nn.tiles.batch_shard import SingleProcess

__all__ = ["load", "save"]

_INDEX = "model.safetensors.index.json"
_FORMAT = "pulsora.model"
_OURS = re.compile(r"model-[0-9a-f]{8}-\d{5}\.safetensors")
_SHARD = 256 << 20
_SHOWN = 8  # names in an error


@torch.no_grad()
def save(
    model: nn.Module,
    folder: str | os.PathLike[str],
    *,
    shard_bytes: int = _SHARD,
    progress: bool | Callable[[int, int], object] = False,
) -> None:
    """Saves what `model.state_dict()` holds, layer by layer, into safetensors files of a folder.

    `state_dict()` copies all tiles; here a shard and a layer at a time are copied. The files have
    the layout of Hugging Face: shards, and an index (model.safetensors.index.json) that names them.
    The index is replaced when all shards are on the disk, and shards of the model before are
    removed then. So a crash leaves the old model, and the next save removes what is left of the
    unfinished one. One process at a time may save into a folder. Of a model with sharded weights
    (`pulsora.distributed.prepare`), all processes call `save`, and rank 0 writes.

    Parameters and buffers of torch are saved as they are, also if they are not finite; weights of
    analog layers must be finite.

    Args:
        model: The model, on any device.
        folder: A folder, which is made if it is missing, for this model alone.
        shard_bytes: Bytes after which a shard is written; larger layers are one shard.
        progress: Whether a line on stderr shows how many modules are saved; or a function that is
            called with the number of modules so far and of all.

    Raises:
        OSError: If a file cannot be written; the model before is then still there.
        ValueError: If the folder holds another model, for a bad shard_bytes, and for modules with
            hooks on their state_dict.
        TypeError: For a state with something else than tensors with values, and tensors of a type
            or layout that the files do not hold.
        StateError: If the weights of an analog layer were never loaded (the meta device), or are
            not finite.
    """
    require_at_least("shard_bytes", shard_bytes, 1)
    require_safetensors("saved models")
    where = _path(folder)
    modules = _modules(model)
    _require_all_storable(modules)
    groups = {
        each.tiles.process_group for each in modules.values() if isinstance(each, AnalogModule)
    }
    if not all(group.saves for group in groups):
        _give(modules.values(), groups)
        return
    require_folder("folder", where)
    _require_own(where)
    shown = Shown(progress, len(modules), "modules")
    token = os.urandom(4).hex()
    files: dict[str, str] = {}
    total = 0
    shard: dict[str, Tensor] = {}
    places: set[int] = set()  # where the tensors of the shard begin
    written = 0

    def write() -> None:
        nonlocal written
        if shard:
            written += 1
            name = f"model-{token}-{written:05}.safetensors"
            write_tensors(where / name, shard)
            files.update(dict.fromkeys(shard, name))
            shard.clear()
            places.clear()

    try:
        for prefix, module in modules.items():
            with _whole(module):
                state = _state_of(prefix, module)
            for name, tensor in state.items():
                value = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
                place = value.untyped_storage().data_ptr()
                # A file holds no tensors that share memory (tied weights).
                shard[name] = value.clone() if place in places else value
                places.add(place)
                total += value.nbytes
            if sum(each.nbytes for each in shard.values()) >= shard_bytes:
                write()
            shown.add(1)
        write()
        index = {"metadata": {"format": _FORMAT, "total_size": total}, "weight_map": files}
        replace_file(where / _INDEX, f"{json.dumps(index, indent=1)}\n".encode())
    except BaseException:
        _remove(where, {each for each in _shards(where) if token in each})
        raise
    _remove(where, _shards(where) - set(files.values()))
    for group in groups:
        group.saved()


@torch.no_grad()
def load(
    model: nn.Module,
    folder: str | os.PathLike[str],
    *,
    progress: bool | Callable[[int, int], object] = False,
) -> None:
    """Loads a model that `pulsora.save` has saved, layer by layer, with the bits of that model.

    Args:
        model: A model with the layers, sizes and configurations of the saved one; it may have been
            converted on torch's meta device.
        folder: The folder.
        progress: As in `save`.

    Raises:
        FileNotFoundError: If the folder or a file is missing.
        ValueError: For damaged files, names that the model or the folder lacks, parameters and
            buffers of torch's layers of another shape, and buffers on the meta device that are not
            saved (`persistent=False`); nothing has changed then. Also for hooks on the state_dict
            of modules.
        StateError: If tiles were saved with another size or configuration, or are damaged, or the
            weight of an analog layer is not finite; layers before have been loaded.
    """
    where = _path(folder)
    if not (where / _INDEX).is_file():
        raise FileNotFoundError(f"folder = '{where}' has no {_INDEX}; give one of pulsora.save")
    modules = _modules(model)
    parts = _by_module(modules, stored_tensors(tensor_files(where / _INDEX)))
    _require_fit(where, modules, parts)
    on = device_of(model, None)
    shown = Shown(progress, len(modules), "modules")
    with TensorReader() as reader:
        for prefix, module in modules.items():
            state = {name: reader.read(each) for name, each in parts[prefix].items()}
            for own in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
                give_memory(own, on)
            _load_into(prefix, module, state)
            shown.add(1)
    for layer in followed_layers(model):  # a weight that layers share was written several times
        layer.held.followed(layer.carrier)


def _path(folder: str | os.PathLike[str]) -> Path:
    """Returns the path of a folder; TypeError for what is no path."""
    try:
        return Path(folder)
    except TypeError:
        raise TypeError(f"folder = {folder!r}: give the path of a folder") from None


def _modules(model: nn.Module) -> dict[str, nn.Module]:
    """Returns all modules by the starts of their names; ValueError for hooks on states."""
    require_module(model)
    found = {
        f"{name}." if name else "": module
        for name, module in model.named_modules(remove_duplicate=False)
    }
    for prefix, module in found.items():
        if reason := state_hooks(module):
            raise ValueError(
                f"module '{prefix.rstrip('.')}' {reason}; save the model by "
                "torch.save(model.state_dict(), file)"
            )
    return found


def _give(modules: Iterable[nn.Module], groups: Iterable[SingleProcess]) -> None:
    """Gives the weights of this process to the process that saves the model."""
    for module in modules:
        with _whole(module):
            pass
    for group in groups:
        group.saved()


def _whole(module: nn.Module) -> AbstractContextManager[None]:
    """Has the weights of a module in this process in a block, which other processes enter too."""
    if not isinstance(module, AnalogModule):
        return contextlib.nullcontext()
    return module.tiles.process_group.gathered([module.tiles])


def _state_of(prefix: str, module: nn.Module) -> dict[str, Tensor]:
    """Returns the state of a module without that of its submodules."""
    layer = module if isinstance(module, AnalogModule) and module.held is not None else None
    if layer is not None and not layer.carrier.isfinite().all():
        raise StateError(
            f"'{prefix}weight' has values that are not finite (has training diverged?)"
        )
    state: dict[str, Any] = {}
    module._save_to_state_dict(state, prefix, False)  # noqa: FBT003, SLF001 - torch's own
    for name, value in state.items():
        _require_storable(name, value)
    return state


def _require_all_storable(modules: Mapping[str, nn.Module]) -> None:
    """Raises TypeError for parameters and buffers of torch that the files do not hold."""
    for prefix, module in modules.items():
        if _is_of_torch(module, "_save_to_state_dict"):
            for name, tensor in _own_tensors(prefix, module):
                _require_storable(name, tensor)


def _require_storable(name: str, value: object) -> None:
    """Raises TypeError for a part of a state that safetensors files do not hold."""
    remedy = "load its values, or leave it out"
    if not isinstance(value, torch.Tensor):
        what = "no tensor"
    elif is_lazy(value):
        what, remedy = "not initialised", "run the model once before"
    elif value.is_meta:
        what = "on the meta device"
    elif value.is_nested or value.layout is not torch.strided:
        what = "a nested tensor" if value.is_nested else f"of layout {value.layout}"
        remedy = "make it dense, or save the model by torch.save(model.state_dict(), file)"
    elif not is_storable(value.dtype):
        what = f"of type {value.dtype}, which safetensors files do not hold"
        remedy = "convert it, or save the model by torch.save(model.state_dict(), file)"
    else:
        return
    raise TypeError(f"'{name}' of the state is {what}; {remedy}")


def _is_of_torch(module: nn.Module, method: str) -> bool:
    """Whether torch's own method saves or loads the parameters and buffers of a module."""
    return str(getattr(module, method).__module__).startswith("torch.nn.")


def _own_tensors(prefix: str, module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yields the parameters and buffers in the state of a module, with their names there."""
    for name, tensor in (*module._parameters.items(), *module._buffers.items()):  # noqa: SLF001
        is_saved = name not in module._non_persistent_buffers_set  # noqa: SLF001
        if tensor is not None and is_saved and name != "analog_weight":
            yield f"{prefix}{name}", tensor


def _expected(prefix: str, module: nn.Module) -> Iterator[str]:
    """Yields the names in the state of a module, and starts of names, which end in a dot."""
    for name, _ in _own_tensors(prefix, module):
        yield name
    if isinstance(module, AnalogModule):
        yield f"{prefix}tiles."
    if type(module).get_extra_state is not torch.nn.Module.get_extra_state:
        yield f"{prefix}_extra_state"
    if isinstance(module, RuleLinear):
        yield f"{prefix}rule."


def _require_fit(
    folder: Path,
    modules: Mapping[str, nn.Module],
    parts: Mapping[str, Mapping[str, StoredTensor]],
) -> None:
    """Raises ValueError unless the tensors of a folder are those of a model, and all of them."""
    missing: list[str] = []
    unknown: list[str] = []
    others: list[str] = []
    computed: list[str] = []
    for prefix, module in modules.items():
        stored, expected = parts[prefix], dict.fromkeys(_expected(prefix, module))
        starts = tuple(each for each in expected if each.endswith("."))
        begun = {each for each in starts if any(name.startswith(each) for name in stored)}
        missing += [each for each in expected if each not in stored and each not in begun]
        unknown += [n for n in stored if n not in expected and not n.startswith(starts)]
        others += _other_shapes(prefix, module, stored)
        computed += [
            f"{prefix}{name}"
            for name, buffer in module._buffers.items()  # noqa: SLF001
            if name in module._non_persistent_buffers_set  # noqa: SLF001
            and buffer is not None
            and buffer.is_meta
        ]
    texts = [f"not in the files: {missing[:_SHOWN]}"] if missing else []
    texts += [f"not in the model: {unknown[:_SHOWN]}"] if unknown else []
    texts += others[:_SHOWN]
    remedy = "give the model that was saved, with its sizes and configuration"
    if computed and not texts:
        texts = [f"not in the files: {computed[:_SHOWN]}"]
        remedy = (
            "a model computes such buffers when it is made: make it with them in memory, by "
            "accelerate.init_empty_weights(), or assign values to them before"
        )
    if texts:
        raise ValueError(f"folder = '{folder}': {'; '.join(texts)}; {remedy}")


def _other_shapes(
    prefix: str, module: nn.Module, stored: Mapping[str, StoredTensor]
) -> Iterator[str]:
    """Yields what to say of tensors whose shapes torch does not take."""
    if not _is_of_torch(module, "_load_from_state_dict"):
        return
    for name, tensor in _own_tensors(prefix, module):
        if name not in stored or is_lazy(tensor) or stored[name].dtype == "F4":  # two in a byte
            continue
        shape, its = stored[name].shape, tuple(tensor.shape)
        if shape != its and (shape, its) != ((1,), ()):  # which torch takes
            yield f"'{name}' has shape {list(shape)}, but {list(its)} in the model"


def _by_module(
    modules: Mapping[str, nn.Module], stored: list[StoredTensor]
) -> dict[str, dict[str, StoredTensor]]:
    """Returns tensors by the module that has them, which has the longest name that fits."""
    parts: dict[str, dict[str, StoredTensor]] = {prefix: {} for prefix in modules}
    for each in stored:
        pieces = each.name.split(".")
        counts = range(len(pieces) - 1, -1, -1)
        starts = ("".join(f"{piece}." for piece in pieces[:count]) for count in counts)
        parts[next(start for start in starts if start in parts)][each.name] = each
    return parts


def _load_into(prefix: str, module: nn.Module, state: dict[str, Tensor]) -> None:
    """Loads the state of a module without that of its submodules."""
    metadata: dict[str, Any] = {"version": module._version}  # noqa: SLF001
    errors: list[str] = []
    missing: list[str] = []
    take = module._load_from_state_dict  # noqa: SLF001 - torch's own
    take(state, prefix, metadata, True, missing, [], errors)  # noqa: FBT003
    if errors or missing:
        from_here = "; ".join([*errors, *(f"{name} is missing" for name in missing)])
        raise StateError(from_here)


def _require_own(folder: Path) -> None:
    """Raises ValueError for a folder with the index of another model."""
    index = folder / _INDEX
    if not index.exists():
        return
    try:
        of = json.loads(index.read_text())["metadata"]["format"]
    except (ValueError, KeyError, TypeError):
        of = None
    if of != _FORMAT:
        raise ValueError(
            f"folder = '{folder}' holds the weights of another model ({_INDEX}), which would be "
            "lost; choose another folder"
        )


def _shards(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir() if _OURS.fullmatch(each.name)}


def _remove(folder: Path, names: set[str]) -> None:
    for name in names:
        (folder / name).unlink(missing_ok=True)
