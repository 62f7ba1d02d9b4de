"""A weight matrix on one or more tiles, as torch tensors; what the analog layers are made of."""

from __future__ import annotations

import copy
import functools
import itertools
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
import torch

from pulsora.state import StateError, from_tensors, to_tensors
from pulsora.tile import Tile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from torch import Tensor
    from typing_extensions import Self

    from pulsora.config import TileConfig

__all__ = ["AnalogParameter", "TileArray"]


def _slices(size: int, limit: int) -> list[slice]:
    """Splits `size` lines over as few tiles of at most `limit` lines as possible, evenly."""
    count = 1 if limit == 0 else -(-size // limit)
    edges = np.linspace(0, size, count + 1).astype(int).tolist()
    return [slice(start, stop) for start, stop in itertools.pairwise(edges)]


class TileArray:
    """A matrix [out_features, in_features] spread over tiles; sums over tiles are digital.

    It also keeps the pairs (x, d) that forward and backward passes leave behind, until `step`
    turns them into pulses.

    Args:
        out_features: Number of rows , the d-lines.
        in_features: Number of columns , the x-lines.
        config: Configuration of every tile.
        seed: Seed of all random numbers.
        tile_id: Number of the first tile; the others count on from it. Arrays that share a seed
            need ranges of numbers of their own.
        max_input_size: Largest number of columns of one tile; 0 is no limit.
        max_output_size: Largest number of rows of one tile; 0 is no limit.
        device: Where the tiles are, 'cpu' or 'cuda'.
        threads: CPU threads per tile; None takes all that the process may run on.

    Raises:
        ValueError: for a negative limit; a ConfigError if the configuration does not suit a tile.
    """

    def __init__(
        self,
        out_features: int,
        in_features: int,
        config: TileConfig,
        *,
        seed: int,
        tile_id: int = 0,
        max_input_size: int = 0,
        max_output_size: int = 0,
        device: str = "cpu",
        threads: int | None = None,
    ) -> None:
        for name, size in (("out_features", out_features), ("in_features", in_features)):
            if size < 1:
                raise ValueError(f"{name} = {size}: a layer needs at least one line")
        limits = {"max_input_size": max_input_size, "max_output_size": max_output_size}
        for name, limit in limits.items():
            if limit < 0:
                raise ValueError(f"{name} = {limit}: give a tile size, or 0 for no limit")
        self.shape = (out_features, in_features)
        self.config = config
        self.device = device
        self.threads = threads
        self.seed = seed
        self.tile_id = tile_id
        self._limits = limits
        self.rows = _slices(out_features, max_output_size)
        self.cols = _slices(in_features, max_input_size)
        self.grid = [
            [
                Tile(
                    row.stop - row.start,
                    col.stop - col.start,
                    config,
                    seed=seed,
                    tile_id=tile_id + i * len(self.cols) + j,
                    device=device,
                    threads=threads,
                )
                for j, col in enumerate(self.cols)
            ]
            for i, row in enumerate(self.rows)
        ]
        self._stored: list[tuple[Tensor, Tensor]] = []

    def __len__(self) -> int:
        """Number of tiles."""
        return len(self.rows) * len(self.cols)

    def __iter__(self) -> Iterator[Tile]:
        """The tiles, row by row."""
        return (tile for _, _, tile in self._parts())

    def _parts(self) -> Iterator[tuple[slice, slice, Tile]]:
        for row, tiles in zip(self.rows, self.grid, strict=True):
            for col, tile in zip(self.cols, tiles, strict=True):
                yield row, col, tile

    def forward(self, x: Tensor) -> Tensor:
        """y [m, out_features] = W x for x [m, in_features], read by the tiles' periphery."""
        moved = x.to(self.device)
        parts = [
            _total(
                _read(tile.forward, moved[:, col], tile.d_size)
                for col, tile in zip(self.cols, tiles, strict=True)
            )
            for tiles in self.grid
        ]
        return _side_by_side(parts).to(x.device)

    def backward(self, d: Tensor) -> Tensor:
        """dx [m, in_features] = W^T d for d [m, out_features], read by the tiles' periphery."""
        moved = d.to(self.device)
        parts = [
            _total(
                _read(tile.backward, moved[:, row], tile.x_size)
                for row, tile in zip(self.rows, tiles, strict=True)
            )
            for tiles in zip(*self.grid, strict=True)
        ]
        return _side_by_side(parts).to(d.device)

    def remember(self, x: Tensor, d: Tensor) -> None:
        """Keeps x [m, in_features] and d [m, out_features] of a backward pass for the next `step`."""
        self._stored.append((x.detach().to(self.device), d.detach().to(self.device)))

    def discard(self) -> None:
        """Forgets what has been remembered."""
        self._stored.clear()

    def step(self, lr: float) -> None:
        """One mini-batch: W <- W - lr d^T x by pulses for everything remembered, then forgets it.

        Nothing happens, and no mini-batch passes, where nothing has been remembered. On a GPU
        nothing waits: a tile that is given values that are not finite changes no more, and says so
        by an InputError where it is waited for next (weights, state, statistics).

        Raises:
            ValueError: if x or d hold values that are not finite, on the CPU; no tile has changed
                then, and what was remembered is forgotten.
        """
        stored, self._stored = self._stored, []
        if not stored:
            return
        # A tile refuses what is not finite by itself; with several, none may have changed by then.
        if self.device == "cpu" and len(stored) * len(self.rows) * len(self.cols) > 1:
            _require_finite(stored)
        for x, d in stored:
            for row, col, tile in self._parts():
                tile.update(x[:, col].contiguous(), d[:, row].contiguous(), lr, end_of_batch=False)
        for tile in self:
            tile.post_update(lr)

    def get_weights(self) -> Tensor:
        """The weights [out_features, in_features] that a perfect read would see; a copy."""
        weights = torch.empty(self.shape)
        for row, col, tile in self._parts():
            weights[row, col] = torch.as_tensor(tile.weights)
        return weights

    def set_weights(self, weights: Tensor) -> None:
        """Writes weights [out_features, in_features] digitally, within the bounds of their cells.

        Raises:
            ValueError: for another shape.
        """
        if tuple(weights.shape) != self.shape:
            raise ValueError(f"weights have shape {list(weights.shape)}, not {list(self.shape)}")
        for row, col, tile in self._parts():
            tile.weights = weights[row, col].detach().cpu().contiguous().numpy()

    def state_tensors(self) -> dict[str, Tensor]:
        """Everything needed to go on exactly, as named tensors (copies)."""
        return {
            f"{i}_{j}.{name}": torch.from_numpy(array)
            for i, tiles in enumerate(self.grid)
            for j, tile in enumerate(tiles)
            for name, array in to_tensors(tile.state()).items()
        }

    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Takes over what `state_tensors` gave, seed included.

        Raises:
            StateError: if tensors are missing, or belong to another configuration or size; nothing
                has changed then.
        """
        self.grid = [
            [self._restored(tile, f"{i}_{j}.", tensors) for j, tile in enumerate(tiles)]
            for i, tiles in enumerate(self.grid)
        ]
        self.seed, self.tile_id = self.grid[0][0].seed, self.grid[0][0].tile_id
        self.discard()

    def _restored(self, tile: Tile, prefix: str, tensors: Mapping[str, Tensor]) -> Tile:
        """A tile like `tile`, in the state that the tensors with this prefix describe."""
        arrays = {
            name.removeprefix(prefix): tensor.detach().cpu().numpy()
            for name, tensor in tensors.items()
            if name.startswith(prefix)
        }
        if not arrays:
            raise StateError(
                f"there are no tensors '{prefix}*', but this layer is spread over {len(self)} "
                "tiles; use the sizes and the max_input_size and max_output_size it was saved with"
            )
        restored = Tile.from_state(from_tensors(arrays), device=self.device, threads=self.threads)
        restored.gpu_products = tile.gpu_products
        if (restored.d_size, restored.x_size) != (tile.d_size, tile.x_size):
            raise StateError(
                f"tile '{prefix}' was saved with size [{restored.d_size}, {restored.x_size}], but "
                f"here it has [{tile.d_size}, {tile.x_size}]"
            )
        if restored.config != self.config:
            raise StateError(
                f"tile '{prefix}' was saved with another configuration: {restored.config}; "
                f"this layer has {self.config}"
            )
        return restored

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and deepcopy: the arguments, and the state."""
        return {
            "arguments": (*self.shape, self.config),
            "options": {
                "seed": self.seed,
                "tile_id": self.tile_id,
                "device": self.device,
                "threads": self.threads,
                **self._limits,
            },
            "state": self.state_tensors(),
        }

    def __setstate__(self, saved: dict[str, Any]) -> None:
        TileArray.__init__(self, *saved["arguments"], **saved["options"])
        self.load_state_tensors(saved["state"])


class AnalogParameter(torch.nn.Parameter):
    """Stands for weights that live in tiles, among a model's parameters.

    It has the shape of the weights but no values of its own (it is a meta tensor, of no size in
    memory) and never gets a `.grad`. Optimisers of `pulsora.optim` find the tiles through it;
    others pass over it.

    Attributes:
        array: The tiles.
    """

    array: TileArray

    def __new__(cls, array: TileArray, requires_grad: bool = True) -> Self:
        """A meta tensor of the array's shape."""
        parameter = super().__new__(cls, torch.empty(array.shape, device="meta"), requires_grad)
        parameter.array = array
        return parameter

    def __deepcopy__(self, memo: dict[int, Any]) -> AnalogParameter:
        if id(self) not in memo:
            array = copy.deepcopy(self.array, memo)
            memo[id(self)] = AnalogParameter(array, self.requires_grad)
        copied: AnalogParameter = memo[id(self)]
        return copied

    def __reduce_ex__(self, _protocol: SupportsIndex) -> tuple[Any, ...]:
        return AnalogParameter, (self.array, self.requires_grad)

    def __repr__(self) -> str:  # type: ignore[override]
        return f"AnalogParameter(shape={list(self.shape)}, tiles={len(self.array)})"


def _read(read: Callable[[Tensor, Tensor], object], lines: Tensor, outputs: int) -> Tensor:
    """What a tile reads, in memory of torch's own: adopting a tile's costs more than the read."""
    out = lines.new_empty(len(lines), outputs)
    read(lines.detach().contiguous(), out)
    return out


def _total(reads: Iterable[Tensor]) -> Tensor:
    """The sum of what the tiles of one row, or column, have read; one read is not copied."""
    return functools.reduce(torch.add, reads)


def _side_by_side(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=1)


def _require_finite(stored: Sequence[tuple[Tensor, Tensor]]) -> None:
    for name, index in (("activations", 0), ("gradients", 1)):
        if not all(bool(pair[index].isfinite().all()) for pair in stored):
            raise ValueError(
                f"the {name} of an analog layer are not finite (nan or inf); no pulse was "
                "sent. Lower the learning rate or look at the loss"
            )
