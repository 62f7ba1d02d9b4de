"""Lightning trains with recorded steps: a mixin before a module that stays as it is.

Needs pytorch-lightning. Steps are recorded on a GPU, with the bits of Lightning's own.
"""

import tempfile
import warnings

import pytorch_lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pulsora as pl
from pulsora.loops.lightning import RecordedSteps

warnings.filterwarnings("ignore", module="pytorch_lightning")


class Module(pytorch_lightning.LightningModule):
    """An ordinary module, with an adapter's tile in its network."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        analog = pl.nn.AnalogLinear(16, 16, config=pl.LRTTConfig(rank=4, transfer_every=20), seed=1)
        self.model = nn.Sequential(analog, nn.Tanh(), nn.Linear(16, 2))

    def training_step(self, batch: list[torch.Tensor], _index: int) -> torch.Tensor:
        """Returns the loss, and logs it."""
        loss = nn.functional.cross_entropy(self.model(batch[0]), batch[1])
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Returns an optimiser that makes pulses."""
        return pl.optim.AnalogSGD(self.parameters(), lr=0.3)


class Recorded(RecordedSteps, Module):
    """Module with recorded steps."""


x = 2 * torch.rand(256, 16, generator=torch.Generator().manual_seed(0)) - 1
loader = DataLoader(TensorDataset(x, (x[:, 0] > x[:, 1]).long()), 16)
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
weights = []
for module in (Module(), Recorded()):
    folder = tempfile.mkdtemp()
    trainer = pytorch_lightning.Trainer(max_epochs=5, default_root_dir=folder, devices=1, **quiet)
    trainer.fit(module, loader)
    print(f"{type(module).__name__}: loss {float(trainer.callback_metrics['loss']):.3f}")
    weights.append(module.model[0].weight.cpu())
assert torch.equal(*weights)
