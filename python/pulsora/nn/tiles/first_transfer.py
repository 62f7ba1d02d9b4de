"""Adapters that were trained and have not been transferred, and a warning where they are saved."""

from __future__ import annotations

import contextlib
import warnings
from contextvars import ContextVar
from typing import TYPE_CHECKING

from pulsora.nn.tiles.layer_names import described

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pulsora.nn.tiles.tile_array import TileArray
    from pulsora.tile import Tile

__all__ = ["saves_quietly", "untransferred", "warn_of_early_save"]

_told = False  # whether this process has warned
_is_quiet: ContextVar[bool] = ContextVar("_is_quiet", default=False)


@contextlib.contextmanager
def saves_quietly() -> Iterator[None]:
    """Leaves out the warning of saves, for a caller that warns at the end of a training."""
    token = _is_quiet.set(True)
    try:
        yield
    finally:
        _is_quiet.reset(token)


def untransferred(arrays: Iterable[TileArray]) -> Tile | None:
    """Returns a tile whose adapter has been trained, if no adapter of the arrays was transferred.

    Tiles that make no transfers on purpose (`transfer_every` = 0) do not count.
    """
    tiles = [
        tile
        for array in arrays
        if getattr(array.config, "transfer_every", 0) != 0
        for tile in array
        if tile.adapter is not None and tile.counters["mini_batches"] > 0
    ]
    if not tiles or any(tile.statistics()["transfers"] > 0 for tile in tiles):
        return None
    return tiles[0]


def warn_of_early_save(array: TileArray, stacklevel: int) -> None:
    """Warns if adapters are saved that were trained and not yet transferred.

    Once in a process, because a checkpoint in the middle of a training is saved early on purpose.
    """
    global _told  # noqa: PLW0603 - once in a process
    if _told or _is_quiet.get():
        return
    tile = untransferred([array])
    if tile is None:
        return
    _told = True
    warnings.warn(
        f"{described(array)} is saved before its first transfer: there were "
        f"{tile.counters['mini_batches']} mini-batches, and transfer_every = "
        f"{array.config.transfer_every}. "  # type: ignore[attr-defined]
        "Its visible array still has the weights of the beginning. If the training ends here, the "
        "device of this array has no part in the result: train for longer, give a smaller "
        "transfer_every (0 for no transfers on purpose), or write the adapter into it with "
        "pulsora.merge(model). This is said once in a process",
        stacklevel=stacklevel + 1,
    )
