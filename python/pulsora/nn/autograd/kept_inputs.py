"""The inputs of a read that autograd keeps until the backward pass, and a gradient until the step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsora.nn.tiles.checkpointing import is_checkpointed

if TYPE_CHECKING:
    from torch import Tensor

    from pulsora.nn.autograd.analog_parameter import AnalogParameter
    from pulsora.nn.tiles.patches import Patches

__all__ = ["inputs_to_keep", "kept_inputs"]


def inputs_to_keep(
    x: Tensor, weight: AnalogParameter, patches: Patches | None
) -> tuple[Tensor, Patches | None]:
    """Returns x, or the images from which x is taken, as a tensor; and patches for `kept_inputs`."""
    # The first and later runs of a checkpointed part of a model have to keep the same.
    if patches is None or not (is_checkpointed() or weight.keeps_images(x)):
        return x, None
    return patches.copied(), patches._replace(images=x.new_empty(0))


def kept_inputs(kept: Tensor, patches: Patches | None) -> Tensor | Patches:
    """Returns the inputs of the read, from what `inputs_to_keep` returned."""
    return kept if patches is None else patches._replace(images=kept)
