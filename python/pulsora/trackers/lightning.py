"""A callback of PyTorch Lightning that records each epoch."""

# ruff: noqa: ANN401, ARG002 - methods have the parameters of another package, without types

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytorch_lightning

from pulsora.trackers.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pulsora.trackers.writers import Tracker

__all__ = ["Recorder"]


class Recorder(pytorch_lightning.Callback):  # type: ignore[misc] # without types
    """Gives trackers a record of each training epoch: logged metrics, and the model's arrays.

    Args:
        trackers: The trackers, such as `JsonLines(Path("runs/a"))`.
        name: Name of the run.
        settings: Settings of the run; by default the hyperparameters of the module.
    """

    def __init__(
        self,
        *trackers: Tracker,
        name: str = "lightning",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._trackers, self._name, self._settings = trackers, name, settings
        self._stream: Stream | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begins a run, in the first of several processes."""
        if trainer.is_global_zero:
            settings = dict(pl_module.hparams) if self._settings is None else self._settings
            self._stream = Stream(self._trackers, self._name, settings)
            self._stream.begin()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Records an epoch."""
        if self._stream is not None:
            metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
            self._stream.record(pl_module, metrics)
            self._stream.send()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Ends the run."""
        self._end(failed=False)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Ends the run as failed."""
        self._end(failed=True)

    def _end(self, *, failed: bool) -> None:
        if self._stream is not None:
            self._stream.end(failed=failed)
        self._stream = None
