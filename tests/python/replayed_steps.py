"""Stands for recorded steps where there is no GPU, so that decisions and labels are tested."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pulsora.graphs import training_step

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest
    from torch import nn

    from pulsora.graphs.batch_step import BatchStep


class Replayed:
    """Stands for a recorded step where there is no GPU: runs it, and repeats no Python label."""

    made = 0

    def __init__(
        self, _optimizer: object, loss: Callable[..., torch.Tensor], _batch: object, **given: Any
    ) -> None:
        self.loss, self.constants, self.rates = loss, given["constants"], given["rates"]
        self.step: BatchStep = loss.__self__  # type: ignore[attr-defined]
        self.labels: Any = None
        type(self).made += 1

    def run(self, optimizer: torch.optim.Optimizer, batch: object) -> torch.Tensor:
        loss = self.loss(batch)
        if self.labels is None:  # as on recording
            self.labels = dict(self.step._results)
        self.step._results = dict(self.labels)
        optimizer.step()
        return loss


def replay(monkeypatch: pytest.MonkeyPatch) -> type[Replayed]:
    """Lets steps on the CPU be recorded as `Replayed`."""
    monkeypatch.setattr(training_step, "_recordable", lambda _: True)
    monkeypatch.setattr(training_step, "RecordedStep", Replayed)
    monkeypatch.setattr(training_step, "_random_numbers", lambda _: 0)
    monkeypatch.setattr(torch.cuda.CUDAGraph, "raw_cuda_graph", None, raising=False)
    monkeypatch.setattr(Replayed, "made", 0)
    return Replayed


def require_same(one: nn.Module, other: nn.Module) -> None:
    first, second = one.state_dict(), other.state_dict()
    assert first.keys() == second.keys()
    assert [name for name in first if not torch.equal(first[name], second[name])] == []
