"""Effects of recorded steps, and of failed records, on torch and on other graphs."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import pulsora as pl
from pulsora.graphs.capture import captured
from pulsora.nn import AnalogLinear
from pulsora.optim import AnalogSGD
from pulsora.training_step import TrainingStep

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or pl.cuda_device_count() == 0,
    reason="no GPU that torch and this build of Pulsora can use",
)


class Meanwhile(nn.Module):
    """A layer that does something while it is captured."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self.act = act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.cuda.is_current_stream_capturing():
            self.act()
        return x


class Loop:
    """A step of a small model, and batches for it."""

    def __init__(self, act: Callable[[], object]) -> None:
        torch.manual_seed(1)
        analog = AnalogLinear(6, 5, config=pl.LRTTConfig(rank=2), seed=1, device="cuda")
        model = nn.Sequential(analog, nn.Sigmoid(), nn.Linear(5, 3, device="cuda"), Meanwhile(act))
        self.x = torch.randn(4, 6, device="cuda")
        self.target = torch.randint(3, (4,), device="cuda")
        optimizer = AnalogSGD(model.parameters(), lr=0.1)
        self.step = TrainingStep(model, optimizer, nn.functional.cross_entropy)

    def run(self, steps: int) -> torch.Tensor:
        for _ in range(steps):
            loss = self.step(self.x, self.target)
        return loss


def graph() -> torch.cuda.CUDAGraph:
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        torch.ones(3, device="cuda") + 1
    return made


def test_torch_goes_on_after_a_record_that_failed() -> None:
    graphs = [graph()]
    stream = torch.cuda.current_stream()
    # During a capture, CUDA forbids destroying graphs and waiting for numbers.
    spoils: list[Callable[[], object]] = [
        graphs.clear,
        lambda: torch.ones(3, device="cuda").sum().item(),
    ]
    for spoil in spoils:
        loop = Loop(spoil)
        state = torch.cuda.get_rng_state()
        loop.run(2)
        with pytest.warns(RuntimeWarning, match="plain loop"):
            loop.run(1)
        assert loop.step.plain_because is not None
        assert torch.isfinite(loop.run(1))
        assert torch.cuda.current_stream() == stream
        assert torch.equal(torch.cuda.get_rng_state(), state)
        assert not torch.equal(torch.randn(5, device="cuda"), torch.randn(5, device="cuda"))
        torch.cuda.empty_cache()
    loop = Loop(lambda: None)
    loop.run(4)
    assert loop.step.recorded_shapes > 0


def test_numbers_drawn_after_a_failure_are_those_without_it() -> None:
    torch.cuda.manual_seed(7)
    wanted = [torch.randn(5, device="cuda") for _ in range(2)]
    torch.cuda.manual_seed(7)
    first = torch.randn(5, device="cuda")
    kept = [graph()]

    def spoilt() -> None:
        with captured(torch.cuda.CUDAGraph(), torch.device("cuda", 0)):
            torch.randn(5, device="cuda")
            kept.clear()

    with pytest.raises(RuntimeError):
        spoilt()
    assert torch.equal(first, wanted[0])
    assert torch.equal(torch.randn(5, device="cuda"), wanted[1])


def test_garbage_waits_for_the_end_of_a_record() -> None:
    seen: list[bool] = []
    loop = Loop(lambda: seen.append(gc.isenabled()))
    loop.run(3)
    assert seen == [False]
    assert gc.isenabled()
    assert loop.step.plain_because is None


def test_a_step_frees_its_graphs_with_its_last_reference() -> None:
    loop = Loop(lambda: None)
    loop.run(4)
    kept = weakref.ref(next(iter(loop.step._graphs.values())))
    gc.disable()
    try:
        del loop.step
        assert kept() is None
    finally:
        gc.enable()
