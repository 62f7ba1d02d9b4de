"""What a training step asks of a model that several processes train."""

from __future__ import annotations

from torch import nn

from pulsora.distributed.process_group import ProcessGroup

__all__ = ["only_by_ddp", "process_group", "trained_module"]


def trained_module(model: nn.Module) -> nn.Module:
    """Returns the module in a DistributedDataParallel, or else the model itself."""
    return model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model


def process_group(model: nn.Module) -> ProcessGroup | None:
    """Returns the processes that train a model; None for this process alone."""
    module = trained_module(model)
    found = vars(module).get("_pulsora_process_group")
    if not isinstance(found, ProcessGroup) or found.trains is not module or found.size == 1:
        return None
    return found


def only_by_ddp(model: nn.Module) -> str | None:
    """Returns what DistributedDataParallel alone does for a model; None if nothing."""
    if not isinstance(model, nn.parallel.DistributedDataParallel):
        return None
    if getattr(model, "_comm_hooks", ()):
        return "DistributedDataParallel has communication hooks, which would not run"
    if model.broadcast_buffers and list(getattr(model, "modules_buffers", ())):
        return (
            "DistributedDataParallel sends the buffers of its modules before each forward pass; "
            "with broadcast_buffers=False it does not"
        )
    return None
