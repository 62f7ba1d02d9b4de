"""Epochs of a run: with all mini-batches, or with predicted steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from pulsora.forecast.trainer import HybridTrainer
from pulsora.training_step import TrainingStep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from torch import Tensor

    from pulsora.forecast.report import Report
    from pulsora.training.experiment import Experiment

    Batches = Callable[[int], Iterable[tuple[Tensor, ...]]]
    OnBatch = Callable[[float], object] | None

__all__ = ["HybridEpochs", "PlainEpochs"]


class PlainEpochs:
    """Epochs with all mini-batches.

    Args:
        model: The model that is trained.
        optimizer: Its optimiser.
        experiment: The experiment of the run.
        batches: The mini-batches of an epoch, counted from 0.
        count: Mini-batches of an epoch.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        experiment: Experiment,
        batches: Batches,
        count: int,
    ) -> None:
        self._batches, self._count = batches, count
        self._step = TrainingStep(model, optimizer, _cross_entropy, amp=experiment.amp)
        self.passes = experiment.epochs * count

    def train(self, epoch: int, on_batch: OnBatch) -> float:
        """Trains one epoch; returns its mean loss."""
        values: list[float] = []

        def tell(loss: Tensor) -> None:
            values.append(loss.item())
            if on_batch:
                on_batch(values[-1])

        before: Tensor | None = None  # reported while a GPU is at the next step
        for batch in self._batches(epoch):
            loss = self._step(*batch)
            if before is not None:
                tell(before)
            before = loss
        if before is not None:
            tell(before)
        return sum(values) / len(values)

    def state_dict(self) -> dict[str, Any]:
        """An empty state: all state is in model and optimiser."""
        return {}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Does nothing."""


class HybridEpochs:
    """Epochs of a training with predicted steps and an average at its end (`HybridTrainer`).

    An epoch here is as many backward passes as the training set has mini-batches; the last may be
    shorter.

    Args:
        model: The model that is trained.
        optimizer: Its optimiser.
        experiment: The experiment of the run.
        batches: The mini-batches of an epoch, counted from 0.
        count: Mini-batches of an epoch.

    Raises:
        ValueError: if the training is too short for its phases.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        experiment: Experiment,
        batches: Batches,
        count: int,
    ) -> None:
        self._batches, self._count, self._amp = batches, count, experiment.amp
        steps = experiment.epochs * count
        try:
            self.trainer = HybridTrainer(
                model, optimizer, self._loss,
                steps=steps, saved=experiment.hybrid, before_step=self._told,
            )  # fmt: skip
        except ValueError as error:
            raise ValueError(
                f"hybrid = {experiment.hybrid:g} does not fit into {experiment.epochs} epochs of "
                f"{count} mini-batches ({error}); save less, or train for more epochs"
            ) from None
        self.passes = self.trainer.plan.passes
        self._values: list[float] = []
        self._last: Tensor = torch.zeros(())
        self._on_batch: OnBatch = None

    def train(self, epoch: int, on_batch: OnBatch) -> float:  # noqa: ARG002 - the trainer counts
        """Makes the passes of an epoch; returns their mean loss."""
        self._values, self._on_batch = [], on_batch
        self.trainer.train(self._batches, passes=self._count, progress=False)
        return sum(self._values) / len(self._values)

    def state_dict(self) -> dict[str, Any]:
        """The state of the trainer, as `trainer`."""
        return {"trainer": self.trainer.state_dict()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restores a saved state."""
        self.trainer.load_state_dict(saved["trainer"])

    def report(self) -> Report:
        """The report of the trainer so far."""
        return self.trainer.report()

    def _loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        x, y = batch
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self._amp):
            made = model(x)
        loss = _cross_entropy(made, y)
        if torch.is_grad_enabled():  # without gradients, a guard tries a jump
            self._last = loss.detach()
        return loss

    def _told(self) -> None:
        self._values.append(self._last.item())
        if self._on_batch:
            self._on_batch(self._values[-1])


def _cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """Mean over images, or over characters of texts; single precision under autocast too."""
    return nn.functional.cross_entropy(output.float().flatten(0, -2), target.flatten())
