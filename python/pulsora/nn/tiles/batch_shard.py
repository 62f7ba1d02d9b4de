"""The rows of a global batch that a process holds, and the interface of tiles to processes."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor

    from pulsora.nn.tiles.patches import Patches

__all__ = ["SINGLE_PROCESS", "BatchShard", "SingleProcess"]


class BatchShard(NamedTuple):
    """The rows of a read by process, in each of several concatenated mini-batches.

    Attributes:
        counts: Rows of each process; a mini-batch has them in the order of the processes.
        process: The number of this process.
        steps: Number of mini-batches (the time steps of a recurrent layer).
    """

    counts: tuple[int, ...]
    process: int = 0
    steps: int = 1

    @property
    def rows(self) -> int:
        """Number of rows of a mini-batch that this process has."""
        return self.counts[self.process]

    @property
    def first(self) -> int:
        """Number of this process's first row in the mini-batch."""
        return sum(self.counts[: self.process])

    @property
    def of(self) -> int:
        """Number of rows of a whole mini-batch."""
        return sum(self.counts)

    def of_layer(self, shape: Sequence[int], steps: int) -> BatchShard:
        """Returns the shard in a layer's x [*shape, features], of these rows in some time steps.

        Raises:
            ValueError: if the rows are not in the first dimension.
        """
        rows, samples = self.rows, math.prod(shape)
        # Every row has the same number of samples, in the dimensions after the batch.
        each = math.prod(shape[1:]) if rows == 0 else samples // (rows * steps)
        fits = rows == 0 or (shape[0] if shape else 1) % (rows * steps) == 0
        if not fits or samples != each * rows * steps:
            raise ValueError(
                f"an analog layer reads x of shape {[*shape, '...']} where this rank has {rows} "
                "rows of the global batch; the rows have to be the first dimension of what layers "
                "read (batch_first), and of what is given to the model, or its batch_dim"
            )
        if len(self.counts) == 1:
            return BatchShard((samples,))
        return BatchShard(tuple(count * each for count in self.counts), self.process, steps)

    def split(self, lines: Tensor) -> Sequence[Tensor]:
        """Splits the rows of a read into its mini-batches."""
        if self.steps == 1:
            return [lines]
        return lines.view(self.steps, self.rows, lines.shape[1]).unbind()

    def concatenated(self, lines: Sequence[Tensor]) -> Tensor:
        """Concatenates the rows of all processes, in the order of a single process."""
        columns = lines[0].shape[1]
        blocks = [each.reshape(self.steps, -1, columns) for each in lines]
        return torch.cat(blocks, dim=1).reshape(-1, columns)


_WHOLE: AbstractContextManager[None] = contextlib.nullcontext()


class SingleProcess:
    """Single-process implementation of the interface to torch.distributed.

    Attributes:
        gathers: Whether `gather` adds the rows of other processes.
    """

    gathers = False

    def to_global(self, d: Tensor) -> Tensor:
        """Scales a gradient of this process's loss to the loss of the global batch."""
        return d

    def to_local(self, dx: Tensor) -> Tensor:
        """Inverts `to_global`."""
        return dx

    def shard(self, shape: Sequence[int], steps: int) -> BatchShard | None:
        """Returns the shard in a read of x [*shape, features]; None for an evaluation.

        `steps` is the number of time steps, each of a whole mini-batch, in the first dimension.
        """
        del steps  # a single process reads all steps at once
        return BatchShard((math.prod(shape),))

    def gather(
        self, array: object, shard: BatchShard, tensors: Sequence[Tensor | Patches | None]
    ) -> Callable[[], Sequence[Any]]:
        """Begins to gather the rows of all processes; the returned function waits for them.

        Images are for a single process (`gathers`).
        """
        del array, shard
        return lambda: tensors

    def summed(self, array: object, gradient: Tensor) -> Tensor:
        """Adds the gradients [rows, columns] that processes have of a term without a batch."""
        del array
        return gradient

    def require_padded(self) -> None:
        """Raises RuntimeError if processes would sort sequences of different lengths separately."""

    def pulsed_here(self, array: object, rows: int, *, gated: bool) -> list[int] | None:
        """Returns the tiles that this process pulses for an update by `rows`; None for all.

        `gated` tells whether a forward read of the rows was gated.
        """
        del array, rows, gated
        return None

    def exchange(self, array: object) -> None:
        """Begins to send changes in the tiles of `pulsed_here`, and to receive all others."""

    def recorded_exchange(self, arrays: Sequence[object]) -> Any:  # noqa: ANN401
        """Records the exchange of changes in the tiles of `pulsed_here`, for `exchange_numbers`."""
        raise NotImplementedError  # a single process pulses all tiles

    def reading(self, array: object, *, backward: bool = False) -> AbstractContextManager[None]:
        """Has the weights of an array whole for a read in the block."""
        del array, backward
        return _WHOLE

    def gathered(self, arrays: Sequence[object] = ()) -> AbstractContextManager[None]:
        """Has the weights of these arrays, or of all, in this process in the block."""
        del arrays
        return _WHOLE

    @property
    def saves(self) -> bool:
        """Whether this process writes files that processes save together."""
        return True

    def saved(self) -> None:
        """Runs after files were saved by processes together."""

    def require_gathered(self, array: Any) -> None:  # noqa: ANN401 - an array of tiles
        """Raises StateError unless this process has the weights of an array."""

    def replaced(self, array: object) -> None:
        """Runs after an array got new tiles."""

    def agree_on_step(self, updated: Sequence[object]) -> None:
        """Raises RuntimeError if processes are about to update other layers than these arrays."""

    def stepped(self) -> None:
        """Runs after each step of an optimiser."""


SINGLE_PROCESS = SingleProcess()
