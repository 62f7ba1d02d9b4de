"""A callback of Hugging Face's Trainer that records each epoch."""

# ruff: noqa: ANN401, ARG002 - methods have the parameters of another package, without types

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from pulsora.trackers.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pulsora.trackers.writers import Tracker

__all__ = ["Recorder"]


class Recorder(TrainerCallback):  # type: ignore[misc] # without types
    """Gives trackers a record of each epoch: logged and evaluated numbers, the model's arrays.

    A record has the numbers that the Trainer logs between the end of its epoch and the beginning of
    the next one, as with logging_strategy="epoch" and eval_strategy="epoch".

    Args:
        trackers: The trackers, such as `JsonLines(Path("runs/a"))`.
        name: Name of the run.
        settings: Settings of the run; by default learning rate, batch size, epochs and seed.
    """

    def __init__(
        self,
        *trackers: Tracker,
        name: str = "hugging_face",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._trackers, self._name, self._settings = trackers, name, settings
        self._stream: Stream | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begins a run, in the first of several processes."""
        if not state.is_world_process_zero:
            return
        known = ("learning_rate", "per_device_train_batch_size", "num_train_epochs", "seed")
        settings = {name: getattr(args, name) for name in known}
        chosen = settings if self._settings is None else self._settings
        self._stream = Stream(self._trackers, self._name, chosen)
        self._stream.begin()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Makes the record of an epoch."""
        if self._stream is not None:
            self._stream.record(given["model"], {})

    def on_log(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Adds numbers to the record of the epoch that ended."""
        if self._stream is not None:
            numbers = {
                name: float(value)
                for name, value in (given.get("logs") or {}).items()
                if isinstance(value, int | float) and name != "epoch"
            }
            self._stream.add(numbers)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Sends the record of the epoch before."""
        if self._stream is not None:
            self._stream.send()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Ends the run."""
        if self._stream is not None:
            self._stream.end()
        self._stream = None
