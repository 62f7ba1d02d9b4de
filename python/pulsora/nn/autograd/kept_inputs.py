"""Inputs of a read that autograd keeps until the backward pass, and a gradient until the step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from pulsora.nn.tiles.patches import Patches

__all__ = ["inputs_to_keep", "kept_inputs"]


def inputs_to_keep(x: Tensor, patches: Patches | None) -> tuple[Tensor, Patches | None]:
    """Returns x, or images from which x is taken, as a tensor; and patches for `kept_inputs`."""
    if patches is None:
        return x, None
    # A copy, because the caller may write to the images. torch keeps the tensor, so that autograd
    # frees it, or moves it elsewhere.
    images = patches.images.detach()
    kept = images.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
    return kept, patches._replace(images=x.new_empty(0))


def kept_inputs(kept: Tensor, patches: Patches | None) -> Tensor | Patches:
    """Returns the inputs of the read, from what `inputs_to_keep` returned."""
    return kept if patches is None else patches._replace(images=kept)
