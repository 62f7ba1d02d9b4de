"""Models, batches and the plain loop of tests of recorded training steps."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import pulsora as pl
from pulsora.nn import AnalogLinear

loss_fn = nn.functional.cross_entropy


needs_gpu = pytest.mark.skipif(
    not (torch.cuda.is_available() and pl.cuda_device_count() > 0),
    reason="no GPU that torch and this build of Pulsora can use",
)

ADAPTER = pl.LRTTConfig(rank=2, transfer_every=3)


def model_of(device: str, config: pl.TileConfig = ADAPTER) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(
        AnalogLinear(
            12, 8, config=config, seed=1, max_input_size=5, max_output_size=4, device=device
        ),
        nn.BatchNorm1d(8, device=device),
        nn.Tanh(),
        AnalogLinear(8, 7, config=config, seed=2, device=device),
        nn.ReLU(),
        nn.Linear(7, 4, device=device),
    )


def batch_of(step: int, device: str, rows: int = 10) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(rows, 12, generator=generator)
    return x.to(device), torch.randint(4, (rows,), generator=generator).to(device)


def plain_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, target: torch.Tensor
) -> torch.Tensor:
    optimizer.zero_grad()
    loss = loss_fn(model(x), target)
    loss.backward()
    optimizer.step()
    return loss.detach()


def require_same(one: nn.Module, other: nn.Module) -> None:
    states = one.state_dict(), other.state_dict()
    assert states[0].keys() == states[1].keys()
    assert [name for name in states[0] if not torch.equal(states[0][name], states[1][name])] == []
