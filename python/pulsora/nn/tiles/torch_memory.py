"""Memory of tiles on GPUs, from torch's caching allocator."""

from __future__ import annotations

import torch

from pulsora import _core


def share_torch_memory() -> None:
    """Lets tiles on GPUs take their memory from torch.

    So torch.cuda.memory_allocated counts tiles, torch.cuda.empty_cache gives back what they no
    longer need, and torch.cuda.set_per_process_memory_fraction limits them as well.
    """
    if torch.version.cuda is not None:
        _core.set_storage_source(
            torch.cuda.caching_allocator_alloc,
            torch.cuda.caching_allocator_delete,
            torch.cuda.OutOfMemoryError,
        )
