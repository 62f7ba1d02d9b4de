"""Encoders of torch that would take the weights of analog layers without reading their tiles."""

from __future__ import annotations

from torch import nn

from pulsora.nn.base import AnalogModule

__all__ = ["unfuse"]


def unfuse(model: nn.Module) -> None:
    """Makes the encoders of a model call their analog layers, in place.

    In eval(), `nn.TransformerEncoderLayer` gives the weights of its layers to a fused function of
    torch, and `nn.TransformerEncoder` makes nested tensors for that. For weights that are
    parameters of torch (InferenceConfig, MixedPrecisionConfig), torch cannot know that a layer is
    analog. Their results on the ordinary path are equal up to rounding.

    Raises:
        RuntimeError: If an `nn.MultiheadAttention` was given an analog output projection with such
            a weight, which it never calls.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            if _has_analog_layers(module):
                module.activation_relu_or_gelu = 0  # torch's mark of an activation without fusion
        elif isinstance(module, nn.TransformerEncoder):
            if _has_analog_layers(module):
                module.use_nested_tensor = False
        elif isinstance(module, nn.MultiheadAttention):
            projection: nn.Module = module.out_proj
            if isinstance(projection, AnalogModule) and projection.held is not None:
                raise RuntimeError(
                    f"attention '{name or 'the model'}' takes the weight of its out_proj without "
                    "calling it, so that the tiles of that layer would not be read; use an "
                    "attention that calls its layers, or leave out_proj digital"
                )


def _has_analog_layers(module: nn.Module) -> bool:
    return any(isinstance(each, AnalogModule) for each in module.modules())
