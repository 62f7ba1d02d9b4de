"""Sharded updates: each process makes the pulses of some tiles of a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import distributed as dist

from pulsora import _core

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from pulsora.nn.tiles.tile_array import TileArray

__all__ = ["LeastRows", "ShardedUpdate", "rows_to_shard"]

_CELLS = 1 << 17
_ROWS = 256
"""Cells of a layer, and rows, above which pulses outlast messages (docs/howto/distributed.md)."""


class LeastRows(NamedTuple):
    """The least numbers of rows for which processes share pulses; None for never.

    Attributes:
        plain: In plain steps, whose messages pass through the host.
        recorded: In recorded steps.
    """

    plain: int | None
    recorded: int | None


def rows_to_shard(array: TileArray, updates: str) -> LeastRows:
    """Returns the least numbers of rows for which processes share the pulses of a layer.

    Args:
        array: The tiles of the layer.
        updates: 'all' for never, 'shared' for always, 'auto' where pulses take longer than
            messages. That excludes weights in floating point, which change by one product, and in
            plain steps layers with adapters, whose visible cells change only at transfers.
    """
    if len(array) == 1 or updates == "all" or array.facts.digital_weight:
        return LeastRows(None, None)
    if updates == "shared":
        return LeastRows(0, 0)
    is_large = array.shape[0] * array.shape[1] >= _CELLS
    return LeastRows(
        _ROWS if is_large and array.facts.pulses_written else None,
        _ROWS if is_large and array.facts.written else None,
    )


class ShardedUpdate:
    """Assignment of the tiles of an array to processes, and the exchange of their changes.

    Args:
        array: More than one tile.
        size: Number of processes.
        process: The number of this process.
        least: Least numbers of rows for which pulses are shared.

    Attributes:
        least: Least numbers of rows for which pulses are shared.
        tiles: Numbers of the tiles of each process.
        sizes: Numbers of floats in the tensors that updates change, for each process.
    """

    def __init__(self, array: TileArray, size: int, process: int, least: LeastRows) -> None:
        self._array = array
        self._process = process
        self.least = least
        self._message = torch.empty(0)
        self._everyone = torch.empty(0, 0)
        self.tiles = _shares([tile.d_size * tile.x_size for tile in array], size)
        self.sizes = [self._whole().changes_size(tiles, numbers=False) for tiles in self.tiles]

    def compute_other_cells(self) -> None:
        """Frees the cells of tiles that other processes pulse."""
        for process, tiles in enumerate(self.tiles):
            if process != self._process:
                self._whole().compute_cells(tiles)

    def exchange(self, group: dist.ProcessGroup | None) -> Callable[[], None]:
        """Sends changes of this process's tiles; the returned function receives all others."""
        whole, mine = self._whole(), self._process
        sizes = [whole.changes_size(tiles) for tiles in self.tiles]
        shape, device = (len(sizes), max(sizes)), self._array.device
        if self._everyone.shape != shape or self._everyone.device != device:
            # Kept between steps, because allocating memory would take as long as a message.
            self._message = torch.zeros(shape[1], device=device)
            self._everyone = torch.zeros(shape, device=device)
        whole.pack_changes(self.tiles[mine], self._message[: sizes[mine]])
        rows = list(self._everyone)
        work = dist.all_gather(rows, self._message, group=group, async_op=True)

        def receive() -> None:
            work.wait()
            for process, (tiles, size, row) in enumerate(zip(self.tiles, sizes, rows, strict=True)):
                if process != mine and tiles:
                    self._whole().unpack_changes(tiles, row[:size])

        return receive

    # For recorded steps

    def free_messages(self) -> None:
        """Frees the memory of messages of plain steps."""
        self._message = torch.empty(0)
        self._everyone = torch.empty(0, 0)

    def pack(self, message: Tensor) -> None:
        """Writes the tensors that updates have changed in this process's tiles."""
        if mine := self.tiles[self._process]:
            self._whole().pack_changes(mine, message, numbers=False)

    def unpack(self, process: int, message: Tensor) -> None:
        """Reads what `pack` wrote in another process."""
        if process != self._process and (tiles := self.tiles[process]):
            self._whole().unpack_changes(tiles, message, numbers=False)

    def numbers(self) -> list[int]:
        """Returns the numbers of this process's tiles that the host keeps."""
        return self._whole().changed_numbers(self.tiles[self._process])

    def restore(self, process: int, numbers: Sequence[int]) -> None:
        """Takes over the numbers of another process."""
        self._whole().restore_numbers(self.tiles[process], numbers)

    def _whole(self) -> _core.TileGrid:
        whole = self._array.whole
        assert isinstance(whole, _core.TileGrid)  # noqa: S101 - there is more than one tile
        return whole


def _shares(work: list[int], count: int) -> list[list[int]]:
    """Splits work into about equal shares: each piece, largest first, to the smallest share."""
    shares: list[list[int]] = [[] for _ in range(count)]
    loads = [0] * count
    for piece in sorted(range(len(work)), key=lambda i: -work[i]):
        least = loads.index(min(loads))
        shares[least].append(piece)
        loads[least] += work[piece]
    return [sorted(share) for share in shares]
