"""Settings of PEFT's adapter_config.json that have a meaning here."""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pulsora.peft.patterns import LONGEST, NamePattern

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["LoraSettings", "pattern_of", "read_settings"]

_REFUSED = {
    "use_dora": "normalises the columns of W + A B, which tiles do not have as numbers",
    "lora_bias": "gives the adapter a bias; train the bias of the layer instead",
    "target_parameters": "adapts parameters that no layer multiplies by",
    "trainable_token_indices": "trains rows of a table",
    "layer_replication": "changes the model; replicate its layers before",
    "megatron_config": "is of layers that are spread over machines",
    "use_qalora": "pools the inputs of the adapter",
    "use_bdlora": "cuts the factors into blocks",
    "alora_invocation_tokens": "switches the adapter on behind certain tokens; use a gate of "
    "pulsora.nn",
    "arrow_config": "routes between adapters by its own rule; use a gate of pulsora.nn",
    "kasa_config": "puts a diagonal between the factors",
    "monteclora_config": "draws the factors anew at each read",
    "velora_config": "compresses the activations that a gradient is made of",
}
"""Settings that change the function of an adapter, with the reason; by default each is off."""

_FIRST_VALUES = (True, False, "gaussian", "orthogonal", "eva")
"""Values of init_lora_weights that do not change the weights of the model."""

_KNOWN = {
    *_REFUSED,
    *("alpha_pattern", "auto_mapping", "base_model_name_or_path", "bias", "corda_config"),
    *("ensure_weight_tying", "eva_config", "exclude_modules", "fan_in_fan_out", "inference_mode"),
    *("init_lora_weights", "layers_pattern", "layers_to_transform", "loftq_config", "lora_alpha"),
    *("lora_dropout", "lora_ga_config", "megatron_core", "modules_to_save", "peft_type"),
    *("peft_version", "qalora_group_size", "r", "rank_pattern", "revision", "runtime_config"),
    *("target_modules", "task_type", "use_rslora"),
}  # fmt: skip
"""The settings of PEFT 0.21, and all of _REFUSED."""


@dataclass(frozen=True)
class LoraSettings:
    """The settings of a file that have a meaning here.

    Attributes:
        rank: The rank r of layers that no pattern names.
        lora_alpha: As in PEFT: the factor on A B is lora_alpha / r, or lora_alpha / sqrt(r) with
            use_rslora.
        use_rslora: Whether the factor is lora_alpha / sqrt(r).
        rank_pattern: Ranks by regular expressions of names (`pulsora.peft.patterns`).
        alpha_pattern: lora_alpha by regular expressions of names.
        lora_dropout: Share of the inputs of an adapter that training leaves out.
        modules_to_save: Ends of names of modules that were trained as a whole, and are in the file.
        bias: Biases that were trained: 'none', 'lora_only' for the layers with adapters, or 'all'.
    """

    rank: int
    lora_alpha: float
    use_rslora: bool
    rank_pattern: Mapping[NamePattern, int]
    alpha_pattern: Mapping[NamePattern, float]
    lora_dropout: float
    modules_to_save: tuple[str, ...] = ()
    bias: str = "none"

    def rank_of(self, name: str) -> int:
        """Returns the rank of a layer."""
        return int(_by_pattern(self.rank_pattern, name, self.rank))

    def scaling_of(self, name: str) -> float:
        """Returns the factor on A B of a layer."""
        rank = self.rank_of(name)
        return float(_by_pattern(self.alpha_pattern, name, self.lora_alpha)) / (
            math.sqrt(rank) if self.use_rslora else rank
        )


def pattern_of(name: str) -> str:
    """Returns a pattern that matches the name of one layer."""
    return "^" + re.escape(name)


def _by_pattern(patterns: Mapping[NamePattern, float], name: str, default: float) -> float:
    """Returns the value of the first pattern that matches a name or its last parts, as PEFT."""
    if len(name) > LONGEST:
        raise ValueError(f"the name of layer '{name[:40]}...' has {len(name)} characters")
    found = (pattern for pattern in patterns if pattern.matches(name))
    first = next(found, None)
    return default if first is None else patterns[first]


