"""The stream of records of a training that another program drives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsora.records.collect import epoch_record
from pulsora.records.files import run_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import nn

    from pulsora.records.files import Record
    from pulsora.trackers.writers import Tracker

__all__ = ["Stream"]


class Stream:
    """Gives records of a model to trackers, one per epoch.

    Args:
        trackers: The trackers.
        name: Name of the run.
        settings: Settings of the run, JSON values by name.
    """

    def __init__(
        self, trackers: Sequence[Tracker], name: str, settings: Mapping[str, Any] | None
    ) -> None:
        self._trackers = trackers
        self._run = run_line(name, settings or {})
        self._epochs = 0
        self._held: Record | None = None

    def begin(self) -> None:
        """Begins a run; its first epoch has number 1."""
        self._epochs, self._held = 0, None
        for tracker in self._trackers:
            tracker.begin(self._run)

    def record(self, model: nn.Module, metrics: Mapping[str, float]) -> None:
        """Makes the record of an epoch, which waits for further metrics until `send`."""
        self.send()
        self._epochs += 1
        self._held = epoch_record(model, self._epochs, metrics)

    def add(self, metrics: Mapping[str, float]) -> None:
        """Adds metrics to the record that waits."""
        if self._held is not None:
            self._held["metrics"].update(metrics)

    def send(self) -> None:
        """Sends the record that waits, if there is one."""
        if self._held is not None:
            for tracker in self._trackers:
                tracker.epoch(self._held)
        self._held = None

    def end(self, *, failed: bool = False) -> None:
        """Ends the run."""
        self.send()
        for tracker in self._trackers:
            tracker.end(failed=failed)
