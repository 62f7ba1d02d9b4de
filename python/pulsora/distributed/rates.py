"""Times of pulses and of messages, by which processes choose whether to share pulses."""

from __future__ import annotations

import math
import statistics
import time
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import distributed as dist

from pulsora._internal.text_tables import aligned
from pulsora.distributed.sharded_update import LeastRows
from pulsora.nn.tiles.tile_read import as_taken
from pulsora.tile import Tile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from torch import Tensor

    from pulsora.distributed.sharded_update import ShardedUpdate
    from pulsora.nn.tiles.tile_array import TileArray

__all__ = ["Times", "choose_least_rows", "table"]

_LARGEST = 512
"""Largest side of the tile whose pulses are timed."""
_ROWS = (64, 256)
_RATE = 1e-3
_CALLS = 3
_RECORDED = 256
"""Least rows in recorded steps, whose launches cannot be timed outside of a graph."""
_NEVER = 10**9


class Times(NamedTuple):
    """Seconds that updates of a layer take in a plain step, in the slowest process.

    Attributes:
        row: The pulses of a further row of the batch, if one process makes them all.
        message: The messages, if pulses are shared.
    """

    row: float
    message: float

    def least_rows(self, processes: int) -> LeastRows:
        """Returns from how many rows on it is faster to share pulses.

        N processes save (1 - 1 / N) of the time of pulses, which grows with the rows. Messages hold
        what has changed, which is the same for any number of rows.
        """
        saved = max(self.row * (1.0 - 1.0 / processes), 1e-15)
        return LeastRows(min(math.ceil(self.message / saved), _NEVER), _RECORDED)


def choose_least_rows(
    updates: Iterable[ShardedUpdate], group: dist.ProcessGroup | None
) -> dict[int, Times]:
    """Times layers, and sets from how many rows on processes share their pulses.

    Layers with equal tiles are timed once. The slowest process counts, so that all choose alike.
    No state changes.

    Args:
        updates: The layers, on all processes the same and in the same order.
        group: The processes.

    Returns:
        The times by the id of a layer's array.
    """
    known: dict[tuple[object, ...], Times] = {}
    found = {}
    for update in updates:
        array = update.array
        key = repr(array.config.to_dict()), array.shape, len(list(array)), tuple(update.sizes)
        if key not in known:
            own = _row(array), _message(update, group)
            most = torch.tensor(own, dtype=torch.float64, device=array.device)
            dist.all_reduce(most, dist.ReduceOp.MAX, group=group)
            known[key] = Times(*most.tolist())
        found[id(array)] = known[key]
        update.least = known[key].least_rows(len(update.tiles))
    return found


def table(found: Mapping[int, Times], arrays: Mapping[str, TileArray], processes: int) -> str:
    """Returns the times and the choice for each layer, as text."""
    rows = [("layer", "us of a row's pulses", "us of messages", "pulses are shared")]
    for name, array in arrays.items():
        if id(array) not in found:
            rows.append((name, "", "", "never: few cells, or no pulses"))
            continue
        times = found[id(array)]
        least = times.least_rows(processes)
        us, message = (f"{1e6 * each:.3g}" for each in times)
        shared = f"from {least.plain} rows; recorded, from {least.recorded}"
        rows.append((name, us, message, shared))
    return aligned(rows)


def _row(array: TileArray) -> float:
    """Times the pulses of two batches on a tile like those of the layer."""
    largest = max(array, key=lambda tile: tile.d_size * tile.x_size)
    d_size, x_size = min(largest.d_size, _LARGEST), min(largest.x_size, _LARGEST)
    tile = Tile(d_size, x_size, largest.config, seed=1, device=str(array.device))
    generator = torch.Generator().manual_seed(1)
    seconds = []
    for rows in _ROWS:
        x, d = (
            (2.0 * torch.rand(rows, size, generator=generator) - 1.0).to(array.device)
            for size in (x_size, d_size)
        )

        def pulse(x: Tensor = x, d: Tensor = d) -> None:
            tile.update(as_taken(x), as_taken(d), _RATE)

        seconds.append(_seconds(pulse, array.device))
    cells = array.shape[0] * array.shape[1] / (d_size * x_size)
    return max(seconds[1] - seconds[0], 0.0) / (_ROWS[1] - _ROWS[0]) * cells


def _message(update: ShardedUpdate, group: dist.ProcessGroup | None) -> float:
    """Times the exchange of states that are equal."""

    def exchange() -> None:
        update.exchange(group)()

    seconds = _seconds(exchange, update.array.device)
    update.free_messages()
    return seconds


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """Returns the median seconds of a call in a row of calls."""
    work()
    times = []
    for _ in range(3):
        _wait(device)
        begin = time.perf_counter()
        for _ in range(_CALLS):
            work()
        _wait(device)
        times.append((time.perf_counter() - begin) / _CALLS)
    return statistics.median(times)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
