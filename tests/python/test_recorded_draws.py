"""Random numbers of torch on the GPU, as of dropout, in recorded steps: those of the plain loop."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import pulsora as pl
from pulsora.nn import AnalogLinear
from pulsora.optim import AnalogSGD
from pulsora.training_step import TrainingStep
from replayed_steps import counted, require_same

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

loss_fn = nn.functional.cross_entropy
DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=pytest.mark.skipif(
            not torch.cuda.is_available() or pl.cuda_device_count() == 0,
            reason="no GPU that torch and this build of Pulsora can use",
        ),
    ),
]


def made(device: str, dropout: float = 0.5) -> nn.Sequential:
    torch.manual_seed(3)
    config = pl.LRTTConfig(rank=2, transfer_every=3)
    return nn.Sequential(
        AnalogLinear(12, 16, config=config, seed=1, device=device),
        nn.Tanh(),
        nn.Dropout(dropout),
        nn.TransformerEncoderLayer(16, 2, 24, dropout, batch_first=True, device=device),
        AnalogLinear(16, 4, config=config, seed=2, device=device),
    )


def batch(number: int, device: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(number)
    rows = 7 if number % 5 == 4 else 10
    x = torch.randn(rows, 12, generator=generator)
    return x.to(device), torch.randint(4, (rows,), generator=generator).to(device)


def plain(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[Tensor, Tensor], Tensor]:
    def step(x: Tensor, target: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = loss_fn(model(x), target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@pytest.mark.parametrize("device", DEVICES)
def test_property_37_dropout_is_that_of_the_plain_loop(
    monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    """Two shapes of batches, draws of others in between, and a generator set back."""
    records = counted(monkeypatch)
    found = []
    for recorded in (True, False):
        model, other = made(device), made(device)
        steps = []
        for each in (model, other):
            optimizer = AnalogSGD(each.parameters(), lr=0.1)
            steps.append(
                TrainingStep(each, optimizer, loss_fn) if recorded else plain(each, optimizer)
            )
        torch.manual_seed(5)
        losses = []
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for number in range(20):
                losses += [step(*batch(number, device)) for step in steps]
                if number % 3 == 0:
                    losses.append(torch.rand((), device=device))
                if number == 14:
                    torch.manual_seed(6)
        losses.append(torch.rand((), device=device))
        found.append((torch.stack(losses), model, other))
        if recorded:
            assert [step.plain_because for step in steps] == [None, None]
    assert torch.equal(found[0][0], found[1][0])
    for one, same in zip(found[0][1:], found[1][1:], strict=True):
        require_same(one, same)
    assert len(records) == (4 if device == "cuda" else 0)


@pytest.mark.parametrize("device", DEVICES)
def test_masks_of_a_recorded_step_differ_from_step_to_step(device: str) -> None:
    class Mask(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = AnalogLinear(64, 1, seed=1, device=device)
            self.register_buffer("seen", torch.zeros(64, device=device))

        def forward(self, x: Tensor) -> Tensor:
            kept = nn.functional.dropout(x, 0.5)
            self.seen.copy_(kept[0].detach())
            return self.layer(kept)

    model = Mask()
    step = TrainingStep(model, AnalogSGD(model.parameters(), lr=0.1), nn.functional.mse_loss)
    torch.manual_seed(5)
    masks = []
    for _ in range(8):
        step(torch.ones(3, 64, device=device), torch.zeros(3, 1, device=device))
        masks.append(model.seen.clone())
    assert step.plain_because is None
    # Equal masks of two steps have a probability of 2^-64.
    assert len({tuple(mask.tolist()) for mask in masks}) == len(masks)
