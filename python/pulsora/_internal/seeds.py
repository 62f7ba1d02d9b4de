"""Seeds from generators of torch."""

from __future__ import annotations

import torch

__all__ = ["drawn_seed"]


def drawn_seed(generator: torch.Generator | None = None) -> int:
    """Draws a seed, by default from torch's own generator."""
    return int(torch.randint(2**62, (), generator=generator, device="cpu").item())
