"""Replayed reads, which are made of the tiles of a layer one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pulsora.nn.tiles.tile_read import for_tile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from torch import Tensor

    from pulsora.tile import Adapter, Tile
    from pulsora.tile.arrays import Array

__all__ = ["adapter_in", "replayed"]


def replayed(
    places: Sequence[tuple[Tile, int, int]], numbers: Sequence[int]
) -> Callable[..., None]:
    """Returns a `forward` that repeats earlier reads of tiles, one mini-batch a call.

    Counters of the tiles do not change.

    Args:
        places: A tile, its first output and its first input, for each tile.
        numbers: The number of the first sample in each tile.
    """
    reads = [
        (
            tile._core.forward_again,  # noqa: SLF001 - of this package
            slice(col, col + tile.x_size),
            slice(row, row + tile.d_size),
        )
        for tile, row, col in places
    ]
    passed = 0

    def forward(x: Array, out: Array, *, first: int, of: int, **_: Any) -> None:
        nonlocal passed
        begun = passed + first
        passed += of
        parts = [{"first_sample": number + begun, "of": of} for number in numbers]
        _add_up(reads, x, out, parts)

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
    parts: Sequence[Mapping[str, Any]],
) -> None:
    """Makes reads of columns of `given`, and adds their results to columns of `out`.

    `parts` are the options of each read.
    """
    if len(reads) == 1:
        reads[0][0](given, out, **parts[0])
        return
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
