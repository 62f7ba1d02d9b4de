"""A stream of mini-batches over epochs, whose position can be restored."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

__all__ = ["Stream", "normalise_anew", "require_finite_loss", "require_scalar"]

_NOTHING: Any = object()  # the end of an epoch
_MOST_BATCHES = 100  # for the statistics of batch normalisation


class Stream:
    """The batches of one epoch after another, of which some may be looked at ahead."""

    def __init__(self) -> None:
        self.epoch = 0
        self.taken = 0  # batches of this epoch
        self._source: Iterable[Any] | Callable[[int], Iterable[Any]] = ()
        self._open: Iterator[Any] | None = None
        self._ahead: deque[Any] = deque()  # batches of this epoch that were looked at

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
        if not self.taken:
            self._open = self._epoch(self.epoch)
            return
        with _draws_restored():
            self._open = self._epoch(self.epoch)
            for _ in range(self.taken):
                next(self._open, None)

    def close(self) -> None:
        """Drops the batches."""
        self._open = None
        self._ahead.clear()

    def _epoch(self, number: int) -> Iterator[Any]:
        source = self._source
        return iter(source if isinstance(source, Iterable) else source(number))

    def peek(self, count: int) -> list[Any]:
        """The next batches, which next() still gives.

        Batches of the next epoch are made for this call alone, and leave torch's random numbers as
        they are: a DataLoader draws from them when an epoch begins.

        Raises:
            ValueError: if an epoch has no batches.
        """
        missing = count - len(self._ahead)
        self._ahead.extend(itertools.islice(self._iterator(), max(missing, 0)))
        found = list(self._ahead)[:count]
        epoch = self.epoch
        with _draws_restored():
            while len(found) < count:
                epoch += 1
                more = list(itertools.islice(self._epoch(epoch), count - len(found)))
                if not more:
                    raise ValueError(f"batches gives none in epoch {epoch}")
                found += more
        return found

    def next(self) -> Any:  # noqa: ANN401 - whatever the loss takes
        """The next batch.

        Raises:
            ValueError: if an epoch has no batches.
        """
        batch = self._ahead.popleft() if self._ahead else next(self._iterator(), _NOTHING)
        if batch is _NOTHING:
            if self.taken:
                self.epoch, self.taken = self.epoch + 1, 0
            self._open = self._epoch(self.epoch)
            batch = next(self._open, _NOTHING)
            if batch is _NOTHING:
                raise ValueError(f"batches gives none in epoch {self.epoch}")
        self.taken += 1
        return batch

    def _iterator(self) -> Iterator[Any]:
        """The batches of this epoch."""
        if self._open is None:
            self._open = self._epoch(self.epoch)
        return self._open


@contextlib.contextmanager
def _draws_restored() -> Iterator[None]:
    """Restores torch's random numbers at the end."""
    used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(range(torch.cuda.device_count() if used else 0)):
        yield


def require_scalar(loss: object) -> Tensor:
    """The loss of a batch; ValueError unless it is a tensor without dimensions."""
    if isinstance(loss, torch.Tensor) and loss.dim() == 0:
        return loss
    shape = getattr(loss, "shape", None)
    got = type(loss).__name__ if shape is None else f"shape {list(shape)}"
    raise ValueError(
        f"loss must be a tensor without dimensions (got {got}); take the mean over the batch"
    )


def require_finite_loss(loss: float, passes: int) -> float:
    """The mean loss of a block that ends with pass `passes`; ValueError unless it is finite."""
    if math.isfinite(loss):
        return loss
    raise ValueError(
        f"the loss is {loss} after {passes} passes: training diverged; lower the learning rate"
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
