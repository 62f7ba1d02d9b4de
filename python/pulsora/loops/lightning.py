"""Recorded training steps in the loop of PyTorch Lightning."""

# ruff: noqa: ANN401 - methods have the parameters of another package, without types

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

import torch

from pulsora.graphs.batch_step import BatchStep
from pulsora.loops.own_loop import first_reason, require_behind, warn_once

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["RecordedSteps"]

_BETWEEN = (
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
)
"""Hooks amid a step, which a recorded step would not run."""
_SINGLE = ("32-true", "32", 32)
_MIXED = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
_REMEDY = "log it in on_train_batch_end"


class RecordedSteps:
    """Mixin that makes the steps of a LightningModule as `TrainingStep` does.

        class Recorded(RecordedSteps, Module):
            pass

        Trainer(max_epochs=3).fit(Recorded(), loader)

    `Module` is unchanged, with automatic optimisation and an optimiser of `pulsora.optim`. Steps
    have the bits of Lightning's own; on a GPU, they are recorded. Numbers that `training_step` logs
    are those of each step. Clipping, schedulers, callbacks, checkpoints and resuming work as
    without the mixin; `optimizer_step` of Lightning counts each step. Other Python code in
    `training_step` runs only while a step is recorded, and sees the `batch_idx` of that time.

    Lightning makes its own steps, and one warning says why, where a step cannot be recorded: with
    `accumulate_grad_batches`, another `precision` than single, "bf16-mixed" and "16-mixed",
    `torch.compile`, several processes, callbacks or methods amid a step, metrics of torchmetrics,
    or numbers that are no tensors, in `training_step`. Reasons of `TrainingStep` itself make its
    steps plain, with its warning.

    Raises:
        TypeError: For a class without a LightningModule behind the mixin; on fitting, for a
            training_step that hides the mixin's, and for an optimiser that is not of pulsora.optim.
    """

    _recorded_step: BatchStep | None = None
    _logs: BatchStep | None = None  # the step that now calls `training_step`
    _steps: bool = False  # whether Lightning asks for a whole step
    _made: bool = False  # whether `training_step` has made it
    _unrecordable: str | None = None  # what `training_step` was seen to do
    _arguments: tuple[Any, dict[str, Any]] = ((), {})

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        require_behind(cls, RecordedSteps, "training_step", "a LightningModule")

    def __getstate__(self) -> dict[str, Any]:
        """Returns the module's state without recorded steps, which cannot be copied."""
        state: dict[str, Any] = super().__getstate__()  # type: ignore[misc]
        return {name: each for name, each in state.items() if name != "_recorded_step"}

    def teardown(self, stage: str) -> None:
        """Frees recorded steps at the end of a fit."""
        self._recorded_step = None
        super().teardown(stage)  # type: ignore[misc] # of LightningModule

    def optimizer_step(
        self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None
    ) -> None:
        """Makes a step: by `training_step`, which Lightning's closure calls, or as Lightning."""
        reason = self._reason()
        if reason is not None:
            self._warn(reason)
            step: Any = super().optimizer_step  # type: ignore[misc] # of LightningModule
            step(epoch, batch_idx, optimizer, optimizer_closure)
            return
        self._steps, self._made = True, False
        try:
            optimizer_closure()
        finally:
            self._steps = False
        if not self._made:
            kind = type(self).__name__
            raise TypeError(
                f"{kind}.training_step hides that of RecordedSteps, so that no step was made; "
                f"write class {kind}(RecordedSteps, YourModule) with training_step in YourModule"
            )

    def training_step(self, *arguments: Any, **options: Any) -> Any:
        """Returns the loss of a batch; makes the whole step if Lightning asks for one."""
        if not self._steps:
            if not self.automatic_optimization:  # type: ignore[attr-defined]
                self._warn(
                    "automatic_optimization=False; make the steps of training_step by "
                    "pulsora.training_step.TrainingStep"
                )
            return super().training_step(*arguments, **options)  # type: ignore[misc]
        optimizer = self.trainer.optimizers[0]  # type: ignore[attr-defined]
        step = self._recorded_step
        if step is None or step.optimizer is not optimizer:
            trainer = self.trainer  # type: ignore[attr-defined]
            step = BatchStep(
                self,  # type: ignore[arg-type]
                optimizer,
                self._loss_of,
                before_step=self._clip,
                amp=_MIXED.get(trainer.precision, False),
                scaler=getattr(trainer.precision_plugin, "scaler", None),
            )
            self._recorded_step = step
        batch, *rest = arguments
        self._arguments = tuple(rest), options
        try:
            # Lightning calls this under autocast, but makes backward pass and step outside it.
            with torch.autocast(self.device.type, enabled=False):  # type: ignore[attr-defined]
                loss, logged = step.step(batch)
            self._made = True
        finally:
            self._logs = None
            self._arguments = (), {}
        for (name, settings), value in logged:
            self.log(name, value, **settings)
        return loss

    def backward(self, loss: Tensor, *arguments: Any, **options: Any) -> None:
        """Does nothing in a step that `training_step` has made."""
        if not self._steps:
            super().backward(loss, *arguments, **options)  # type: ignore[misc]

    def optimizer_zero_grad(self, *arguments: Any, **options: Any) -> None:
        """Does nothing in a step that `training_step` has made."""
        if not self._steps:
            super().optimizer_zero_grad(*arguments, **options)  # type: ignore[misc]

    def log(self, name: str, value: Any, *arguments: Any, **options: Any) -> None:
        """Logs a number; one of `training_step` after the step."""
        log: Any = super().log  # type: ignore[misc] # of LightningModule
        if self._logs is None:
            log(name, value, *arguments, **options)
            return
        place = self.device  # type: ignore[attr-defined]
        if isinstance(value, torch.Tensor) and value.numel() == 1 and value.device == place:
            settings = inspect.signature(log).bind(name, value, *arguments, **options).arguments
            kept = {key: each for key, each in settings.items() if key not in {"name", "value"}}
            self._logs.keep((name, kept), value)
            return
        self._unrecordable = (
            f"training_step logs {name!r}, a {type(value).__name__}, which would stay as it was "
            f"recorded; log a tensor of one element on {place}, or {_REMEDY}"
        )
        log(name, value, *arguments, **options)

    def _loss_of(self, batch: Any) -> Any:
        """Returns the loss of `training_step`."""
        self._logs = self._recorded_step
        counts = [each._update_count for each in _metrics(self)]  # noqa: SLF001
        rest, options = self._arguments
        loss = super().training_step(batch, *rest, **options)  # type: ignore[misc]
        if counts != [each._update_count for each in _metrics(self)]:  # noqa: SLF001
            self._unrecordable = (
                "training_step updates a metric of torchmetrics, whose Python code would not run; "
                f"{_REMEDY}"
            )
        if isinstance(loss, dict):
            if set(loss) != {"loss"}:
                self._unrecordable = (
                    f"training_step returns {sorted(loss)}; return the loss alone, and {_REMEDY}"
                )
            return loss["loss"]
        return loss

    def _clip(self) -> None:
        """Clips gradients, as Lightning does before a step."""
        trainer = self.trainer  # type: ignore[attr-defined]
        self.configure_gradient_clipping(  # type: ignore[attr-defined]
            trainer.optimizers[0],
            gradient_clip_val=trainer.gradient_clip_val,
            gradient_clip_algorithm=trainer.gradient_clip_algorithm,
        )

    def _warn(self, reason: str) -> None:
        told: set[str] = self.__dict__.setdefault("_told", set())
        warn_once(told, "Lightning", reason)

    def _reason(self) -> str | None:
        """Returns why Lightning makes its own steps; None if they are recorded."""
        trainer = self.trainer  # type: ignore[attr-defined]
        own = [
            f"{type(each).__name__}({name}=...)"  # LambdaCallback
            for each in trainer.callbacks
            for name in _BETWEEN
            if name in vars(each)
        ]
        own += _amid(type(self), tuple(map(type, trainer.callbacks)))  # type: ignore[arg-type]
        return self._unrecordable or first_reason({
            f"accumulate_grad_batches={trainer.accumulate_grad_batches} makes one step of several "
            "backward passes; larger batches with accumulate_grad_batches=1 are recorded": (
                trainer.accumulate_grad_batches != 1
            ),
            f"precision={trainer.precision!r} is not recorded; '32-true', 'bf16-mixed' and "
            "'16-mixed' are": trainer.precision not in (*_SINGLE, *_MIXED),
            "a compiled module is not recorded; fit the module without torch.compile": (
                getattr(self, "_compiler_ctx", None) is not None
            ),
            f"{trainer.world_size} processes train the model; TrainingStep records their steps in "
            "a loop of your own": trainer.world_size != 1,
            f"a recorded step would not run {', '.join(own)}": bool(own),
        })  # fmt: skip


def _metrics(module: Any) -> list[Any]:
    """Returns the metrics of torchmetrics in a module."""
    return [each for each in module.modules() if hasattr(each, "_update_count")]


@functools.cache
def _amid(module: type, callbacks: tuple[type, ...]) -> list[str]:
    """Returns the names of methods that a recorded step would not run."""
    found = [(each, name) for each in (module, *callbacks) for name in _BETWEEN]
    behind = module.__mro__[module.__mro__.index(RecordedSteps) + 1 :]
    found += [
        (next(each for each in behind if name in vars(each)), name)
        for name in ("optimizer_step", "backward", "optimizer_zero_grad")
    ]
    return [f"{each.__name__}.{name}" for each, name in found if not _is_lightning_s(each, name)]


def _is_lightning_s(cls: type, name: str) -> bool:
    """Whether a method is the one of Lightning's own base classes."""
    found = getattr(cls, name)
    package = found.__module__.split(".", 1)[0]
    base = found.__qualname__.split(".", 1)[0]
    return package in {"pytorch_lightning", "lightning"} and base in {
        "Callback",
        "LightningModule",
        "ModelHooks",
    }
