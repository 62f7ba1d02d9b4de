"""The arrays that a tile is made of, by name."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from pulsora import _core
    from pulsora.config import TileConfig
    from pulsora.tile import Tile

    Matrix: TypeAlias = NDArray[np.float32]

Array: TypeAlias = Any
"""A NumPy array, or anything with `__dlpack__`."""

__all__ = [
    "Array",
    "Arrays",
    "Matrix",
    "on_host",
    "read_only",
    "warn_after_write",
    "warn_of_clipping",
]


def read_only(weights: Matrix) -> Matrix:
    """The array, which can no longer be written to: writing to a copy would not reach the tile."""
    weights.flags.writeable = False
    return weights


def on_host(weights: Array) -> Matrix | None:
    """An array that a tile has taken, as one of NumPy; None if its owner hands it out only once."""
    host = weights.cpu() if hasattr(weights, "cpu") else weights
    if isinstance(host, np.ndarray):
        return np.asarray(host)
    try:
        shared: Matrix = np.from_dlpack(host)  # type: ignore[assignment] # of any type
    except Exception:  # noqa: BLE001 - whatever an owner raises who was asked before
        return None
    return shared


def warn_after_write(tile: Tile, weights: Array) -> None:
    """Warns if cells confined more than 1 % of what was written to a tile, unless memory is too short to find out."""
    with contextlib.suppress(MemoryError):  # the write has been made, so nothing may fail any more
        warn_of_clipping(tile.config, on_host(weights), tile.weights, stacklevel=4)


def warn_of_clipping(
    config: TileConfig,
    wanted: Matrix | None,
    written: Matrix,
    stacklevel: int = 3,
    remedy: str | None = None,
    share: float = 0.01,
) -> None:
    """Warns if cells confined more than that share of the weights that were written, unless those are no longer known."""
    if wanted is None:
        return
    written_to = next(iter(config.devices().values()), None)
    if written_to is not None and written_to.write_noise_std > 0.0:
        return  # what is read differs from what was written anyway
    # Confined weights are smaller than wanted ones; the noise of an adapter's write is not meant.
    largest = float(np.abs(wanted).max(initial=0.0))
    count = int(np.count_nonzero(np.abs(wanted) - np.abs(written) > 1e-3 * largest))
    # Where bounds spread, a few cells have narrow ones; that is how the device is.
    if count > share * wanted.size:
        warnings.warn(
            f"{count} of {wanted.size} weights (up to {largest:.3g}) lie "
            "outside the bounds of their cells and were confined to them; "
            + (remedy or "choose a device with a larger w_max or scale the weights down"),
            stacklevel=stacklevel,
        )


class Arrays(Mapping[str, "Matrix"]):
    """The weights of each array of a tile: `tile.arrays["visible"]` is a copy of them.

    The copy cannot be written to. Setting an entry writes digitally, each cell within its bounds, and leaves the other arrays as they are. The names
    are those of the configuration's kind, in the order of the core: "visible" is the array to which `tile.weights` are
    written; an adapter adds "fast_a" and "fast_b"; a tile without cells (IdealConfig) has none.

    Raises:
        KeyError: If the tile has no array of that name.
        InputError: On setting a wrong shape, or values that are not finite.
    """

    def __init__(self, core: _core.Tile) -> None:
        self._core = core
        self._names = tuple(core.arrays())

    def __getitem__(self, name: str) -> Matrix:
        self._require(name)
        return read_only(self._core.get_array(name))

    def __setitem__(self, name: str, weights: Array) -> None:
        self._require(name)
        self._core.set_array(name, weights)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"Arrays({', '.join(self._names)})"

    def _require(self, name: str) -> None:
        if name not in self._names:
            known = ", ".join(self._names) or "none"
            raise KeyError(f"this tile has no array {name!r}; it has {known}")
