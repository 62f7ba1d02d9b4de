"""Stands for recorded steps where there is no GPU, so that decisions and labels are tested."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from pulsora.graphs import training_step
from pulsora.graphs.batch_step import BatchStep

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest
    from torch import nn


class Replayed:
    """Stands for a recorded step where there is no GPU: runs it, and repeats no Python label."""

    made: ClassVar[list[bool]] = []
    """Whether each record has the digital step."""

    def __init__(
        self, _optimizer: object, loss: Callable[..., torch.Tensor], _batch: object, **given: Any
    ) -> None:
        self.loss, self.constants, self.rates = loss, given["constants"], given["rates"]
        self.step: Any = loss.__self__  # type: ignore[attr-defined]
        self.labels: Any = None
        self.made.append(given["digital_too"])

    def run(self, optimizer: torch.optim.Optimizer, batch: object) -> torch.Tensor:
        loss = self.loss(batch)
        if isinstance(self.step, BatchStep):
            self.labels = self.labels or dict(self.step._results)  # as on recording
            self.step._results = dict(self.labels)
        self.step._amp.step(optimizer)
        return loss


def replay(monkeypatch: pytest.MonkeyPatch) -> type[Replayed]:
    """Lets steps on the CPU be recorded as `Replayed`."""
    monkeypatch.setattr(training_step, "_recordable", lambda _: True)
    monkeypatch.setattr(training_step, "RecordedStep", Replayed)
    monkeypatch.setattr(training_step, "random_numbers", lambda _: (0, 0))
    monkeypatch.setattr(torch.cuda.CUDAGraph, "raw_cuda_graph", None, raising=False)
    monkeypatch.setattr(Replayed, "made", [])
    return Replayed


def counted(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """A list that gets an entry for each record: whether it has the digital step."""
    records: list[bool] = []

    class Counted(training_step.RecordedStep):
        def __init__(self, *given: Any, **options: Any) -> None:
            records.append(options["digital_too"])
            super().__init__(*given, **options)

    monkeypatch.setattr(training_step, "RecordedStep", Counted)
    return records


def require_same(one: nn.Module, other: nn.Module) -> None:
    first, second = one.state_dict(), other.state_dict()
    assert first.keys() == second.keys()
    assert [name for name in first if not torch.equal(first[name], second[name])] == []
