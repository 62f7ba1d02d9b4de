"""Whether transforms of torch.func are running; the one private name of torch for it."""

from __future__ import annotations

import torch

__all__ = ["in_transform"]


def in_transform() -> bool:
    """Whether a transform of torch.func is running."""
    is_active: bool = torch._C._are_functorch_transforms_active()  # noqa: SLF001 - no public name
    return is_active
