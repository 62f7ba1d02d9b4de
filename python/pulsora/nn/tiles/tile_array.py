"""The weight matrix of an analog layer on one or more tiles, with torch tensors."""

from __future__ import annotations

import contextlib
import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pulsora import _core
from pulsora._internal.checks import is_whole
from pulsora._internal.transforms import in_transform
from pulsora.nn.tiles.batch_shard import SINGLE_PROCESS, BatchShard
from pulsora.nn.tiles.checkpointing import is_evaluation, repeated_read, repeats
from pulsora.nn.tiles.factor_pairs import TileSamples, concatenated
from pulsora.nn.tiles.layer_names import named_errors
from pulsora.nn.tiles.partition import configs_of_columns, even_slices, tiles_of_layer
from pulsora.nn.tiles.patches import Patches
from pulsora.nn.tiles.separate_tiles import replayed
from pulsora.nn.tiles.stateful_array import StatefulArray
from pulsora.nn.tiles.tile_read import ReadPosition, as_taken, read
from pulsora.nn.tiles.weight_scaling import require_finite_weights, require_scales
from pulsora.tile import Tile
from pulsora.tile.clipping import confined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from pulsora.config import TileConfig
    from pulsora.nn.tiles.batch_shard import SingleProcess
    from pulsora.nn.tiles.factor_pairs import Pair
    from pulsora.nn.tiles.weight_scaling import WeightScaling
    from pulsora.tile.clipping import Confined

__all__ = ["TileArray"]


