"""Recorded training steps in the loop of Hugging Face's Trainer."""

# ruff: noqa: ANN401 - methods have the parameters of another package, without types

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from pulsora.graphs.batch_step import BatchStep
from pulsora.loops.own_loop import first_reason, require_behind, warn_once

try:
    import transformers
except ModuleNotFoundError as error:
    raise ImportError(
        "pulsora.loops.hugging_face needs transformers and accelerate; install them with "
        "pip install 'transformers[torch]'"
    ) from error

if not hasattr(transformers.Trainer, "_clip_grad_norm"):
    raise ImportError(
        f"pulsora.loops.hugging_face needs a newer transformers than {transformers.__version__}; "
        "pip install --upgrade 'transformers[torch]'"
    )

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

__all__ = ["RecordedSteps", "RecordedTrainer"]


class RecordedSteps:
    """Mixin that makes the steps of a class derived from `transformers.Trainer` as `TrainingStep`.

        class Recorded(RecordedSteps, SFTTrainer):
            pass

    Steps have the bits of the Trainer's own; on a GPU, they are recorded. The optimiser is one of
    `pulsora.optim`, given by `optimizers=(optimizer, scheduler)`. `compute_loss`, clipping
    (`max_grad_norm`), schedulers, callbacks, logging, checkpoints and resuming work as without the
    mixin. Python code in the model and in `compute_loss` runs only while a step is recorded.

    The Trainer makes its own steps, and one warning says why, where a step cannot be recorded: with
    `gradient_accumulation_steps`, several processes or GPUs, `torch_compile`,
    `torch_empty_cache_steps`, or callbacks on `on_pre_optimizer_step`. Reasons of `TrainingStep`
    itself, such as random choices on the host, make its steps plain, with its warning.

    Raises:
        TypeError: For a class without a Trainer behind the mixin; on training, for an optimiser
            that is not of pulsora.optim.
    """

    _recorded_step: BatchStep | None = None
    _norm: Tensor | None = None  # norm of the gradients of a step that has been made

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        require_behind(cls, RecordedSteps, "training_step", "a transformers.Trainer")

    def train(self, *arguments: Any, **options: Any) -> Any:
        """Trains as the Trainer does, and frees recorded steps at the end."""
        try:
            return super().train(*arguments, **options)  # type: ignore[misc] # of transformers
        finally:
            self._recorded_step = self._norm = None

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        """Returns the loss of a batch, after the whole step or, as the Trainer, `backward()`."""
        trainer: Any = self
        self._norm = None
        vars(trainer.optimizer).pop("step", None)  # if a callback raised an error
        reason = self._reason(model)
        if reason is not None:
            told: set[str] = self.__dict__.setdefault("_told", set())
            warn_once(told, "The Trainer", reason)
            return super().training_step(model, inputs, num_items_in_batch)  # type: ignore[misc]
        model.train()
        trainer.optimizer.train()  # as of optimisers without a schedule
        optimizer = trainer.optimizer.optimizer  # in accelerate's
        step = self._recorded_step
        if step is None or step.model is not model or step.optimizer is not optimizer:
            step = BatchStep(
                model,
                optimizer,
                self._loss_of,
                before_step=self._clip,
                scaler=trainer.accelerator.scaler,
            )
            self._recorded_step = step
        inputs = trainer._prepare_inputs(inputs)  # noqa: SLF001 - of the base class
        with _told_if_skipped(trainer.optimizer):
            loss, ((_, self._norm),) = step.step((inputs, num_items_in_batch))
        trainer.optimizer.step = self._stepped  # for the one call that follows
        return loss

    def _loss_of(self, batch: Any) -> Any:
        inputs, num_items_in_batch = batch
        trainer: Any = self
        # As the Trainer, which gives a model keywords and may take labels out of the inputs.
        with trainer.compute_loss_context_manager():
            return trainer.compute_loss(
                trainer.model, dict(inputs), num_items_in_batch=num_items_in_batch
            )

    def _clip(self) -> None:
        """Clips gradients as the Trainer does before a step, and keeps their norm."""
        trainer: Any = self
        limit = trainer.args.max_grad_norm
        # Accelerate's own would divide the gradients by the scaler's factor once more.
        norm = torch.nn.utils.clip_grad_norm_(
            trainer.model.parameters(), limit if limit and limit > 0 else float("inf")
        )
        assert self._recorded_step is not None  # noqa: S101 - it calls this
        self._recorded_step.keep("grad_norm", norm)

    def _stepped(self, closure: object = None) -> None:  # noqa: ARG002 - of accelerate
        """Stands for `step` of accelerate's optimiser, once, where a step has been made."""
        trainer: Any = self
        del trainer.optimizer.step
        self._norm = None

    def _clip_grad_norm(self, model: Any) -> Any:
        if self._norm is not None:
            return self._norm
        return super()._clip_grad_norm(model)  # type: ignore[misc]

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        if self._norm is not None:
            return self._norm
        return super()._get_grad_norm(model, grad_norm=grad_norm)  # type: ignore[misc]

    def _reason(self, model: Any) -> str | None:
        """Returns why the Trainer makes its own steps; None if they are recorded."""
        trainer: Any = self
        args, accelerator = trainer.args, trainer.accelerator
        own = [
            type(each).__name__
            for each in trainer.callback_handler.callbacks
            if type(each).on_pre_optimizer_step
            is not transformers.TrainerCallback.on_pre_optimizer_step
        ]
        return first_reason({
            f"gradient_accumulation_steps={args.gradient_accumulation_steps} makes one step of "
            "several backward passes; a larger per_device_train_batch_size with "
            "gradient_accumulation_steps=1 is recorded": args.gradient_accumulation_steps != 1,
            f"mixed precision ({accelerator.mixed_precision}) is not recorded; bf16=True and "
            "fp16=True are": accelerator.mixed_precision not in {"no", "bf16", "fp16"},
            "torch_compile=True is not recorded; leave it out": args.torch_compile,
            f"torch_empty_cache_steps={args.torch_empty_cache_steps} acts amid a step; leave it "
            "out": args.torch_empty_cache_steps is not None,
            "several processes or GPUs, DeepSpeed or FSDP train the model; TrainingStep records "
            "steps of several processes in a loop of your own": (
                accelerator.distributed_type.value != "NO" or args.n_gpu > 1
            ),
            f"the model is wrapped in a {type(model).__name__}": model is not trainer.model,
            "a recorded step would not run on_pre_optimizer_step of "
            f"{', '.join(own)}": bool(own),
        })  # fmt: skip


@contextmanager
def _told_if_skipped(optimizer: Any) -> Iterator[None]:
    """Tells accelerate's optimiser whether its scaler left out the step made meanwhile.

    The Trainer's scheduler makes no step then. A scaler makes its factor smaller if, and only if,
    it found infinite gradients; with a factor of 0 it always finds them.
    """
    scaler = optimizer.scaler
    if scaler is None:
        yield
        return
    before = scaler.get_scale()
    yield
    optimizer._is_overflow = before == 0.0 or scaler.get_scale() < before  # noqa: SLF001


class RecordedTrainer(RecordedSteps, transformers.Trainer):  # type: ignore[misc] # without types
    """`transformers.Trainer` with the steps of `RecordedSteps`."""
