"""Recorded training steps in the loops of Lightning and of Hugging Face's Trainer.

Needs pytorch-lightning, and transformers with accelerate; what is not there is left out.
"""

import importlib.util
import tempfile
import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pulsora as pl

GPU = torch.cuda.is_available() and pl.cuda_device_count() > 0
generator = torch.Generator().manual_seed(0)
X = 2 * torch.rand(256, 16, generator=generator) - 1
LABELS = (X[:, 0] > X[:, 1]).long()
folder = tempfile.mkdtemp()
warnings.filterwarnings("ignore", module="pytorch_lightning|transformers|accelerate")


def network() -> nn.Sequential:
    """A network with an adapter's tile in it; always the same."""
    torch.manual_seed(0)
    config = pl.LRTTConfig(rank=4, transfer_every=20)
    return nn.Sequential(
        pl.nn.AnalogLinear(16, 16, config=config, seed=1), nn.Tanh(), nn.Linear(16, 2)
    )


def has(*packages: str) -> bool:
    """Tells whether packages are installed, and prints which are not."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        print(f"left out: needs {', '.join(missing)}")
    return not missing


# 1. Lightning: the module is unchanged, and a mixin before it makes its steps.
if has("pytorch_lightning"):
    import pytorch_lightning

    from pulsora.loops.lightning import RecordedSteps

    class Module(pytorch_lightning.LightningModule):
        """An ordinary module."""

        def __init__(self) -> None:
            super().__init__()
            self.model = network()

        def training_step(self, batch: list[torch.Tensor], _index: int) -> torch.Tensor:
            """Returns the loss, and logs it."""
            loss = nn.functional.cross_entropy(self.model(batch[0]), batch[1])
            self.log("loss", loss, on_step=False, on_epoch=True)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            """Returns an optimiser that makes pulses."""
            return pl.optim.AnalogSGD(self.parameters(), lr=0.3)

    class Recorded(RecordedSteps, Module):
        """Module with steps that are recorded on a GPU."""

    modules = [Module(), Recorded()]
    for module in modules:
        trainer = pytorch_lightning.Trainer(
            max_epochs=5, accelerator="gpu" if GPU else "cpu", devices=1, logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            default_root_dir=folder,
        )  # fmt: skip
        trainer.fit(module, DataLoader(TensorDataset(X, LABELS), 16))
        print(f"{type(module).__name__}: loss {float(trainer.callback_metrics['loss']):.3f}")
    assert torch.equal(modules[0].model[0].weight, modules[1].model[0].weight)
    print("Lightning: the weights are equal, to the bit")

# 2. The Trainer: a class in place of another.
if has("transformers", "accelerate") and torch.cuda.device_count() < 2:
    import transformers

    from pulsora.loops.hugging_face import RecordedTrainer

    class Classifier(nn.Module):
        """A model as the Trainer takes it."""

        def __init__(self) -> None:
            super().__init__()
            self.model = network()

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            """Returns loss and outputs."""
            logits = self.model(x)
            return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

    rows = [{"x": x, "labels": label} for x, label in zip(X, LABELS, strict=True)]
    models = []
    for kind in (transformers.Trainer, RecordedTrainer):
        classifier = Classifier()
        optimizer = pl.optim.AnalogOptimizer(
            torch.optim.AdamW, classifier.parameters(), lr=1e-2, analog_lr=0.3
        )
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=80)
        arguments = transformers.TrainingArguments(
            folder, num_train_epochs=5, per_device_train_batch_size=16, use_cpu=not GPU,
            report_to=[], save_strategy="no", logging_steps=80, disable_tqdm=True, seed=1,
        )  # fmt: skip
        kind(classifier, arguments, train_dataset=rows, optimizers=(optimizer, schedule)).train()
        models.append(classifier.model)
    assert torch.equal(models[0][0].weight, models[1][0].weight)
    print("Trainer: the weights are equal, to the bit")
