"""Checks of the learning-rate schedule, and the rates that are still to come."""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.optim.lr_scheduler import LRScheduler

__all__ = ["rates_ahead", "require_schedule"]


def require_schedule(scheduler: LRScheduler | None, optimizer: torch.optim.Optimizer) -> None:
    """Checks that optimizer and scheduler can go on mini-batch by mini-batch.

    Raises:
        TypeError: for an optimiser that calls the loss itself, and for a scheduler that waits for
            losses or is none.
        ValueError: for a scheduler of another optimiser.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise TypeError("optimizer is LBFGS, which calls the loss itself; choose one such as AdamW")
    if scheduler is None:
        return
    waits = isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
    given: object = getattr(scheduler, "optimizer", None)
    if waits or given is None:
        raise TypeError(
            f"scheduler is of type {type(scheduler).__name__}; give one of "
            "torch.optim.lr_scheduler that counts mini-batches, such as CosineAnnealingLR"
        )
    if given is not optimizer:
        raise ValueError(
            "scheduler is of another optimizer, so that learning rates here would not change; "
            "make it from this one"
        )


def rates_ahead(scheduler: LRScheduler | None, steps: Sequence[int]) -> list[float]:
    """Learning rates after more steps (in rising order) of a schedule, over the present rate.

    The first group of parameters counts. A copy of the scheduler, with an optimiser that trains
    nothing, gives the rates.
    """
    if scheduler is None:
        return [1.0] * len(steps)
    groups = [{**group, "params": []} for group in scheduler.optimizer.param_groups]
    idle = torch.optim.SGD([torch.zeros(())])
    idle.param_groups = copy.deepcopy(groups)
    twin = copy.deepcopy(scheduler, {id(scheduler.optimizer): idle})
    now = float(idle.param_groups[0]["lr"])
    found, done = [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch misses steps of the optimiser
        for step in steps:
            for _ in range(step - done):
                twin.step()
            done = step
            found.append(float(idle.param_groups[0]["lr"]) / max(now, 1e-12))
    return found
