"""Learning rates that are still to come."""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.optim.lr_scheduler import LRScheduler

__all__ = ["rates_ahead"]


def rates_ahead(scheduler: LRScheduler | None, steps: Sequence[int]) -> list[float]:
    """The learning rates after so many more steps of a schedule, in rising order, over that of now.

    The first group of parameters counts. A copy of the scheduler is asked, with an optimiser of its own that trains nothing.
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
        warnings.simplefilter("ignore")  # of steps of the optimiser that did not come before
        for step in steps:
            for _ in range(step - done):
                twin.step()
            done = step
            found.append(float(idle.param_groups[0]["lr"]) / max(now, 1e-12))
    return found
