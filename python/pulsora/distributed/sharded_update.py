"""Sharded updates: each process makes the pulses of some tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import distributed as dist

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from pulsora.nn.tiles.tile_array import TileArray

__all__ = ["LeastRows", "ShardedUpdate", "may_share", "shares"]

_CELLS = 1 << 17
"""Cells of a layer below which messages outlast pulses (docs/howto/distributed.md)."""
_BALANCED = 1.1
"""Largest load of a process, relative to the mean, where layers are not divided."""


class LeastRows(NamedTuple):
    """The least numbers of rows for which processes share pulses.

    Attributes:
        plain: In plain steps, whose messages pass through the host.
        recorded: In recorded steps.
    """

    plain: int = 0
    recorded: int = 0


def may_share(array: TileArray, updates: str) -> bool:
    """Returns whether processes may share the pulses of a layer.

    Args:
        array: The tiles of the layer.
        updates: 'all' for never, 'shared' for always, 'auto' for layers so large that their pulses
            may take longer than messages. That excludes weights in floating point, which change by
            one product.
    """
    if updates == "all" or array.facts.digital_weight:
        return False
    is_large = array.shape[0] * array.shape[1] >= _CELLS and bool(array.facts.written)
    return updates == "shared" or is_large


def shares(arrays: Sequence[TileArray], size: int) -> list[list[list[int]]]:
    """Returns the numbers of the tiles that each process pulses, in each layer.

    Processes get whole layers, where that gives each about as many cells: then a process has the
    launches of its layers alone. Otherwise layers are divided.
    """
    cells = [[tile.d_size * tile.x_size for tile in array] for array in arrays]
    total = sum(map(sum, cells))
    owners, load = _spread([sum(tiles) for tiles in cells], size)
    if load * size <= _BALANCED * total:
        ofs = [[owner] * len(tiles) for owner, tiles in zip(owners, cells, strict=True)]
    else:
        owners, _ = _spread([count for tiles in cells for count in tiles], size)
        each = iter(owners)
        ofs = [[next(each) for _ in tiles] for tiles in cells]
    return [
        [[i for i, owner in enumerate(of) if owner == process] for process in range(size)]
        for of in ofs
    ]


class ShardedUpdate:
    """The tiles of a layer that each process pulses, and the exchange of their changes.

    Args:
        array: The tiles.
        tiles: Numbers of the tiles of each process.
        process: The number of this process.

    Attributes:
        array: The tiles.
        tiles: Numbers of the tiles of each process.
        least: Least numbers of rows for which pulses are shared.
        sizes: Numbers of floats in the tensors that updates change, for each process.
    """

    def __init__(self, array: TileArray, tiles: list[list[int]], process: int) -> None:
        self.array = array
        self._process = process
        self.tiles = tiles
        self.least = LeastRows()
        self._owners = [owner for owner, own in enumerate(tiles) if own]
        self._message = torch.empty(0)
        self._rows: list[Tensor] = []
        self.sizes = [array.together.changes_size(own, numbers=False) for own in tiles]

    def compute_other_cells(self) -> None:
        """Frees the cells of tiles that other processes pulse."""
        for process, tiles in enumerate(self.tiles):
            if process != self._process:
                self.array.together.compute_cells(tiles)

    def release_other_weights(self) -> None:
        """Frees the weights of tiles that other processes pulse, until `gather` brings them."""
        for process, tiles in enumerate(self.tiles):
            if process != self._process and tiles:
                self.array.together.release_weights(tiles)

    def gather(
        self, group: dist.ProcessGroup | None
    ) -> tuple[Callable[[], object], Callable[[], None]]:
        """Begins to send weights of this process's tiles to all others.

        Returns:
            A function that waits for the weights of the others, and one that puts them into tiles.
        """
        message, rows = self._messages(max(self.sizes))
        self.pack(message[: self.sizes[self._process]])
        work = self._send(message, rows, group)

        def put() -> None:
            for process in self._owners:
                self.unpack(process, rows[process][: self.sizes[process]])

        return work.wait, put

    def exchange(self, group: dist.ProcessGroup | None) -> Callable[[], None]:
        """Sends changes of this process's tiles; the returned function receives all others."""
        whole, mine = self.array.together, self._process
        sizes = [whole.changes_size(tiles) for tiles in self.tiles]
        kept = self._message
        if not self._rows or len(kept) != max(sizes) or kept.device != self.array.device:
            # Kept between steps, because allocating memory would take as long as a message.
            self._message, self._rows = self._messages(max(sizes))
        rows = self._rows
        if self.tiles[mine]:
            whole.pack_changes(self.tiles[mine], self._message[: sizes[mine]])
        work = self._send(self._message, rows, group)

        def receive() -> None:
            work.wait()
            for process in self._owners:
                if process != mine:
                    whole = self.array.together
                    whole.unpack_changes(self.tiles[process], rows[process][: sizes[process]])

        return receive

    def _messages(self, size: int) -> tuple[Tensor, list[Tensor]]:
        """Returns memory for this process's message, and for the messages of all processes."""
        device = self.array.device
        message = torch.empty(size, device=device)
        if len(self._owners) > 1:
            return message, list(torch.empty(len(self.tiles), size, device=device))
        return message, [message] * len(self.tiles)  # the only owner's

    def _send(
        self, message: Tensor, rows: list[Tensor], group: dist.ProcessGroup | None
    ) -> dist.Work:
        """Begins to send the messages of all owners of tiles to all processes."""
        work: dist.Work
        if len(self._owners) > 1:
            work = dist.all_gather(rows, message, group=group, async_op=True)
        else:
            work = dist.broadcast(message, group=group, group_src=self._owners[0], async_op=True)
        return work

    # For recorded steps and sharded weights

    def free_messages(self) -> None:
        """Frees the memory of messages of plain steps."""
        self._message = torch.empty(0)
        self._rows = []

    def pack(self, message: Tensor) -> None:
        """Writes the tensors that updates have changed in this process's tiles."""
        if mine := self.tiles[self._process]:
            self.array.together.pack_changes(mine, message, numbers=False)

    def unpack(self, process: int, message: Tensor) -> None:
        """Reads what `pack` wrote in another process."""
        if process != self._process and (tiles := self.tiles[process]):
            self.array.together.unpack_changes(tiles, message, numbers=False)

    def numbers(self) -> list[int]:
        """Returns the numbers of this process's tiles that the host keeps."""
        return self.array.together.changed_numbers(self.tiles[self._process])

    def restore(self, process: int, numbers: Sequence[int]) -> None:
        """Takes over the numbers of another process."""
        self.array.together.restore_numbers(self.tiles[process], numbers)


def _spread(work: list[int], size: int) -> tuple[list[int], int]:
    """Gives each piece of work, the largest first, to the process with the least.

    Returns:
        The process of each piece, and the largest sum of a process.
    """
    loads = [0] * size
    owners = [0] * len(work)
    for piece in sorted(range(len(work)), key=lambda i: -work[i]):
        owners[piece] = loads.index(min(loads))
        loads[owners[piece]] += work[piece]
    return owners, max(loads)
