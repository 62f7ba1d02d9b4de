"""Times steps of Lightning and of Hugging Face's Trainer: their own, and recorded ones.

    python benchmarks/recorded_loops.py [--device cuda] [--steps 300] [--network mlp]

Networks and batches are those of `training_loops.py`. Each row trains two models, by the steps of
the loop and by the recorded ones, and first compares their weights. A figure is the mean time of
the steps of one training, without the first fiftieth of them; on a CPU, `recorded` is the plain
loop of `TrainingStep`, whose difference from `own` is the price of the mixin.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
import warnings
from typing import Any

import pytorch_lightning
import torch
import transformers
from torch import nn
from torch.utils.data import DataLoader, Dataset

import pulsora as pl
from pulsora.loops.hugging_face import RecordedTrainer
from pulsora.loops.lightning import RecordedSteps
from training_loops import CONFIGS, NETWORKS, model_of


class Clock:
    """The time of the steps of a training, each of which ends with a call."""

    def __init__(self, steps: int) -> None:
        self.first, self.steps, self.calls, self.start = max(steps // 50, 4), steps, 0, 0.0
        self.mean = 0.0

    def tick(self) -> None:
        """Counts a step."""
        self.calls += 1
        if self.calls not in {self.first, self.steps}:
            return
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        now = time.perf_counter()
        self.mean = (now - self.start) / (self.steps - self.first)
        self.start = now


class Classifier(nn.Module):
    """A network with its loss, as the Trainer takes it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns the loss, and nothing else."""
        return {"loss": nn.functional.cross_entropy(self.model(x), labels)}


class Rows(Dataset[dict[str, torch.Tensor]]):
    """Batch of normal numbers with labels, which is given again and again as a whole."""

    def __init__(self, shape: tuple[int, ...], classes: int, steps: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.size, self.batch = steps * shape[0], shape[0]
        self.x = torch.randn(shape, generator=generator)
        self.labels = torch.randint(classes, shape[:1], generator=generator)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": self.x[index % self.batch], "labels": self.labels[index % self.batch]}

    def __getitems__(self, _: list[int]) -> dict[str, torch.Tensor]:
        """Returns the batch, for loaders whose collate function is `whole`."""
        return {"x": self.x, "labels": self.labels}


def whole(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns a batch unchanged."""
    return batch


class Module(pytorch_lightning.LightningModule):
    """Network with its loss, for Lightning."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = Classifier(model)

    def training_step(self, batch: dict[str, torch.Tensor], _index: int) -> torch.Tensor:
        """Returns the loss."""
        return self.model(**batch)["loss"]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Returns SGD."""
        return pl.optim.AnalogSGD(self.parameters(), lr=0.01)


class Recorded(RecordedSteps, Module):
    """Module with recorded steps."""


class _OfLightning(pytorch_lightning.Callback):
    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def on_train_batch_end(self, *_: Any) -> None:
        self.clock.tick()


class _OfTrainer(transformers.TrainerCallback):
    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.clock.tick()


def by_lightning(model: nn.Module, rows: Rows, clock: Clock, *, recorded: bool, cpu: bool) -> None:
    """Trains by Lightning."""
    trainer = pytorch_lightning.Trainer(
        max_epochs=1, accelerator="cpu" if cpu else "gpu", devices=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[_OfLightning(clock)], default_root_dir=tempfile.gettempdir(),
    )  # fmt: skip
    module = (Recorded if recorded else Module)(model)
    trainer.fit(module, DataLoader(rows, rows.batch, collate_fn=whole))


def by_trainer(model: nn.Module, rows: Rows, clock: Clock, *, recorded: bool, cpu: bool) -> None:
    """Trains by Hugging Face's Trainer."""
    classifier = Classifier(model)
    optimizer = pl.optim.AnalogSGD(classifier.parameters(), lr=0.01)
    arguments = transformers.TrainingArguments(
        tempfile.mkdtemp(), num_train_epochs=1, per_device_train_batch_size=rows.batch,
        use_cpu=cpu, report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True,
        logging_nan_inf_filter=False, remove_unused_columns=False,
    )  # fmt: skip
    (RecordedTrainer if recorded else transformers.Trainer)(
        classifier,
        arguments,
        train_dataset=rows,
        data_collator=whole,
        optimizers=(optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)),
        callbacks=[_OfTrainer(clock)],
    ).train()


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--network", default="mlp", choices=NETWORKS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    cpu = options.device == "cpu"
    _, on_gpu, on_cpu, classes, _ = NETWORKS[options.network]
    rows = Rows(on_cpu if cpu else on_gpu, classes, options.steps)
    print(f"{options.network}, {rows.batch} rows on {options.device}, microseconds a step")
    print(f"{'':24}{'own':>10}{'recorded':>10}")
    for loop in (by_lightning, by_trainer):
        for name, config in CONFIGS.items():
            clocks = [Clock(options.steps) for _ in range(2)]
            models = [model_of(options.network, config, torch.device("cpu")) for _ in range(2)]
            for recorded, (model, clock) in enumerate(zip(models, clocks, strict=True)):
                loop(model, rows, clock, recorded=bool(recorded), cpu=cpu)
            states = [model.cpu().state_dict() for model in models]
            differ = [key for key in states[0] if not torch.equal(states[0][key], states[1][key])]
            assert not differ, f"weights differ: {differ}"
            own, ours = (1e6 * clock.mean for clock in clocks)
            print(f"{loop.__name__[3:] + ', ' + name:24}{own:10.0f}{ours:10.0f}")


if __name__ == "__main__":
    main()
