"""Reads the tiles of a layer one after another: single tiles and replayed reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pulsora.nn.tiles.tile_read import for_tile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from torch import Tensor

    from pulsora.tile import Adapter, Tile
    from pulsora.tile.arrays import Array

__all__ = ["SeparateTiles", "adapter_in"]


class SeparateTiles:
    """The matrix [outputs, inputs] of tiles, with the reads of `_core.TileGrid`.

    Args:
        places: A tile, its first output and its first input, for each tile.
    """

    def __init__(self, places: Iterable[tuple[Tile, int, int]]) -> None:
        self._places = [
            (tile, slice(row, row + tile.d_size), slice(col, col + tile.x_size))
            for tile, row, col in places
        ]

    def forward(self, x: Array, out: Array, **part: Any) -> None:
        """Reads y = W x into `out`; `part` are the options of `Tile.forward`."""
        reads = [(tile.forward, cols, rows) for tile, rows, cols in self._places]
        _add_up(reads, x, out, part)

    def backward(self, d: Array, out: Array, **part: Any) -> None:
        """Reads dx = W^T d into `out`; `part` are the options of `Tile.backward`."""
        reads = [(tile.backward, rows, cols) for tile, rows, cols in self._places]
        _add_up(reads, d, out, part)

    def replayed(self, numbers: Sequence[int]) -> Callable[..., None]:
        """Returns a `forward` that repeats earlier reads, one mini-batch a call.

        `numbers` are the numbers of the first sample in each tile. Counters of the tiles do not
        change.
        """
        passed = 0

        def forward(x: Array, out: Array, *, first: int, of: int, **_: Any) -> None:
            nonlocal passed
            begun = passed + first
            passed += of
            reads = [
                (tile._core.forward_again, cols, rows)  # noqa: SLF001 - of this package
                for tile, rows, cols in self._places
            ]
            parts = [{"first_sample": number + begun, "of": of} for number in numbers]
            _add_up(reads, x, out, *parts)

        return forward


def adapter_in(tile: Tile) -> Adapter:
    """Returns the adapter of a tile; ValueError if it has none."""
    if tile.adapter is None:
        raise ValueError(
            "gate: the tiles have no adapter whose components it could weigh; use LRTTConfig with "
            "a rank of 1 or more, or pulsora.nn.GatedAdapter with a rank"
        )
    return tile.adapter


def _add_up(
    reads: Sequence[tuple[Callable[..., object], slice, slice]],
    given: Array,
    out: Array,
    *parts: Mapping[str, Any],
) -> None:
    """Makes reads of columns of `given`, and adds their results to columns of `out`.

    `parts` are the options of each read, or of all.
    """
    if len(reads) == 1:
        reads[0][0](given, out, **parts[0])
        return
    parts = parts * len(reads) if len(parts) == 1 else parts
    given, out = torch.as_tensor(given), torch.as_tensor(out)
    lines = _cut(given, [taken for _, taken, _ in reads])
    begun = set()
    for (read, taken, columns), part in zip(reads, parts, strict=True):
        made = out.new_empty(len(given), columns.stop - columns.start)
        read(for_tile(lines[taken.start]), for_tile(made), **part)
        if columns.start in begun:
            out[:, columns] += made
        else:
            out[:, columns] = made
        begun.add(columns.start)


def _cut(lines: Tensor, parts: Iterable[slice]) -> dict[int, Tensor]:
    """Returns contiguous columns of a batch, by the number of the first column."""
    return {part.start: lines[:, part].contiguous() for part in parts}
