"""Activation checkpointing: reads of tiles that are repeated during a backward pass."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import TracebackType

__all__ = ["repeated_read", "repeats", "replayed_reads", "require_first_run"]

_Read = tuple[object, Any]  # who reads, and where the read begins


class _Active(threading.local):
    def __init__(self) -> None:
        self.stack: list[_Reads] = []


_active = _Active()


class _Reads:
    """The reads of a checkpointed part: noted while it runs first, taken in order when it runs again."""

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

    def next(self, reader: object) -> Any:  # noqa: ANN401 - what the reader noted
        """Returns the position of the next read."""
        if self.position == len(self.noted) or self.noted[self.position][0] is not reader:
            raise RuntimeError(
                "a checkpointed part of the model reads other analog layers, or in another order, "
                "when it runs again; its reads cannot be repeated"
            )
        self.position += 1
        return self.noted[self.position - 1][1]


def replayed_reads() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Makes a checkpointed part of a model read the same noise when it runs again.

        checkpoint(block, x, use_reentrant=False, context_fn=pulsora.nn.replayed_reads)

    Gradient checkpointing runs a part of the model a second time during the backward pass. Without
    this, tiles would be read anew, with other noise than the loss has seen, which is refused. The
    second reads repeat the draws of the first, and count as none.

    Returns:
        The contexts of the first run and of those after it, as `torch.utils.checkpoint` asks for.
    """
    noted: list[_Read] = []
    return _Reads(noted, again=False), _Reads(noted, again=True)


def repeated_read(reader: object, begun: Callable[[], Any]) -> Any:  # noqa: ANN401
    """Returns the position of a repeated read by the tiles of `reader`.

    Args:
        reader: Who reads.
        begun: Gives where a new read begins, to be noted.

    Returns:
        What was noted of the read that is repeated, or None for a new read.

    Raises:
        RuntimeError: if what is run again reads other layers than at first.
    """
    again = _again()
    repeated = None if again is None else again.next(reader)
    for reads in _active.stack:
        if not reads.again:
            reads.noted.append((reader, begun() if repeated is None else repeated))
    return repeated


def require_first_run() -> None:
    """RuntimeError if a part of the model is run again without `replayed_reads`."""
    # Only what runs again for its gradient is run during a backward pass with gradients on.
    if torch.is_grad_enabled() and torch._C._current_graph_task_id() != -1 and _again() is None:  # noqa: SLF001
        raise RuntimeError(
            "an analog layer is run again during a backward pass (gradient checkpointing), where "
            "its tiles would be read with other noise than before; use checkpoint(..., "
            "use_reentrant=False, context_fn=pulsora.nn.replayed_reads), or give a model of transformers "
            "both as gradient_checkpointing_kwargs"
        )


def repeats() -> bool:
    """Whether reads are being made again, as `replayed_reads` has them."""
    return _again() is not None


def _again() -> _Reads | None:
    """The part of the model that runs again, if one does."""
    return next((reads for reads in reversed(_active.stack) if reads.again), None)
