"""The arrays that a tile is made of, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from pulsora import _core

    Matrix: TypeAlias = NDArray[np.float32]

Array: TypeAlias = Any
"""A NumPy array, or anything with `__dlpack__`."""

__all__ = ["Array", "Arrays", "Matrix", "read_only"]


def read_only(weights: Matrix) -> Matrix:
    """Makes the array read-only, because writing to a copy would not reach the tile."""
    weights.flags.writeable = False
    return weights


class Arrays(Mapping[str, "Matrix"]):
    """The weights of each array of a tile: `tile.arrays["visible"]` is a copy of them.

    The copy cannot be written to. Setting an entry writes digitally, each cell within its bounds,
    and leaves the other arrays as they are. The names are those of the configuration's kind, in the
    order of the core: "visible" is the array to which `tile.weights` are written; an adapter adds
    "fast_a" and "fast_b"; a tile without cells (IdealConfig) has none.

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
