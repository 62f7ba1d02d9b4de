"""Configurations of programmed arrays with published numbers, and noise models by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from pulsora import _core, noise_models
from pulsora._internal.files import read_settings
from pulsora._internal.models import model_from_dict
from pulsora._internal.parameters import MODELS, suggestion
from pulsora.config import InferenceConfig, IOParameters
from pulsora.crosssim_presets import SONOS, RRAMMilo

__all__ = ["AnalogFoundation", "ReRamCMO", "StandardHWA", "noise_model"]

_PRESETS = {"RRAMMilo": RRAMMilo, "SONOS": SONOS}
"""Presets whose noise models have no name of their own."""


def noise_model(name: str | Mapping[str, Any]) -> noise_models.NoiseModel:
    """The noise model of a name, file or table.

    Args:
        name: The name of a noise model, or "RRAMMilo" or "SONOS" for that of a preset; the case of
            letters is free. Or a TOML or JSON file with the table that `to_dict()` of a noise model
            returns, such as that of `pulsora.fit.retention`. Or such a table.

    Raises:
        ConfigError: For an unknown name, and for a bad table.
        ValueError: If the file holds no table.
        OSError: If the file cannot be read.
    """
    if isinstance(name, Mapping):
        table = name
    elif Path(name).suffix in {".toml", ".json"}:
        table = read_settings("noise_model", Path(name))
    else:
        known = {one.lower(): one for one in [*MODELS["noise_model"], *_PRESETS]}
        if known.get(name.lower()) in _PRESETS:
            return _PRESETS[known[name.lower()]]().noise_model
        if name.lower() not in known:
            hint = suggestion(name, known.values())
            raise _core.ConfigError(
                f"there is no noise model '{name}', and a file with the table of one ends in .toml "
                f"or .json{hint}"
            )
        table = {"model": known[name.lower()]}
    return cast("noise_models.NoiseModel", model_from_dict("noise_model", table))


def StandardHWA(**settings: Any) -> InferenceConfig:  # noqa: N802 - named as a preset
    """The field's standard setting of hardware-aware training, with phase-change memory.

    Rasch et al., Nat. Commun. 14:5282 (2023), and AIHWKit's StandardHWATrainingPreset. DAC and ADC
    have 254 steps, the ADC a range of 10 and noise of 0.04; weights have the read noise of
    phase-change memory, 0.0175, and wires their resistance. Inputs have learned ranges: call
    `pulsora.inference.calibrate(model, batches, rule="sigma", sigmas=3.0)` before training, there
    with 100 batches. Layers of that setting have tiles of 512 inputs, as here by default.

    Args:
        **settings: Settings of the configuration that differ, such as modifier="add_normal".
    """
    forward = IOParameters(
        inp_res=254,
        out_res=254,
        out_bound=10.0,
        out_noise=0.04,
        w_noise=0.0175,
        w_noise_type="pcm_read",
        ir_drop=1.0,
        noise_management="input_range",
        bound_management="none",
    )
    given: dict[str, Any] = {
        "noise_model": noise_models.PCMLike(),
        "compensation": "global",
        "scaling_per": "output",
        "forward": forward,
    }
    return InferenceConfig(**(given | settings))


def AnalogFoundation(**settings: Any) -> InferenceConfig:  # noqa: N802 - named as a preset
    """The setting with which language models were trained for analog chips.

    Buechel et al., "Analog Foundation Models" (arXiv 2505.09663), and their repository
    IBM/analog-foundation-models. Training reads add normal noise of 0.03 of each output's largest
    weight; weights are clipped to 2.5 standard deviations of their output. DAC and ADC have 254
    steps, the ADC a range of 14 and no noise. Inputs have learned ranges, which inputs widen and
    which decay by 0.01: call `pulsora.inference.calibrate(model, batches, rule="sigma",
    sigmas=18.0)` before training, there with 500 batches.

    Args:
        **settings: Settings of the configuration that differ.
    """
    forward = IOParameters(
        inp_res=254,
        out_res=254,
        out_bound=14.0,
        out_noise=0.0,
        noise_management="input_range",
        bound_management="none",
    )
    given: dict[str, Any] = {
        "noise_model": noise_models.PCMLike(),
        "scaling_per": "output",
        "modifier": "add_normal",
        "modifier_std": 0.03,
        "modifier_per": "output",
        "clip": "gaussian_per_output",
        "clip_sigma": 2.5,
        "range_gradient": "one_sided",
        "range_decay": 0.01,
        "forward": forward,
    }
    return InferenceConfig(**(given | settings))


def ReRamCMO(acceptance_range: float = 0.2, **settings: Any) -> InferenceConfig:  # noqa: N802
    """One device for each weight, of resistive memory with a conductive metal oxide layer.

    Falcone et al., Adv. Funct. Mater. (2025): 9 to 88.2 uS; AIHWKit's ReRamCMONoiseModel. The mean
    shift is the same for all cells, so that "global" compensation, a factor, hardly helps;
    `cell_reference="column"` subtracts it.

    Args:
        acceptance_range: Range around the target within which programming stops, 0.2 or 2 percent.
        **settings: Settings of the configuration that differ.
    """
    given: dict[str, Any] = {
        "noise_model": noise_models.ReRamCMO(acceptance_range=acceptance_range),
        "cell": "single",
        "compensation": "global",
    }
    return InferenceConfig(**(given | settings))
