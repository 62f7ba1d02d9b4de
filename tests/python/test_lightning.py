"""A training by Lightning that is stopped and resumed, with its evaluations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pulsora as pl
from pulsora.optim import AnalogSGD

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

lightning = pytest.importorskip("pytorch_lightning")

pytestmark = pytest.mark.filterwarnings("ignore")  # of Lightning: loggers, workers, directories


class Module(lightning.LightningModule):  # type: ignore[misc,name-defined]
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        self.model = pl.convert_to_analog(model, pl.SingleConfig(), seed=1)
        self.losses: list[float] = []

    def configure_optimizers(self) -> AnalogSGD:
        return AnalogSGD(self.parameters(), lr=0.1)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], _index: int) -> torch.Tensor:
        x, labels = batch
        return nn.functional.cross_entropy(self.model(x), labels)

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], _index: int) -> None:
        x, labels = batch
        self.losses.append(float(nn.functional.cross_entropy(self.model(x), labels)))


class Averaged(lightning.Callback):  # type: ignore[misc,name-defined]
    """The recipe of docs/howto/train.md, and the weights of each epoch."""

    def __init__(self) -> None:
        self.seen: list[torch.Tensor] = []

    def on_train_epoch_end(self, trainer: Any, module: Module) -> None:  # noqa: ANN401
        before = getattr(self, "model", module.model)
        self.model = pl.average([before, module.model], [trainer.current_epoch, 1])
        self.seen.append(module.model[0].weight)


def _fit(
    folder: Path,
    epochs: int,
    checkpoint: str | None = None,
    callbacks: Sequence[lightning.Callback] = (),  # type: ignore[name-defined]
) -> tuple[Module, str]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(40, 6, generator=generator)
    data = TensorDataset(x, torch.randint(3, (40,), generator=generator))
    module = Module()
    trainer = lightning.Trainer(
        max_epochs=epochs,
        callbacks=list(callbacks),
        default_root_dir=folder,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=2,
    )
    trainer.fit(module, DataLoader(data, 8), DataLoader(data, 20), ckpt_path=checkpoint)
    path = str(folder / "stopped.ckpt")
    trainer.save_checkpoint(path)
    return module, path


def test_a_resumed_run_has_the_bits_of_an_uninterrupted_one(tmp_path: Path) -> None:
    whole, _ = _fit(tmp_path, 4)
    _, stopped = _fit(tmp_path, 2)
    resumed, _ = _fit(tmp_path, 4, stopped)
    first, second = whole.state_dict(), resumed.state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert whole.losses[-4:] == resumed.losses[-4:]


def test_the_recipe_of_the_guide_averages_the_weights_of_all_epochs(tmp_path: Path) -> None:
    averaged = Averaged()
    _fit(tmp_path, 3, callbacks=[averaged])
    assert len(averaged.seen) == 3
    mean = torch.stack(averaged.seen).mean(0)
    torch.testing.assert_close(averaged.model[0].weight, mean, rtol=1e-5, atol=1e-6)
