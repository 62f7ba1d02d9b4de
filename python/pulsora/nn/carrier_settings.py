"""Settings that a layer whose weight is a parameter of torch may have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from pulsora import _core

if TYPE_CHECKING:
    from pulsora.config import CompoundFacts
    from pulsora.nn.master import WeightCarrier

__all__ = ["learns_range", "require_digital", "require_range", "set_weight"]


def learns_range(config: Any) -> bool:  # noqa: ANN401 - TileConfig
    """Whether the range of the inputs is a parameter of a layer with this configuration."""
    if not config.facts.digital_weight:
        return False
    forward = config.forward
    return not forward.is_perfect and bool(forward.noise_management == "input_range")


def require_range(config: Any) -> None:  # noqa: ANN401 - TileConfig
    """Raises ConfigError for a gradient of input ranges that a configuration does not have."""
    rule = getattr(config, "range_gradient", "clip")
    if rule == "clip":
        return
    forward = config.forward
    if not learns_range(config):
        raise _core.ConfigError(
            f"range_gradient is '{rule}', and forward.noise_management is "
            f"'{forward.noise_management}', so that no input range is learned; set it to "
            "'input_range', with forward.is_perfect = False"
        )
    if rule == "lsq" and forward.inp_res == 0.0:
        raise _core.ConfigError(
            "range_gradient is 'lsq', and forward.inp_res is 0, so that inputs are not rounded; "
            "give the steps of the DAC, or range_gradient='clip'"
        )


def require_digital(facts: CompoundFacts, weight_scaling: object, *, analog_bias: bool) -> None:
    """Raises ValueError for options that do not go with a weight that is a parameter of torch."""
    if weight_scaling is not None and not facts.follows:
        raise ValueError(
            f"weight_scaling = {weight_scaling!r}: tiles of InferenceConfig scale their weights "
            "themselves (scaling_per of the configuration); leave it out"
        )
    if analog_bias:
        raise ValueError(
            "digital_bias = False: layers whose weight is a parameter of torch have a digital "
            "bias; leave it out"
        )


def set_weight(layer: WeightCarrier, value: object) -> None:
    """Has another parameter carry a layer's weight, as `layer.weight = value`.

    Raises:
        AttributeError: If the weight is in cells.
        TypeError: Unless the value is a parameter.
        ValueError: If it has another shape.
    """
    if layer.held is None:
        raise AttributeError(
            "the weights of an analog layer are in tiles: write them by set_weights(weight, bias), "
            "and share them by one.analog_weight = other.analog_weight"
        )
    if not isinstance(value, nn.Parameter):
        raise TypeError(
            f"weight is of type {type(value).__name__}; give a torch.nn.Parameter, or write values "
            "by set_weights(weight, bias)"
        )
    before = layer._parameters.get("weight")  # noqa: SLF001 - of the same package
    if before is not None and value.shape != before.shape:
        raise ValueError(
            f"weight has shape {list(value.shape)}, and that of the layer {list(before.shape)}; "
            "give a parameter of the same shape"
        )
    layer._parameters["weight"] = value  # noqa: SLF001
