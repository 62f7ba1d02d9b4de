"""Models saved and loaded in parts, so that no second copy of the model is in memory."""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pulsora._internal.checks import require_at_least, require_folder
from pulsora._internal.files import replace_file
from pulsora._internal.modules import require_module
from pulsora._internal.progress import Shown
from pulsora._internal.weight_files import (
    TensorReader,
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
        TypeError: For a state with something else than tensors.
        StateError: If weights were never loaded (the meta device), or are not finite.
    """
    require_at_least("shard_bytes", shard_bytes, 1)
    require_safetensors("saved models")
    modules = _modules(model)
    where = Path(folder)
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
                value = tensor.detach().cpu().contiguous()
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
        ValueError: For damaged files, and names that the model or the folder lacks; nothing has
            changed then. Also for hooks on the state_dict of modules.
        StateError: If tiles were saved with another size or configuration, or are damaged; layers
            before have been loaded.
    """
    where = Path(folder)
    if not (where / _INDEX).is_file():
        raise FileNotFoundError(f"folder = '{where}' has no {_INDEX}; give one of pulsora.save")
    modules = _modules(model)
    parts = _by_module(modules, stored_tensors(tensor_files(where / _INDEX)))
    missing = [
        name
        for prefix, module in modules.items()
        for name in _expected(prefix, module)
        if not any(each.startswith(name) for each in parts[prefix])
    ]
    unknown = [
        name
        for prefix, module in modules.items()
        for name in parts[prefix]
        if not any(name.startswith(each) for each in _expected(prefix, module))
    ]
    if missing or unknown:
        raise ValueError(
            f"folder = '{where}': not in the files: {missing[:8]}; not in the model: {unknown[:8]};"
            " give the model that was saved, with its configuration"
        )
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
    state: dict[str, Any] = {}
    module._save_to_state_dict(state, prefix, False)  # noqa: FBT003, SLF001 - torch's own
    for name, value in state.items():
        if not isinstance(value, torch.Tensor) or value.is_meta:
            what = "on the meta device" if isinstance(value, torch.Tensor) else "no tensor"
            raise TypeError(f"'{name}' of the state is {what}; load its values, or leave it out")
    return state


def _expected(prefix: str, module: nn.Module) -> Iterator[str]:
    """Yields the starts of the names in the state of a module."""
    for name, tensor in (*module._parameters.items(), *module._buffers.items()):  # noqa: SLF001
        is_saved = name not in module._non_persistent_buffers_set  # noqa: SLF001
        if tensor is not None and is_saved and name != "analog_weight":
            yield f"{prefix}{name}"
    if isinstance(module, AnalogModule):
        yield f"{prefix}tiles."
    if type(module).get_extra_state is not torch.nn.Module.get_extra_state:
        yield f"{prefix}_extra_state"
    if isinstance(module, RuleLinear):
        yield f"{prefix}rule."


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
