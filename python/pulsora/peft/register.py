"""Registration of analog layers with PEFT."""

from __future__ import annotations

from typing import Any, TypeVar

from pulsora.nn import AnalogLinear

__all__ = ["register"]

_Config = TypeVar("_Config")


def register(config: _Config) -> _Config:
    """Makes PEFT accept analog layers as targets of a `peft.LoraConfig`, which is returned.

        model = pulsora.convert_to_analog(model, pulsora.SingleConfig(), weight_scaling="abs_max")
        config = pulsora.peft.register(peft.LoraConfig(target_modules=["q_proj"]))
        model = peft.get_peft_model(model, config)

    The adapters are PEFT's own, in tensors of torch, on arrays that stay frozen: any optimiser
    trains them, PEFT saves and loads them, and `merge_and_unload()` writes them into the arrays.
    PEFT does not save the registration: a model that is loaded needs `peft.get_peft_model` with a
    registered config, and then `peft.set_peft_model_state_dict`.

    Raises:
        ImportError: if peft is not installed.
        TypeError: if the config is not a LoraConfig.
    """
    try:
        from pulsora.peft.layer import AnalogLora  # noqa: PLC0415 - needs peft
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "peft":
            raise
        raise ImportError(
            "pulsora.peft.register needs peft; install it with pip install peft"
        ) from error
    mapping: Any = getattr(config, "_register_custom_module", None)
    if mapping is None:
        raise TypeError(f"config = {type(config).__name__}: give a peft.LoraConfig")
    mapping({AnalogLinear: AnalogLora})
    return config
