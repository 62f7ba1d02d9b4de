"""Tiles of a layer made from saved tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pulsora.config import InferenceConfig
from pulsora.state import StateError, from_tensors, to_tensors
from pulsora.tile import Tile

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from pulsora.config import TileConfig
    from pulsora.state import State

__all__ = ["CALIBRATED", "SavedTile", "restored", "saved_tile"]


_READS = ("forward", "backward")

_INTEGERS_SINCE = 4
_PROGRAMMED_INTEGERS_SINCE = 5
"""Versions of states since which weight_bits="auto" means integers: where reads can have them, and
in reads of programmed arrays."""


CALIBRATED = ("noise_management", "nm_thres", "bound_management", "out_bound")
"""Settings of a read that `pulsora.inference.calibrate` and `calibrate_outputs` find from data."""


def require_no_module(name: str) -> None:
    """Raises RuntimeError for attributes of modules, to which tools load tensor by tensor."""
    if name in {"_parameters", "_buffers"}:
        raise RuntimeError(
            "the state of tiles is not loaded tensor by tensor (as accelerate's functions for "
            "large models do); load it by model.load_state_dict(state)"
        )


class SavedTile:
    """The tensors of a tile's state as attributes; a name with a dot is one attribute of another.

    Args:
        tensors: The tensors by their names, or the ends of their names.
    """

    def __init__(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        self._tensors = tensors

    def __getattr__(self, name: str) -> Tensor | SavedTile:
        require_no_module(name)
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._tensors:
            return torch.from_numpy(self._tensors[name])
        inside = {
            rest: array
            for full, array in self._tensors.items()
            for start, dot, rest in [full.partition(".")]
            if dot and start == name
        }
        if not inside:
            raise AttributeError(f"the state of this tile has no tensor {name!r}")
        return SavedTile(inside)


def saved_tile(grid: Sequence[Sequence[Tile]], name: str) -> SavedTile:
    """Returns the state of tile i_j of a grid, whose name is `name`.

    torch.distributed.checkpoint.state_dict follows the names of a state_dict through a model.

    Raises:
        AttributeError: if there is no such tile.
    """
    i, _, j = name.partition("_")
    rows, cols = len(grid), len(grid[0])
    if i.isdecimal() and j.isdecimal() and int(i) < rows and int(j) < cols:
        return SavedTile(to_tensors(grid[int(i)][int(j)].state()))
    require_no_module(name)
    raise AttributeError(f"'TileArray' object has no attribute {name!r}")


def restored(
    tile: Tile,
    prefix: str,
    tensors: Mapping[str, Tensor],
    configs: Collection[TileConfig],
    threads: int | None,
) -> Tile:
    """Makes a tile like `tile`, in the state of the tensors with this prefix.

    The tile of a programmed array has the ranges of converters that were calibrated before it was
    saved.

    Raises:
        StateError: if the state is damaged, of another size, or of none of the configurations.
    """
    arrays = {
        name.removeprefix(prefix): _array(name, tensor)
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
    state = from_tensors(arrays)
    made = Tile.from_state(state, device=tile.device, threads=threads)
    made.gpu_products = tile.gpu_products
    if (made.d_size, made.x_size) != (tile.d_size, tile.x_size):
        raise StateError(
            f"tile '{prefix}' was saved with size [{made.d_size}, {made.x_size}], but here it has "
            f"[{tile.d_size}, {tile.x_size}]"
        )
    if made.config not in configs:
        programmed = made.config.kind == "inference"
        since = _PROGRAMMED_INTEGERS_SINCE if programmed else _INTEGERS_SINCE
        older = state.values["version"] < since
        for config in configs:
            if not older and _compared(_calibrated(config, made.config), older) == _compared(
                made.config, older
            ):
                return made
            if _compared(config, older) == _compared(made.config, older):
                # Reads of an older state go on as this layer makes them.
                reads = {name: getattr(config, name, None) for name in _READS}
                state = made.with_io(**reads).state()
                state.values["config"] = config.to_dict()
                return restored(tile, "", _tensors(state), configs, threads)
        raise StateError(
            f"tile '{prefix.rstrip('.')}' was saved with another configuration: {made.config!r}; "
            f"this layer has {next(iter(configs))!r}. Make the model with the saved configuration, "
            "or take weights alone, by get_weights() and set_weights()"
        )
    return made


def _calibrated(config: TileConfig, saved: TileConfig) -> TileConfig:
    """Returns the configuration of a programmed array with the calibrated ranges of a saved one."""
    if not (isinstance(config, InferenceConfig) and isinstance(saved, InferenceConfig)):
        return config
    own, theirs = config.forward, saved.forward
    # Either may be calibrated: a state of before is loaded into a model that is.
    is_calibrated = "constant" in {own.noise_management, theirs.noise_management} or (
        own.noise_management == theirs.noise_management
    )
    is_calibrated &= "none" in {own.bound_management, theirs.bound_management} or (
        own.bound_management == theirs.bound_management
    )
    found = {name: getattr(theirs, name) for name in CALIBRATED if is_calibrated}
    return config.replace(forward=own.replace(**found))


def _compared(config: TileConfig, older: bool) -> dict[str, Any]:
    """Returns the settings that a state and a layer must have in common.

    In an older state, reads in floating point had weight_bits = "auto".
    """
    settings: dict[str, Any] = _without_storage(config.to_dict())
    if older:
        for read in (settings[name] for name in _READS if name in settings):
            if read["weight_bits"] == "auto":
                read["weight_bits"] = 32
    return settings


def _without_storage(settings: Any) -> Any:  # noqa: ANN401 - any value of a configuration
    """Returns settings without those that change no bit: where devices have the cells."""
    if isinstance(settings, list):
        return [_without_storage(each) for each in settings]
    if not isinstance(settings, dict):
        return settings
    left_out = {"cells"} if "model" in settings else set()
    return {name: _without_storage(each) for name, each in settings.items() if name not in left_out}


def _tensors(state: State) -> dict[str, Tensor]:
    """Returns the tensors of a state that was changed."""
    arrays = to_tensors(state.signed())
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def _array(name: str, tensor: Tensor) -> NDArray[Any]:
    """Converts a tensor of a state for a tile; StateError for other kinds, such as sparse."""
    try:
        return np.asarray(tensor.detach().cpu().numpy())
    except (AttributeError, NotImplementedError, RuntimeError, TypeError) as error:
        raise StateError(f"{name!r} is no tensor of a tile's state ({error})") from None