class TileArray(StatefulArray):
    """A matrix [out_features, in_features] spread over tiles; sums over tiles are digital.

    With groups the matrix is block-diagonal, as the weights of a convolution with groups: each
    group of rows has its own tiles and its own inputs, so that x has groups * in_features columns.
    Only the blocks are stored, one below the other.

    With `scaling`, cells hold the weights divided by scales, which are chosen from the weights when
    these are written. Outputs are multiplied by the scales, and updates divided, so that the
    weights change as without scaling.

    Args:
        out_features: Number of rows of all groups together, the d-lines.
        in_features: Number of columns of one group, the x-lines.
        config: Configuration of every tile. If its adapter spans the layer, each group is one tile,
            and the limits below apply to the blocks in which it is read.
        seed: Seed of all random numbers.
        tile_id: Number of the first tile; the others are numbered from there. Arrays that share a
            seed need separate ranges of numbers.
        max_input_size: Largest number of columns of one tile; 0 is no limit.
        max_output_size: Largest number of rows of one tile; 0 is no limit.
        device: Device of the tiles, 'cpu' or 'cuda:<number>'.
        threads: CPU threads per tile; None takes all that the process may run on.
        groups: Number of blocks, a divisor of out_features.
        scaling: How weights are scaled before they are written to the cells; None for no scaling.
        has_bias: Whether the last column of the matrix is a bias; the option `perfect_bias` of a
            device acts in that column alone.

    Attributes:
        device: Device of the tiles.
        tile_config: The configuration of the tiles, with `perfect_bias` as it was given.
        scales: Factors on the weights in the cells, [1] or [out_features]; None without scaling.
        seen: Called with the inputs [m, groups * in_features] of each read, if not None.
        process_group: The processes that train these weights; a copy of the array has a single
            process.
        changes: Number of changes of the weights, which a backward read compares with its forward.
        was_read: Whether a layer has read the tiles since they were made.
        name: The name of the layer in its model; empty if it is not known.
        layer_type: The class of the layer.

    Raises:
        TypeError: for sizes and limits that are no whole numbers.
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
        groups: int = 1,
        scaling: WeightScaling | None = None,
        has_bias: bool = False,
    ) -> None:
        for name, size in (("out_features", out_features), ("in_features", in_features)):
            if not is_whole(size):
                raise TypeError(f"{name} = {size!r}: give a whole number of lines")
            if size < 1:
                raise ValueError(f"{name} = {size}: a layer needs at least one line")
        limits = {"max_input_size": max_input_size, "max_output_size": max_output_size}
        for name, limit in limits.items():
            if not is_whole(limit):
                raise TypeError(f"{name} = {limit!r}: give a whole number, or 0 for no limit")
            if limit < 0:
                raise ValueError(f"{name} = {limit}: give a tile size, or 0 for no limit")
        self.shape = (out_features, in_features)
        config = config.frozen()
        self.config = config
        self.facts = config.facts
        self.threads = threads
        self.seed = seed
        self.tile_id = tile_id
        self.groups = groups
        self.scaling = scaling
        self.scales: Tensor | None = None
        self.process_group: SingleProcess = SINGLE_PROCESS
        self.changes = 0
        self.was_read = False
        self.seen: Callable[[Tensor], object] | None = None
        self.name = ""
        self.layer_type = "of tiles"
        self._limits = limits
        self.tile_config, largest = tiles_of_layer(config, limits)
        block = out_features // groups
        self.rows = [
            slice(group * block + row.start, group * block + row.stop)
            for group in range(groups)
            for row in even_slices(block, largest["max_output_size"])
        ]
        self.cols = even_slices(in_features, largest["max_input_size"])
        self.has_bias = has_bias
        self.configs = configs_of_columns(self.tile_config, len(self.cols), has_bias=has_bias)
        self.grid = [
            [
                Tile(
                    row.stop - row.start,
                    col.stop - col.start,
                    self.configs[j],
                    seed=seed,
                    tile_id=tile_id + i * len(self.cols) + j,
                    device=device,
                    threads=threads,
                )
                for j, col in enumerate(self.cols)
            ]
            for i, row in enumerate(self.rows)
        ]

    @property
    def grid(self) -> tuple[tuple[Tile, ...], ...]:
        """The tiles, row by row; set a new grid to replace tiles."""
        return self._grid

    @grid.setter
    def grid(self, grid: Sequence[Sequence[Tile]]) -> None:
        places = [
            (tile, row.start, self.lines(i, col).start)
            for i, (row, tiles) in enumerate(zip(self.rows, grid, strict=True))
            for col, tile in zip(self.cols, tiles, strict=True)
        ]
        cores = [(tile._core, *place) for tile, *place in places]  # noqa: SLF001
        self.together = _core.make_tile_grid(cores, self.shape[0], self.groups * self.shape[1])
        self.whole = self.together if len(places) > 1 else places[0][0]
        self.device = torch.device(places[0][0].device)
        self._places = places
        self._grid = tuple(map(tuple, grid))
        self.process_group.replaced(self)

    def move(self, device: torch.device) -> None:
        """Moves the tiles, with their exact state.

        Raises:
            DeviceError: if the tiles cannot be there; nothing has changed then.
            StateError: if other processes have weights of these tiles.
        """
        self.process_group.require_gathered(self)
        self.grid = [[tile.to(str(device)) for tile in tiles] for tiles in self.grid]
        self.scales = None if self.scales is None else self.scales.to(device)

    def set_io(self, **periphery: Any) -> None:
        """Puts another periphery ("forward", "backward", "update") around the same cells.

        Raises:
            ConfigError: if it does not suit the tiles.
            StateError: if other processes have weights of these tiles.
        """
        self.process_group.require_gathered(self)
        self.config = self.config.replace(**periphery).frozen()
        self.tile_config = self.tile_config.replace(**periphery).frozen()
        self.configs = [each.replace(**periphery).frozen() for each in self.configs]
        self.facts = self.config.facts
        self.grid = [[tile.with_io(**periphery) for tile in tiles] for tiles in self.grid]

    def __len__(self) -> int:
        """Number of tiles."""
        return len(self.rows) * len(self.cols)

    def __iter__(self) -> Iterator[Tile]:
        """The tiles, row by row."""
        return (tile for _, _, tile in self.parts())

    def whole_tiles(self) -> list[Tile]:
        """Returns the tiles, row by row; StateError if other processes have weights of them."""
        self.process_group.require_gathered(self)
        return list(self)

    def calibrate(self, pulses: int) -> list[dict[str, float]]:
        """Programs the references of all tiles to symmetric points (`Tile.calibrate`)."""
        tiles = self.whole_tiles()
        self.changes += 1
        return [tile.calibrate(pulses) for tile in tiles]

    def lines(self, row: int, col: slice) -> slice:
        """Returns the columns of x for columns `col` of the block of a row of tiles."""
        start = row * self.groups // len(self.rows) * self.shape[1]
        return slice(start + col.start, start + col.stop)

    def parts(self) -> Iterator[tuple[slice, slice, Tile]]:
        """Yields the rows and the columns of the matrix that each tile holds, and the tile."""
        for row, tiles in zip(self.rows, self.grid, strict=True):
            for col, tile in zip(self.cols, tiles, strict=True):
                yield row, col, tile

    def begin_read(
        self, shape: Sequence[int], steps: int = 1, *, training: bool = True
    ) -> ReadPosition:
        """Begins a read of x [*shape, features], with `steps` concatenated mini-batches.

        If a checkpointed part of a model runs again, its first read is repeated (`replayed_reads`).
        `training` is the mode of the module that reads.
        """
        self.was_read = True
        shard = None if repeats() else self.process_group.shard(shape, steps)
        # In an evaluation, other processes may read other rows, or none.
        evaluation = shard is None or is_evaluation(training=training)
        begun = ReadPosition(shard or BatchShard((math.prod(shape),)), evaluation=evaluation)
        repeated: ReadPosition | None = repeated_read(
            self, lambda: begun._replace(numbers=self.next_samples(evaluation=evaluation))
        )
        return repeated or begun

    def next_samples(self, *, evaluation: bool) -> list[int]:
        """Returns the number of the next sample in each tile."""
        if evaluation:
            return [tile._core.evaluation_sample() for tile in self]  # noqa: SLF001
        return [tile.counters["forward_samples"] for tile in self]

    def forward(self, x: Tensor, position: ReadPosition | None = None) -> Tensor:
        """Reads y [m, out_features] = W x for x [m, groups * in_features] through the periphery.

        `position` is the result of `begin_read`; by default x is a mini-batch.
        """
        position = position or self.begin_read(x.shape[:1])
        numbers = position.numbers
        by = self.whole.forward if numbers is None else replayed(self._places, numbers)
        with named_errors(self), self.process_group.reading(self):
            y = read(by, x.detach().contiguous(), self.shape[0], position)
        return y if self.scales is None else y * self.scales

    def backward(
        self,
        d: Tensor,
        position: ReadPosition | None = None,
        *,
        is_temporary: bool = False,
        takes_infinite: bool = False,
    ) -> Tensor:
        """Reads dx [m, groups * in_features] = W^T d for d [m, out_features] through the periphery.

        `position` is the position of the forward read. `is_temporary` is for `read`. Values of d
        that are not finite are errors, on a GPU of a later call, or with `takes_infinite` make
        their rows NaN.
        """
        position = position or ReadPosition(BatchShard((len(d),)))
        d = d if self.scales is None else d * self.scales
        columns = self.groups * self.shape[1]
        lines = d.detach().contiguous()
        back = functools.partial(self.whole.backward, takes_infinite=takes_infinite)
        with self.process_group.reading(self, backward=True):
            return read(back, lines, columns, position, is_temporary=is_temporary)

    def prepared(self, pairs: Sequence[Pair]) -> list[TileSamples]:
        """Prepares pairs (x, d) for an update; pairs of few samples are concatenated."""
        made = []
        for x, d, _, gate in concatenated(pairs):
            back = d if self.scales is None else d / self.scales
            inputs = x if isinstance(x, Patches) else x.contiguous()
            made.append(TileSamples(inputs, back.contiguous(), gate))
        return made

    def get_weights(self) -> Tensor:
        """Returns a copy of the weights [out_features, in_features] that a perfect read sees.

        Raises:
            StateError: if the weights are still to come (`awaits_weights`), or other processes have
                them.
        """
        self.require_weights()
        self.process_group.require_gathered(self)
        if self.device.type == "cpu" or in_transform():  # where a new tensor has no memory
            values = np.empty(self.shape, np.float32)
            for row, col, tile in self.parts():
                values[row, col] = tile._core.get_weights()  # noqa: SLF001 - not read-only
            weights = torch.from_numpy(values).to(self.device)
        else:
            weights = torch.empty(self.shape, device=self.device)
            with _current(self.device):
                for row, col, tile in self.parts():
                    tile._core.get_weights(weights[row, col])  # noqa: SLF001 - by the GPU alone
        return weights if self.scales is None else weights * self.scales[:, None]

    def set_weights(self, weights: Tensor, scales: Tensor | None = None) -> None:
        """Writes weights [out_features, in_features] digitally, within the bounds of their cells.

        `scales` ([1] or [out_features]) are the factors on the weights in the cells; by default,
        `scaling` chooses them anew.

        Raises:
            ValueError: for another shape, and weights or scales that are not finite; nothing has
                changed then.
            StateError: if other processes have weights of these tiles.
        """
        matrix, scales = self._in_cells(weights, scales)
        self.scales = scales
        self.changes += 1
        with _current(self.device):
            for row, col, tile in self.parts():
                tile._core.set_weights(as_taken(matrix[row, col]))  # noqa: SLF001 - no warning
        self.awaits_weights = False

    def confined(self, weights: Tensor) -> list[Confined]:
        """Returns for each tile which of the weights `set_weights` would confine to bounds."""
        matrix, _ = self._in_cells(weights, None)
        return [
            confined(tile._core, matrix[row, col].numpy(force=True))  # noqa: SLF001
            for row, col, tile in self.parts()
        ]

    def loses_much(self, weights: Tensor) -> bool:
        """Whether cells differ so much from weights that were written that a warning may be due."""
        off, wanted = self.get_weights() - weights.to(self.device), weights.to(self.device)
        if self.scales is not None:
            off, wanted = off / self.scales[:, None], wanted / self.scales[:, None]
        return float(off.square().sum()) > 0.005 * float(wanted.square().sum())

    def _in_cells(self, weights: Tensor, scales: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Returns checked weights as they go to the cells, and scales, on the tiles' device."""
        self.process_group.require_gathered(self)
        if tuple(weights.shape) != self.shape:
            raise ValueError(
                f"weights have shape {list(weights.shape)}; expected {list(self.shape)}"
            )
        # Scales follow from the weights, and are plain tensors whatever class the weights have.
        wanted = weights.detach().to(self.device).float().contiguous().as_subclass(torch.Tensor)
        require_finite_weights(wanted, "every weight must be finite")
        if scales is None and self.scaling is not None:
            scales = self.scaling.scales(wanted)
        if scales is not None:
            scales = require_scales(scales.detach().to(self.device).float(), self.shape[0])
            wanted = wanted / scales[:, None]
            require_finite_weights(wanted, "divided by its scale: give a larger one")
        return wanted, scales


def _current(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Returns a block in which a GPU is torch's current one, as its exports of memory require."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
