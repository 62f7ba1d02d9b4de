"""A small training with forecasts, which several tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

import pulsora as pl
from pulsora.forecast import HybridTrainer

if TYPE_CHECKING:
    from collections.abc import Iterator

STEPS = 200


def batches(epoch: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """A linear task, 25 batches of 16; the same for the same epoch."""
    generator = torch.Generator().manual_seed(epoch)
    teacher = torch.randn(8, 3, generator=torch.Generator().manual_seed(99))
    for _ in range(25):
        x = torch.randn(16, 8, generator=generator)
        yield x, x @ teacher + 0.1 * torch.randn(16, 3, generator=generator)


def squares(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return nn.functional.mse_loss(model(batch[0]), batch[1])


def make(model: nn.Module | None = None, lr: float = 0.05, **options: Any) -> HybridTrainer:
    if model is None:
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Dropout(0.1), nn.Linear(12, 3))
    optimizer = pl.optim.AnalogSGD(model.parameters(), lr=lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    return HybridTrainer(
        model, optimizer, squares, scheduler=scheduler, **({"steps": STEPS} | options)
    )


def lr_of(trainer: HybridTrainer) -> float:
    return float(trainer.optimizer.param_groups[0]["lr"])


def bits(model: nn.Module) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in model.state_dict().items()}
