"""A stream of mini-batches over epochs, whose position can be restored."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

__all__ = ["Stream", "normalise_anew", "require_scalar"]

_MOST_BATCHES = 100  # for the statistics of batch normalisation


class Stream:
    """The batches of one epoch after another, of which some may be looked at ahead."""

    def __init__(self) -> None:
        self.epoch = 0
        self.taken = 0  # batches of this epoch
        self._source: Iterable[Any] | Callable[[int], Iterable[Any]] = ()
        self._open: Iterator[Any] | None = None
        self._reached = (0, 0)  # epoch and batches of it that the source has given
        # Batches that the source has given and next() has not, each with the place it leads to.
        self._ahead: deque[tuple[Any, tuple[int, int]]] = deque()

    def open(self, source: Iterable[Any] | Callable[[int], Iterable[Any]]) -> None:
        """Continues with these batches, at the position that was reached.

        Skipping to the position leaves torch's random numbers as they are, from which a DataLoader
        draws in each epoch.

        Raises:
            TypeError: if `source` is neither iterable nor a function, or is an iterator, which has
                no second epoch.
        """
        if isinstance(source, Iterator):
            raise TypeError(
                "batches is an iterator, which can be gone through once only; give a list, "
                "a DataLoader, or a function of the epoch"
            )
        if not isinstance(source, Iterable) and not callable(source):
            raise TypeError(
                f"batches is of type {type(source).__name__}; give an iterable, or a function of "
                "the epoch"
            )
        self._source = source
        self._ahead.clear()
        self._reached = (self.epoch, self.taken)
        if not self.taken:
            self._open = self._epoch()
            return
        used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        devices = range(torch.cuda.device_count() if used else 0)
        with torch.random.fork_rng(devices):
            self._open = self._epoch()
            for _ in range(self.taken):
                next(self._open, None)

    def close(self) -> None:
        """Drops the batches."""
        self._open = None
        self._ahead.clear()

    def _epoch(self) -> Iterator[Any]:
        source = self._source
        return iter(source if isinstance(source, Iterable) else source(self._reached[0]))

    def peek(self, count: int) -> list[Any]:
        """The next batches, which next() still gives.

        Raises:
            ValueError: if an epoch has no batches.
        """
        while len(self._ahead) < count:
            self._ahead.append((self._fetch(), self._reached))
        return [batch for batch, _ in list(self._ahead)[:count]]

    def next(self) -> Any:  # noqa: ANN401 - whatever the loss takes
        """The next batch.

        Raises:
            ValueError: if an epoch has no batches.
        """
        if not self._ahead:
            self.peek(1)
        batch, (self.epoch, self.taken) = self._ahead.popleft()
        return batch

    def _fetch(self) -> Any:  # noqa: ANN401 - whatever the loss takes
        """One more batch of the source."""
        nothing = object()
        epoch, taken = self._reached
        batch = next(self._open, nothing) if self._open is not None else nothing
        if batch is nothing:
            if taken:
                epoch, taken = epoch + 1, 0
            self._reached = (epoch, taken)
            self._open = self._epoch()
            batch = next(self._open, nothing)
            if batch is nothing:
                raise ValueError(f"batches gives none in epoch {epoch}")
        self._reached = (epoch, taken + 1)
        return batch


def require_scalar(loss: object) -> Tensor:
    """The loss of a batch; ValueError unless it is a tensor without dimensions."""
    if isinstance(loss, torch.Tensor) and loss.dim() == 0:
        return loss
    shape = getattr(loss, "shape", None)
    got = type(loss).__name__ if shape is None else f"shape {list(shape)}"
    raise ValueError(
        f"loss must be a tensor without dimensions (got {got}); take the mean over the batch"
    )


@torch.no_grad()
def normalise_anew(
    model: nn.Module, loss: Callable[[nn.Module, Any], Tensor], stream: Stream
) -> None:
    """Recomputes the statistics of batch normalisations after weights were replaced by an average.

    Takes up to 100 batches; does nothing for a model without batch normalisation.
    """
    layers = [
        layer
        for layer in model.modules()
        if isinstance(
            layer,
            nn.modules.batchnorm._BatchNorm,  # noqa: SLF001
        )
        and layer.track_running_stats
    ]
    if not layers:
        return
    momenta = [layer.momentum for layer in layers]
    was_training = model.training
    model.train()
    try:
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None  # the mean of all batches
        for _ in range(_MOST_BATCHES):
            loss(model, stream.next())
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
        model.train(was_training)