def read_settings(path: Path, data: bytes) -> LoraSettings:
    """Reads settings from the content of a file.

    Raises:
        ValueError: naming the file and the setting, if the file is not of a LoRA, is damaged, or
            has settings that have no meaning here.
    """
    try:
        values = json.loads(data)
        repr(values)  # fails as messages would
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON ({error})") from None
    if not isinstance(values, dict) or values.get("peft_type") != "LORA":
        kind = values.get("peft_type") if isinstance(values, dict) else type(values).__name__
        raise ValueError(f"{path}: peft_type is {kind!r}; only 'LORA' can be loaded")
    _require_known(path, values)
    bias = values.get("bias") or "none"
    if bias not in ("none", "lora_only", "all"):
        raise ValueError(f"{path}: bias = {bias!r} must be 'none', 'lora_only' or 'all'")
    modules = values.get("modules_to_save") or []
    if not isinstance(modules, list) or not all(isinstance(each, str) and each for each in modules):
        raise ValueError(f"{path}: modules_to_save = {modules!r} must be a list of names")
    settings = LoraSettings(
        rank=_number(path, values, "r", 8),
        lora_alpha=_number(path, values, "lora_alpha", 8),
        use_rslora=_switch(path, values, "use_rslora"),
        rank_pattern=_numbers(path, values, "rank_pattern"),
        alpha_pattern=_numbers(path, values, "alpha_pattern"),
        lora_dropout=_number(path, values, "lora_dropout", 0.0),
        modules_to_save=tuple(modules),
        bias=bias,
    )
    for name, rank in (("r", settings.rank), *(values.get("rank_pattern") or {}).items()):
        if rank < 1 or int(rank) != rank:
            raise ValueError(f"{path}: the rank {name} = {rank!r} must be a whole number from 1 up")
    if not 0.0 <= settings.lora_dropout <= 1.0:
        raise ValueError(f"{path}: lora_dropout = {settings.lora_dropout!r} must be from 0 to 1")
    return settings


def _require_known(path: Path, values: Mapping[str, Any]) -> None:
    """Raises ValueError for settings that have no meaning here."""
    for name, reason in _REFUSED.items():
        if values.get(name):
            raise ValueError(f"{path}: {name} = {values[name]!r} {reason}")
    _require_plain_start(path, values)
    for name, value in values.items():
        if name not in _KNOWN and value not in (None, False, 0, "", [], {}):
            raise ValueError(
                f"{path}: {name} = {value!r} is no setting that is known here, and may change what "
                "the adapter computes; if it does not, take it out of the file"
            )


def _require_plain_start(path: Path, values: Mapping[str, Any]) -> None:
    """Raises ValueError if PEFT starts the adapter with a part of the weights of the model."""
    first = values.get("init_lora_weights", True)
    if first is not None and first not in _FIRST_VALUES:
        raise ValueError(
            f"{path}: init_lora_weights = {first!r} changes the weights of the model as well, "
            "which the file does not hold; save the adapter by PEFT's save_pretrained(..., "
            "path_initial_model_for_weight_conversion=...), which makes an ordinary one of it"
        )


def _switch(path: Path, values: Mapping[str, Any], name: str) -> bool:
    value = values.get(name) or False
    if not isinstance(value, bool):
        raise ValueError(f"{path}: {name} = {value!r} must be true or false")  # noqa: TRY004
    return value


def _number(
    path: Path,
    values: Mapping[str, Any],
    name: str,
    default: float,
) -> Any:  # noqa: ANN401 - int or float
    value = values.get(name, default)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not abs(value) <= sys.float_info.max:
        text = (
            repr(value)
            if not is_number or isinstance(value, float)
            else "a number of too many digits"
        )
        raise ValueError(f"{path}: {name} = {text} must be a finite number")
    return value


def _numbers(path: Path, values: Mapping[str, Any], name: str) -> dict[NamePattern, Any]:
    table = values.get(name) or {}
    if not isinstance(table, dict):
        raise ValueError(f"{path}: {name} = {table!r} must be a table")  # noqa: TRY004 - of a file
    made = {}
    for key in table:
        value = _number(path, table, key, 0.0)
        try:
            made[NamePattern(key)] = value
        except ValueError as error:
            raise ValueError(f"{path}: {name} has {key[:80]!r}; {error}") from None
    return made
