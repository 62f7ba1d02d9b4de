"""The processes that train a model, for a training step."""

from __future__ import annotations

from torch import nn

from pulsora.distributed.process_group import ProcessGroup

__all__ = ["BY_DDP", "by_ddp", "process_group"]

BY_DDP = (
    "DistributedDataParallel averages gradients in a stream of its own; give TrainingStep the "
    "prepared model itself, whose gradients it averages"
)
"""Reason why steps of a model in a DistributedDataParallel are not recorded."""


def by_ddp(model: nn.Module) -> bool:
    """Whether a model is a DistributedDataParallel."""
    return isinstance(model, nn.parallel.DistributedDataParallel)


def process_group(model: nn.Module) -> ProcessGroup | None:
    """Returns the processes that train a model; None for this process alone."""
    module = model.module if by_ddp(model) else model
    found = vars(module).get("_pulsora_process_group")
    if not isinstance(found, ProcessGroup) or found.trains is not module or found.size == 1:
        return None
    return found
