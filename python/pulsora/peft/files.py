"""The two files of a PEFT adapter, read and written without PEFT; nothing in them is executed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from pulsora._internal.checks import require_folder
from pulsora._internal.files import replace_together
from pulsora._internal.weight_files import require_safetensors
from pulsora.peft.settings import pattern_of, read_settings

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    from torch import Tensor

    from pulsora.peft.settings import LoraSettings

__all__ = ["AdapterFile", "Beside", "LayerFactors", "read_adapter", "write_adapter"]

_SETTINGS, _TENSORS, _PICKLE = (
    "adapter_config.json",
    "adapter_model.safetensors",
    "adapter_model.bin",
)
_PREFIX = "base_model.model."
_MARK = "pulsora_trained"  # the metadata with the names of parameters that were trained
_OF_MODEL = re.compile(r"\.(base_layer|modules_to_save(\.default)?)\.")
_NAME = re.compile(
    r"(?:base_model\.model\.)?(?P<layer>.+)\.lora_(?P<factor>[AB])(\.default)?\.weight"
)


class LayerFactors(NamedTuple):
    """The adapter of one layer, as the change alpha A B of its weight [out_features, in_features].

    Attributes:
        a: A [out_features, rank]; PEFT's lora_B.
        b: B [rank, in_features]; PEFT's lora_A.
        alpha: PEFT's scaling.
    """

    a: Tensor
    b: Tensor
    alpha: float


class Beside(NamedTuple):
    """Parameters and buffers of a model that were trained beside the adapter.

    Attributes:
        tensors: The values by names in the model without adapters.
        modules: Names of modules whose whole state is in `tensors`; PEFT's modules_to_save.
        bias: PEFT's setting of biases: 'none', 'lora_only' or 'all'.
    """

    tensors: Mapping[str, Tensor]
    modules: Sequence[str] = ()
    bias: str = "none"


class AdapterFile(NamedTuple):
    """The content of the files of an adapter.

    Attributes:
        path: The file with the tensors.
        settings: Settings of the adapter.
        factors: Factors by the name of the layer.
        beside: Parameters and buffers of the model by name: what was trained beside the adapter,
            and parameters that PEFT repeats (heads that are tied to a table).
        trained: Names in `beside` that Pulsora has marked as trained.
    """

    path: Path
    settings: LoraSettings
    factors: dict[str, LayerFactors]
    beside: dict[str, Tensor]
    trained: frozenset[str]

    def brings(self, name: str) -> bool:
        """Whether the file says that a parameter of the model was trained."""
        module, _, last = name.rpartition(".")
        bias = self.settings.bias
        is_bias = bias == "all" or (bias == "lora_only" and module in self.factors)
        return name in self.trained or (last == "bias" and is_bias) or self.is_saved_whole(name)

    def is_saved_whole(self, name: str) -> bool:
        """Whether the settings name a module around a parameter, by its end as PEFT."""
        parts = name.split(".")
        modules = [".".join(parts[:count]) for count in range(1, len(parts))]
        return any(each.endswith(end) for each in modules for end in self.settings.modules_to_save)


def read_adapter(folder: str | os.PathLike[str]) -> AdapterFile:
    """Reads the settings of an adapter, its factors, and the parameters of the model in the files.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: naming the file and the fault, if the file is damaged or has content without a
            meaning here, or is replaced meanwhile.
    """
    where = Path(folder)
    if not (where / _SETTINGS).is_file():
        raise FileNotFoundError(
            f"there is no {where / _SETTINGS}; folder is one that PEFT has saved"
        )
    if not (where / _TENSORS).is_file():
        raise FileNotFoundError(
            f"there is no {where / _TENSORS}"
            + f"; {_PICKLE} is a pickle, which could execute anything: save the adapter again with "
            "safe_serialization = True" * (where / _PICKLE).is_file()
        )
    first = (where / _SETTINGS).read_bytes()
    settings = read_settings(where / _SETTINGS, first)
    data = (where / _TENSORS).read_bytes()
    # `replace_together` takes the settings away before it replaces the tensors.
    if not (where / _SETTINGS).is_file() or (where / _SETTINGS).read_bytes() != first:
        raise ValueError(f"{where}: another adapter is being saved there; load again")
    found: dict[str, dict[str, Tensor]] = {}
    beside: dict[str, Tensor] = {}
    for name, tensor in _tensors(where / _TENSORS, data).items():
        match = _NAME.fullmatch(name)
        if match:
            pair = found.setdefault(match["layer"], {})
            _require_one(where / _TENSORS, name, pair.get(match["factor"]), tensor, equal=False)
            pair[match["factor"]] = tensor
        elif ".original_module." not in name:  # PEFT repeats it beside the trained one
            own = _OF_MODEL.sub(".", name.removeprefix(_PREFIX))
            _require_one(where / _TENSORS, name, beside.get(own), tensor, equal=True)
            beside[own] = tensor
    if not found:
        raise ValueError(f"{where / _TENSORS} holds no adapter")
    factors = {
        name: _factors(where / _TENSORS, settings, name, pair) for name, pair in found.items()
    }
    return AdapterFile(where / _TENSORS, settings, factors, beside, _trained(data))


def _require_one(
    path: Path, name: str, first: Tensor | None, tensor: Tensor, *, equal: bool
) -> None:
    """Raises ValueError if a tensor is in a file under two names."""
    if first is not None and not (equal and torch.equal(first, tensor)):
        raise ValueError(f"{path} holds '{name}' under another name, too")


def _trained(data: bytes) -> frozenset[str]:
    """Returns the names that `write_adapter` has marked as trained in the header of a file."""
    size = int.from_bytes(data[:8], "little")
    own = json.loads(data[8 : 8 + size]).get("__metadata__") or {}
    return frozenset(filter(None, str(own.get(_MARK, "")).split("\n")))


_FLOATS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}


def _names(kinds: Iterable[torch.dtype]) -> str:
    return ", ".join(sorted(str(kind).removeprefix("torch.") for kind in kinds))


def _factors(
    path: Path, settings: LoraSettings, name: str, pair: Mapping[str, Tensor]
) -> LayerFactors:
    if set(pair) != {"A", "B"}:
        raise ValueError(f"{path}: layer '{name}' has only lora_{''.join(pair)}")
    kinds = {tensor.dtype for tensor in pair.values()}
    if not kinds <= _FLOATS:
        raise ValueError(
            f"{path}: the factors of layer '{name}' are of type {_names(kinds)}; only "
            "floating-point factors can be loaded (quantised ones lack their scales): save them in "
            f"{_names(_FLOATS)}"
        )
    a, b = pair["B"].float(), pair["A"].float()
    rank = settings.rank_of(name)
    if a.ndim != 2 or b.ndim != 2 or (a.shape[1], b.shape[0]) != (rank, rank):
        raise ValueError(
            f"{path}: layer '{name}' has lora_A {list(b.shape)} and lora_B {list(a.shape)}, but by "
            f"{_SETTINGS} its rank is {rank}: expected [{rank}, in_features] and "
            f"[out_features, {rank}]"
        )
    if not (a.isfinite().all() and b.isfinite().all()):
        raise ValueError(f"{path}: layer '{name}' has values that are not finite (nan or inf)")
    return LayerFactors(a, b, settings.scaling_of(name))


def _tensors(path: Path, data: bytes) -> dict[str, Tensor]:
    library = require_safetensors("files of PEFT")
    try:
        tensors: dict[str, Tensor] = library.torch.load(data)
    except Exception as error:  # noqa: BLE001 - of many types
        raise ValueError(f"{path} is no complete safetensors file ({error})") from None
    return tensors


def write_adapter(
    folder: str | os.PathLike[str],
    layers: Mapping[str, LayerFactors],
    beside: Beside,
    *,
    fan_in_fan_out: bool,
    base_model: str,
    task_type: str | None,
) -> None:
    """Writes the two files together, as `replace_together` says.

    Raises:
        OSError: if a file cannot be written.
    """
    where = Path(folder)
    require_folder("folder", where)
    ranks = {name: layer.b.shape[0] for name, layer in layers.items()}
    alphas = {name: _plain(layer.alpha * ranks[name]) for name, layer in layers.items()}
    rank, alpha = (_commonest(list(table.values())) for table in (ranks, alphas))
    settings = {
        "alpha_pattern": _patterns(alphas, alpha),
        "base_model_name_or_path": base_model,
        "bias": beside.bias,
        "fan_in_fan_out": fan_in_fan_out,
        "inference_mode": True,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "modules_to_save": list(beside.modules) or None,
        "peft_type": "LORA",
        "r": rank,
        "rank_pattern": _patterns(ranks, rank),
        "target_modules": sorted(layers),
        "task_type": task_type,
        "use_rslora": False,
    }
    tensors = {}
    for name, layer in layers.items():
        tensors[f"{_PREFIX}{name}.lora_A.weight"] = layer.b.detach().cpu().contiguous()
        tensors[f"{_PREFIX}{name}.lora_B.weight"] = layer.a.detach().cpu().contiguous()
    for name, value in beside.tensors.items():
        outer = next((each for each in layers if name.startswith(f"{each}.")), None)
        own = name if outer is None else f"{outer}.base_layer{name[len(outer) :]}"
        # A copy, because safetensors refuses tensors that share memory (tied weights).
        tensors[f"{_PREFIX}{own}"] = value.detach().cpu().clone().contiguous()
    metadata = {"format": "pt"} | ({_MARK: "\n".join(beside.tensors)} if beside.tensors else {})
    library = require_safetensors("files of PEFT")
    data: bytes = library.torch.save(tensors, metadata=metadata)
    replace_together(
        (where / _SETTINGS, f"{json.dumps(settings, indent=2)}\n".encode()),
        {where / _TENSORS: data},
    )


def _plain(value: float) -> float:
    """Converts a whole number to an int, as in PEFT's lora_alpha."""
    nearest = round(value)
    return nearest if abs(value - nearest) <= 1e-9 * abs(value) else value


def _commonest(values: list[Any]) -> Any:  # noqa: ANN401 - int or float
    return max(values, key=values.count)


def _patterns(values: Mapping[str, float], default: float) -> dict[str, float]:
    return {pattern_of(name): value for name, value in values.items() if value != default}
