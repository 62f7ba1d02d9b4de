"""Saved trainings with predicted steps: torch's random numbers, and files of other trainings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import CosineAnnealingLR, ReduceLROnPlateau, StepLR
from torch.utils.data import DataLoader, TensorDataset

from pulsora.forecast import HybridTrainer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

STEPS = 100
X = torch.randn(320, 8, generator=torch.Generator().manual_seed(1))
Y = (X[:, :3] > 0.5).float()


def squares(model: nn.Module, batch: Sequence[torch.Tensor]) -> torch.Tensor:
    return nn.functional.mse_loss(model(batch[0]), batch[1])


def net() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Dropout(0.3), nn.Linear(12, 3))


def make(
    model: nn.Module | None = None,
    optimizer: Callable[..., Optimizer] = SGD,
    scheduler: Callable[..., LRScheduler] = CosineAnnealingLR,
) -> HybridTrainer:
    model = net() if model is None else model
    made = optimizer(model.parameters(), lr=0.05)
    return HybridTrainer(model, made, squares, steps=STEPS, scheduler=scheduler(made, 40))


def bits(model: nn.Module) -> list[bytes]:
    return [value.numpy().tobytes() for value in model.state_dict().values()]


@pytest.mark.parametrize("at", [7, 20, 33])  # an epoch has 20 batches
def test_a_data_loader_goes_on_to_the_bit(at: int, tmp_path: Path) -> None:
    """Every epoch of a DataLoader draws one number from torch's generator, as dropout does."""
    loader = DataLoader(TensorDataset(X, Y), batch_size=16)
    whole = make()
    torch.manual_seed(7)
    whole.train(loader, progress=False)
    first = make()
    torch.manual_seed(7)
    first.train(loader, passes=at, progress=False)
    first.save(tmp_path / "training.pt")
    first.train(loader, progress=False)
    assert bits(first.model) == bits(whole.model)
    torch.manual_seed(12345)
    second = make()
    second.load(tmp_path / "training.pt")
    second.train(loader, progress=False)
    assert bits(second.model) == bits(whole.model)


def test_files_of_other_trainings_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "training.pt"
    trainer = make()
    trainer.train([(X, Y)], passes=3, progress=False)
    trainer.save(path)
    renamed = nn.Sequential()
    renamed.add_module("first", net()[0])
    renamed.add_module("last", net()[3])
    for other, said in (
        (make(optimizer=AdamW), "saved with SGD and CosineAnnealingLR; this training has AdamW"),
        (make(scheduler=StepLR), "this training has SGD and StepLR"),
        (make(renamed), r"does not fit this training \(.*Missing key"),
    ):
        before = bits(other.model), other.state_dict()["plain"], other.optimizer.state_dict()
        with pytest.raises(ValueError, match=said):
            other.load(path)
        now = bits(other.model), other.state_dict()["plain"], other.optimizer.state_dict()
        assert now == before


def test_schedules_that_would_do_nothing_are_refused() -> None:
    model = net()
    optimizer = SGD(model.parameters(), lr=0.1)
    other = CosineAnnealingLR(SGD(model.parameters(), lr=0.1), STEPS)
    with pytest.raises(ValueError, match="scheduler is of another optimizer"):
        HybridTrainer(model, optimizer, squares, steps=STEPS, scheduler=other)
    with pytest.raises(TypeError, match="scheduler is of type ReduceLROnPlateau"):
        HybridTrainer(
            model, optimizer, squares, steps=STEPS, scheduler=ReduceLROnPlateau(optimizer)
        )
    with pytest.raises(TypeError, match="optimizer is LBFGS"):
        HybridTrainer(model, torch.optim.LBFGS(model.parameters()), squares, steps=STEPS)
