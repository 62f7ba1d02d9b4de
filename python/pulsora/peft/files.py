"""The two files of a PEFT adapter, read and written without PEFT; nothing in them is executed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pulsora._internal.checks import require_folder
from pulsora._internal.files import replace_file
from pulsora.peft.settings import pattern_of, read_settings

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from torch import Tensor

    from pulsora.peft.settings import LoraSettings

__all__ = ["AdapterFile", "LayerFactors", "read_adapter", "write_adapter"]

_SETTINGS, _TENSORS, _PICKLE = (
    "adapter_config.json",
    "adapter_model.safetensors",
    "adapter_model.bin",
)
_PREFIX = "base_model.model."
_OF_BASE = re.compile(r"(?:base_model\.model\.)?(?P<layer>.+)\.base_layer\.(?P<which>weight|bias)")
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


class AdapterFile(NamedTuple):
    """The content of the files of an adapter.

    Attributes:
        settings: Settings of the adapter.
        factors: Factors by the name of the layer.
        of_base: Parameters of the base model by name; PEFT adds the parameters of heads that are
            tied to a table.
    """

    settings: LoraSettings
    factors: dict[str, LayerFactors]
    of_base: dict[str, Tensor]


def read_adapter(folder: str | os.PathLike[str]) -> AdapterFile:
    """Reads the settings of an adapter, its factors, and the parameters of the base in the files.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: naming the file and the fault, if the file is damaged or has content without a
            meaning here.
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
    settings = read_settings(where / _SETTINGS)
    found: dict[str, dict[str, Tensor]] = {}
    of_base: dict[str, Tensor] = {}
    others = []
    for name, tensor in _tensors(where / _TENSORS).items():
        match = _NAME.fullmatch(name)
        if match:
            found.setdefault(match["layer"], {})[match["factor"]] = tensor
        elif match := _OF_BASE.fullmatch(name):
            of_base[f"{match['layer']}.{match['which']}"] = tensor
        else:
            others.append(name)
    if others:
        raise ValueError(
            f"{where / _TENSORS} holds more than factors of fully connected layers: "
            f"{', '.join(others[:5])}{', ...' if len(others) > 5 else ''}; embeddings, "
            "convolutions, biases and whole layers have no meaning here"
        )
    if not found:
        raise ValueError(f"{where / _TENSORS} holds no adapter")
    factors = {
        name: _factors(where / _TENSORS, settings, name, pair) for name, pair in found.items()
    }
    return AdapterFile(settings, factors, of_base)


def _factors(
    path: Path, settings: LoraSettings, name: str, pair: Mapping[str, Tensor]
) -> LayerFactors:
    if set(pair) != {"A", "B"}:
        raise ValueError(f"{path}: layer '{name}' has only lora_{''.join(pair)}")
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


def _tensors(path: Path) -> dict[str, Tensor]:
    library = _safetensors()
    try:
        tensors: dict[str, Tensor] = library.load(path.read_bytes())
    except Exception as error:  # noqa: BLE001 - of many types
        raise ValueError(f"{path} is no complete safetensors file ({error})") from None
    return tensors


def _safetensors() -> Any:  # noqa: ANN401 - a module
    try:
        import safetensors.torch  # noqa: PLC0415 - only what reads or writes these files needs it
    except ModuleNotFoundError as error:
        raise ImportError(
            "files of PEFT are read and written by safetensors; install it with pip install "
            "'pulsora[hf]'"
        ) from error
    return safetensors.torch


def write_adapter(
    folder: str | os.PathLike[str],
    layers: Mapping[str, LayerFactors],
    *,
    fan_in_fan_out: bool,
    base_model: str,
    task_type: str | None,
) -> None:
    """Writes the two files, each atomically.

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
        "bias": "none",
        "fan_in_fan_out": fan_in_fan_out,
        "inference_mode": True,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "modules_to_save": None,
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
    data: bytes = _safetensors().save(tensors, metadata={"format": "pt"})
    replace_file(where / _TENSORS, data)
    replace_file(where / _SETTINGS, f"{json.dumps(settings, indent=2)}\n".encode())


def _plain(value: float) -> float:
    """Converts a whole number to an int, as in PEFT's lora_alpha."""
    nearest = round(value)
    return nearest if abs(value - nearest) <= 1e-9 * abs(value) else value


def _commonest(values: list[Any]) -> Any:  # noqa: ANN401 - int or float
    return max(values, key=values.count)


def _patterns(values: Mapping[str, float], default: float) -> dict[str, float]:
    return {pattern_of(name): value for name, value in values.items() if value != default}
