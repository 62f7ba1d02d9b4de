"""Choices, numbers and arrays that the seed of an input decides."""

from __future__ import annotations

import itertools
import sys
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_T = TypeVar("_T")

LARGEST = 3.4028234663852886e38
"""The largest number of single precision."""
EXTREMES = (
    0.0, 1e-45, 1e-40, 1.2e-38, 1e-30, 1e-20, 1e-7, 1.0, 1.0000001, 1e7, 1e20, 1e30, 3e38, LARGEST,
)  # fmt: skip


class Draws:
    """Choices that depend on the seed alone, and notes of what was done with them.

    Python's generator draws single values several times faster than NumPy's, which draws the
    arrays.
    """

    def __init__(self, target: str, seed: int, *, echo: bool = False) -> None:
        self._random = Random(f"{target} {seed}")
        self._arrays: np.random.Generator | None = None
        self._echo = echo
        self.notes: list[tuple[object, ...]] = []

    def note(self, *parts: object) -> None:
        """Remembers a step; a report of a fault ends with the last ones."""
        self.notes.append(parts)
        if self._echo:
            print(describe(parts), file=sys.stderr, flush=True)

    def inner(self, seed: int) -> Draws:
        """Choices that `seed` alone decides, to draw the same more than once; notes are shared."""
        made = Draws("inner", seed, echo=self._echo)
        made.notes = self.notes
        return made

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def pick(self, choices: Sequence[_T]) -> _T:
        return choices[int(self._random.random() * len(choices))]

    def integer(self, low: int, high: int) -> int:
        """From low to high, both included."""
        return low + int(self._random.random() * (high - low + 1))

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * self._random.random()

    def extreme(self) -> float:
        """A number at the edge of what single precision holds, of either sign."""
        return self.pick(EXTREMES) * self.pick((1.0, -1.0))

    @property
    def arrays(self) -> np.random.Generator:
        if self._arrays is None:
            self._arrays = np.random.default_rng(self._random.getrandbits(64))
        return self._arrays

    def normal(self, *shape: int, scale: float = 1.0) -> NDArray[np.float32]:
        return (scale * self.arrays.standard_normal(shape)).astype(np.float32)

    def cuts(self, size: int) -> list[slice]:
        """The numbers from 0 up to size, cut into one or more parts at random places."""
        inner = {self.integer(1, size - 1) for _ in range(self.integer(0, 3))} if size > 1 else ()
        edges = [0, *sorted(inner), size]
        return [slice(first, end) for first, end in itertools.pairwise(edges)]


def describe(parts: tuple[object, ...]) -> str:
    """The parts of a note as one line, whatever their own methods do."""
    return " ".join(part if isinstance(part, str) else _shown(part) for part in parts)


def _shown(part: object) -> str:
    try:
        text = f"array {part.dtype} {part.shape}" if isinstance(part, np.ndarray) else repr(part)
    except Exception as error:  # noqa: BLE001 - hostile objects are shown too
        text = f"<{type(part).__name__} whose repr raises {type(error).__name__}>"
    return text if len(text) < 2000 else f"{text[:2000]}..."


def plain_values(draws: Draws) -> list[Any]:
    """Plain values where others belong: of all types, empty, huge, not finite, nested too deep."""
    circle: list[object] = []
    circle.append(circle)
    deep: object = 0
    for _ in range(draws.integer(20, 40)):
        deep = [deep]
    return [
        None, True, False, 0, 1, -1, 2**31, 2**53, 2**63, -(2**63), 2**64, 10**400, 0.5, -0.0,
        float("nan"), float("inf"), -float("inf"), 1e39, 1e300, 5e-324, draws.extreme(),
        "", "x", "1", "nan", "auto", "none", "\0", "\ud800", "ä" * 300, b"x", bytearray(b"1"), 1j,
        [], {}, (), set(), [1], [0.0, -1.0], [float("nan")], ["x"], [[1.0]],
        {"model": "SoftBounds"}, {"model": 1}, {1: 2}, {"": None}, range(3), circle, deep, object,
        object(), Ellipsis, len, np.float32(0.25), np.float64(1e-3), np.float16("inf"),
        np.int8(-1), np.uint64(2**64 - 1), np.bool_(True), np.str_("none"),  # noqa: FBT003
        np.datetime64("NaT"), np.array(1.5), np.array([1.0, 2.0]),
        np.array([]), np.zeros((2, 2)), np.array(["x"]), np.array([None], dtype=object),
        np.array([1, 2], dtype=">i2"),
    ]  # fmt: skip
