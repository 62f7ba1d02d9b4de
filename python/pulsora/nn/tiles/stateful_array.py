"""The state of the tiles of a layer: as named tensors, in pickles and in copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pulsora.config import InferenceConfig
from pulsora.nn.tiles.layer_names import described
from pulsora.nn.tiles.saved_tiles import restored, saved_tile
from pulsora.nn.tiles.weight_scaling import require_scales
from pulsora.state import StateError, to_tensors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor
    from typing_extensions import Self

    from pulsora.config import TileConfig
    from pulsora.nn.tiles.batch_shard import SingleProcess
    from pulsora.nn.tiles.weight_scaling import WeightScaling
    from pulsora.tile import Tile

__all__ = ["StatefulArray"]


class StatefulArray:
    """The part of `TileArray` that saves, restores and copies tiles.

    Attributes:
        awaits_weights: Whether the tiles were made for a layer on torch's meta device, whose
            weights are still to come.
    """

    awaits_weights: bool = False

    if TYPE_CHECKING:
        shape: tuple[int, int]
        name: str
        layer_type: str
        config: TileConfig
        tile_config: TileConfig
        configs: list[TileConfig]
        rows: list[slice]
        cols: list[slice]
        groups: int
        scales: Tensor | None
        scaling: WeightScaling | None
        changes: int
        seed: int
        tile_id: int
        threads: int | None
        process_group: SingleProcess
        has_bias: bool
        device: torch.device
        _limits: dict[str, int]

        @property
        def grid(self) -> tuple[tuple[Tile, ...], ...]:  # noqa: D102
            ...

        @grid.setter
        def grid(self, grid: Sequence[Sequence[Tile]]) -> None: ...

        def __iter__(self) -> Iterator[Tile]: ...

    def require_weights(self) -> None:
        """Raises StateError if the weights are still to come (`awaits_weights`)."""
        if self.awaits_weights:
            raise StateError(
                f"{described(self)} was converted on torch's meta device, and its weights were "
                "never loaded: call pulsora.load_weights(model, files), or set_weights(weight, "
                "bias) of the layer"
            )

    def state_tensors(self) -> dict[str, Tensor]:
        """Returns the complete state of the tiles and the scales as named tensors (copies).

        Raises:
            StateError: if the weights are still to come, or other processes have them.
        """
        self.require_weights()
        self.process_group.require_gathered(self)
        return self._tensors()

    def _tensors(self) -> dict[str, Tensor]:
        scales = {} if self.scales is None else {"scales": self.scales.cpu().clone()}
        return scales | {
            f"{i}_{j}.{name}": torch.from_numpy(array)
            for i, tiles in enumerate(self.grid)
            for j, tile in enumerate(tiles)
            for name, array in to_tensors(tile.state()).items()
        }

    def __getattr__(self, name: str) -> object:
        """Returns the state of tile i_j, whose tensors are attributes, for tools of torch."""
        return saved_tile(self.grid if name[:1].isdecimal() else ((),), name)

    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restores the tensors of `state_tensors`, seed and scales included.

        Raises:
            StateError: if tensors are missing, or belong to another configuration or size; nothing
                has changed then.
        """
        known = {f"{i}_{j}" for i, tiles in enumerate(self.grid) for j in range(len(tiles))}
        if others := {name.partition(".")[0] for name in tensors} - known - {"scales"}:
            raise StateError(
                f"there are tensors of tiles {sorted(others)}, but {self._sizes_differ()}"
            )
        scales = tensors.get("scales")
        if scales is not None:
            scales = require_scales(scales, self.shape[0]).detach().to(self.device, copy=True)
        self.grid = [
            [self._restored(i, j, tensors) for j in range(len(tiles))]
            for i, tiles in enumerate(self.grid)
        ]
        self._take_ranges(self.grid[0][0].config)
        self.scales = scales
        self.awaits_weights = False
        self.changes += 1
        self.seed, self.tile_id = self.grid[0][0].seed, self.grid[0][0].tile_id

    def _take_ranges(self, config: TileConfig) -> None:
        """Has the calibrated ranges of a tile's reads, which are those of all tiles."""
        own = self.tile_config
        if not (isinstance(config, InferenceConfig) and isinstance(own, InferenceConfig)):
            return
        if (forward := config.forward) != own.forward:
            self.config = self.config.replace(forward=forward).frozen()
            self.tile_config = own.replace(forward=forward).frozen()
            self.configs = [each.replace(forward=forward).frozen() for each in self.configs]

    def _sizes_differ(self) -> str:
        return (
            f"this layer is spread over {len(self.rows)} x {len(self.cols)} tiles; use the sizes "
            "and the max_input_size and max_output_size it was saved with"
        )

    def _restored(self, i: int, j: int, tensors: Mapping[str, Tensor]) -> Tile:
        """Makes tile (i, j) anew, in the state of its tensors."""
        prefix = f"{i}_{j}."
        if not any(name.startswith(prefix) for name in tensors):
            raise StateError(f"there are no tensors '{prefix}*', but {self._sizes_differ()}")
        # Tiles of earlier versions have perfect_bias as it was given, and go on with it.
        configs = (self.configs[j], self.tile_config)
        return restored(self.grid[i][j], prefix, tensors, configs, self.threads)

    def __getstate__(self) -> dict[str, Any]:
        """Returns the arguments and the state, for pickle.

        The state is in NumPy arrays: torch would put tensors into shared memory when processes are
        started, which is gone before they can take it.

        Raises:
            StateError: if the weights are still to come, or other processes have them.
        """
        self.require_weights()
        return self._copied()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Makes a copy of the tiles, which awaits weights as these do."""
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        made.__setstate__(self._copied())
        made.awaits_weights = self.awaits_weights
        return made

    def _copied(self) -> dict[str, Any]:
        self.process_group.require_gathered(self)
        return {
            "arguments": (*self.shape, self.config),
            "options": {
                "seed": self.seed,
                "tile_id": self.tile_id,
                "device": str(self.device),
                "threads": self.threads,
                "groups": self.groups,
                "scaling": self.scaling,
                "has_bias": self.has_bias,
                **self._limits,
            },
            "state": {name: tensor.numpy() for name, tensor in self._tensors().items()},
            "layer": (self.name, self.layer_type),
            "evaluated": [tile._core.evaluated for tile in self],  # noqa: SLF001
        }

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__init__(*saved["arguments"], **saved["options"])  # type: ignore[misc]
        self.load_state_tensors(  # of tensors in earlier versions
            {name: torch.as_tensor(values) for name, values in saved["state"].items()}
        )
        self.name, self.layer_type = saved.get("layer", (self.name, self.layer_type))
        for tile, samples in zip(self, saved.get("evaluated", ()), strict=False):
            tile._core.evaluated = samples  # noqa: SLF001
