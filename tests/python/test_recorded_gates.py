"""Gates of adapters in recorded steps: the bits of the plain loop."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import pulsora as pl
from pulsora.nn import AnalogLinear, GatedAdapter, LearnedGate, TaskGate, select_task
from pulsora.optim import AnalogSGD
from pulsora.training_step import TrainingStep
from replayed_steps import counted, require_same
from test_recorded_draws import DEVICES, plain

if TYPE_CHECKING:
    from torch import Tensor

loss_fn = nn.functional.cross_entropy
ROWS, TASKS = 9, 2


def made(gate: str, device: str) -> nn.Sequential:
    torch.manual_seed(3)
    config = pl.LRTTConfig(rank=4, transfer_every=4)
    gates: dict[str, object] = {
        "constant": [1.0, 0.5, 0.25, 0.0],
        "task": TaskGate(TASKS),
        "learned": LearnedGate(12, 4),
    }
    base = AnalogLinear(12, 10, config=config, seed=1, max_input_size=7)
    adapters = TASKS if gate == "task" else 1
    gated = GatedAdapter(base, gate=gates[gate], adapters=adapters)  # type: ignore[arg-type]
    return nn.Sequential(gated, nn.Tanh(), AnalogLinear(10, 4, seed=2)).to(device)


def batch(number: int, device: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(ROWS, 12, generator=generator)
    return x.to(device), torch.randint(4, (ROWS,), generator=generator).to(device)


@pytest.mark.parametrize("gate", ["constant", "task", "learned"])
@pytest.mark.parametrize("device", DEVICES)
def test_property_37_gated_steps_are_those_of_the_plain_loop(
    monkeypatch: pytest.MonkeyPatch, device: str, gate: str
) -> None:
    """Tasks change from step to step, as one number, and then as one for each row."""
    records = counted(monkeypatch)
    found = []
    for recorded in (True, False):
        model = made(gate, device)
        optimizer = AnalogSGD(model.parameters(), lr=0.1)
        step = TrainingStep(model, optimizer, loss_fn) if recorded else plain(model, optimizer)
        losses = []
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for number in range(16):
                if gate == "task":
                    one = number % TASKS
                    select_task(model, one if number < 8 else torch.arange(ROWS) % TASKS ^ one)
                losses.append(step(*batch(number, device)))
        found.append((torch.stack(losses), model))
    assert torch.equal(found[0][0], found[1][0])
    require_same(found[0][1], found[1][1])
    # One task and a task for each row are other shapes.
    shapes = 2 if gate == "task" else 1
    assert len(records) == (shapes if device == "cuda" else 0)
