"""Hugging Face's Trainer trains with recorded steps: a class in place of another.

Needs transformers and accelerate. Steps are recorded on a GPU, with the bits of the Trainer's own.
"""

import tempfile

import torch
import transformers
from torch import nn

import pulsora as pl
from pulsora.loops.hugging_face import RecordedTrainer


class Classifier(nn.Module):
    """A model as the Trainer takes it, with an adapter's tile in it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        analog = pl.nn.AnalogLinear(16, 16, config=pl.LRTTConfig(rank=4, transfer_every=20), seed=1)
        self.model = nn.Sequential(analog, nn.Tanh(), nn.Linear(16, 2))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns loss and outputs."""
        logits = self.model(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


inputs = 2 * torch.rand(256, 16, generator=torch.Generator().manual_seed(0)) - 1
rows = [{"x": x, "labels": int(x[0] > x[1])} for x in inputs]
weights = []
for kind in (transformers.Trainer, RecordedTrainer):
    model = Classifier()
    optimizer = pl.optim.AnalogOptimizer(
        torch.optim.AdamW, model.parameters(), lr=1e-2, analog_lr=0.3
    )
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=80)
    arguments = transformers.TrainingArguments(
        tempfile.mkdtemp(), num_train_epochs=5, per_device_train_batch_size=16, report_to=[],
        save_strategy="no", logging_steps=80, disable_tqdm=True, seed=1,
        dataloader_pin_memory=False,
    )  # fmt: skip
    trainer = kind(model, arguments, train_dataset=rows, optimizers=(optimizer, schedule))
    print(f"{kind.__name__}: loss {trainer.train().training_loss:.3f}")
    weights.append(model.model[0].weight.cpu())
assert torch.equal(*weights)
