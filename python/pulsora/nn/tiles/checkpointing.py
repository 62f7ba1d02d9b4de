"""Activation checkpointing: reads of tiles that are repeated during a backward pass."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import TracebackType

__all__ = [
    "is_checkpointed",
    "is_evaluation",
    "repeated_read",
    "repeats",
    "replayed_reads",
    "require_first_run",
]

_Read = tuple[object, Any]  # the reader, and the position of its read


class _Active(threading.local):
    def __init__(self) -> None:
        self.stack: list[_Reads] = []


_active = _Active()


class _Reads:
    """The reads of a checkpointed part: noted in its first run, and repeated in order later."""

    def __init__(self, noted: list[_Read], *, again: bool) -> None:
        self.noted = noted
        self.again = again
        self.position = 0

    def __enter__(self) -> None:
        if self.again:
            self.position = 0
        else:
            self.noted.clear()
        _active.stack.append(self)

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        _active.stack.remove(self)

    def next(self, reader: object) -> Any:  # noqa: ANN401 - as noted
        """Returns the position of the next read."""
        if self.position == len(self.noted) or self.noted[self.position][0] is not reader:
            raise RuntimeError(
                "a checkpointed part of the model reads other analog layers, or in another order, "
                "when it runs again; its reads cannot be repeated"
            )
        self.position += 1
        return self.noted[self.position - 1][1]


def replayed_reads() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Returns contexts in which a checkpointed part of a model reads the same noise again.

        checkpoint(block, x, use_reentrant=False, context_fn=pulsora.nn.replayed_reads)

    Activation checkpointing runs a part of the model a second time during the backward pass.
    Without these contexts, tiles would be read with other noise than in the loss, which is a
    RuntimeError. The second reads repeat the random numbers of the first, and are not counted.

    Returns:
        The contexts of the first run and of later runs, as `torch.utils.checkpoint` takes them.
    """
    noted: list[_Read] = []
    return _Reads(noted, again=False), _Reads(noted, again=True)


def repeated_read(reader: object, begun: Callable[[], Any]) -> Any:  # noqa: ANN401
    """Returns the position of a repeated read by the tiles of `reader`.

    Args:
        reader: The object whose tiles are read.
        begun: Returns the position of a new read, which is then noted.

    Returns:
        The noted position of the read that is repeated, or None for a new read.

    Raises:
        RuntimeError: if the repeated part reads other layers than in its first run.
    """
    again = _again()
    repeated = None if again is None else again.next(reader)
    for reads in _active.stack:
        if not reads.again:
            reads.noted.append((reader, begun() if repeated is None else repeated))
    return repeated


def require_first_run() -> None:
    """Raises RuntimeError if a part of the model is run again without `replayed_reads`."""
    # Forward code runs inside a backward pass with gradients on only if it is checkpointed.
    if (
        torch.is_grad_enabled()
        and torch._C._current_graph_task_id() != -1  # noqa: SLF001
        and _again() is None
    ):
        raise RuntimeError(
            "an analog layer is run again during a backward pass (gradient checkpointing), where "
            "its tiles would be read with other noise than before; use checkpoint(..., "
            "use_reentrant=False, context_fn=pulsora.nn.replayed_reads), or give a model of "
            "transformers both as gradient_checkpointing_kwargs"
        )


def is_evaluation(*, training: bool) -> bool:
    """Whether a read by a module, in training mode or not, is part of an evaluation.

    Without gradients, every read is, unless it is the first run of a checkpointed part.
    """
    return not training or not (torch.is_grad_enabled() or _active.stack)


def is_checkpointed() -> bool:
    """Whether a part of a model is run under `replayed_reads`, for the first time or again."""
    return bool(_active.stack)


def repeats() -> bool:
    """Whether reads are being repeated under `replayed_reads`."""
    return _again() is not None


def _again() -> _Reads | None:
    """Returns the reads of the part of the model that runs again, or None."""
    return next((reads for reads in reversed(_active.stack) if reads.again), None)
