"""Training rules of one's own over several arrays, written in Python.

    class Residual(pl.prototype.Rule):
        def factors(self):
            return {"main": 1.0, "residual": 0.1}  # W = main + 0.1 residual

        def step(self, x, d, lr):
            self.pulse("residual", x, d, lr)
            self.write("main", lr * self.arrays["residual"].weights)

    cells = pl.SingleConfig(device=pl.devices.EcRam())
    rule = Residual(10, 784, {"main": cells, "residual": cells}, seed=1)

A rule is slow, since each step passes through Python, and exact: arrays are tiles, with their
cells, noise, random numbers and states. `pl.nn.RuleLinear(rule)` is a layer of torch with the rule.
docs/howto/own_rule.md shows a published rule.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from pulsora._core import ConfigError, InputError, StateError
from pulsora.config import TileConfig
from pulsora.state import from_tensors, to_tensors
from pulsora.tile import Tile
from pulsora.tile.arrays import read_only

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

    from pulsora.tile.arrays import Matrix

__all__ = ["Rule"]

_COUNTS = "counts"  # seed and steps among the tensors of a state


class Rule:
    """Several arrays of one size that act as one weight, W = sum over arrays of factor * array.

    A class of one's own defines `factors` and `step`. Reads, pulses, writes, the digital memory,
    seeded random numbers and the state come from this class.

    Args:
        d_size: Number of outputs, rows of W; at least 1.
        x_size: Number of inputs, columns of W; at least 1.
        arrays: The configuration of each array by name. The first array holds written weights.
        digital: Digital memory in single precision by name: the values at the beginning, arrays of
            any shape, or numbers.
        seed: Seed of all random numbers; from 0 up to 2^63 - 1. Array k has `tile_id` = k.
        threads: CPU threads of an operation, as for `pulsora.Tile`.

    Attributes:
        arrays: The tiles by name.
        digital: The digital memory by name. `step` changes values, not shapes.
        steps: Number of steps so far.

    Raises:
        ConfigError: For no array, a bad size, seed or value; a TypeError for something else than a
            configuration.
    """

    def __init__(
        self,
        d_size: int,
        x_size: int,
        arrays: Mapping[str, TileConfig],
        *,
        digital: Mapping[str, ArrayLike] | None = None,
        seed: int = 0,
        threads: int | None = None,
    ) -> None:
        if not arrays:
            raise ConfigError("arrays is empty; give a configuration for each array, by name")
        if bad := [name for name in [*arrays, *(digital or {})] if "." in name or not name]:
            raise ConfigError(f"{bad[0]!r} is no name of an array or a memory; leave out dots")
        for name, config in arrays.items():
            if not isinstance(config, TileConfig):
                raise TypeError(
                    f"arrays[{name!r}] is of type {type(config).__name__}; give a configuration "
                    "such as pulsora.SingleConfig(device=...)"
                )
        self.arrays = {
            name: Tile(d_size, x_size, config, seed=seed, tile_id=number, threads=threads)
            for number, (name, config) in enumerate(arrays.items())
        }
        self.seed, self.steps = seed, 0
        self._start = {
            name: _finite(f"digital[{name!r}]", values) for name, values in (digital or {}).items()
        }
        self.digital: dict[str, Any] = copy.deepcopy(self._start)

    def factors(self) -> dict[str, float]:
        """Returns the factor of each array in the weight; arrays that are not named have 0."""
        raise NotImplementedError(f"{type(self).__name__} has to define factors()")

    def step(self, x: Matrix, d: Matrix, lr: float) -> None:
        """Changes arrays and memory by a mini-batch of inputs x and gradients d.

        x is [m, x_size] and d is [m, d_size]. `update` calls it, which has checked its arguments.
        An error that `step` raises after its first pulse leaves that pulse in the cells.
        """
        raise NotImplementedError(f"{type(self).__name__} has to define step(x, d, lr)")

    def pulse(self, name: str, x: Matrix, d: Matrix, lr: float) -> None:
        """Sends array `name` pulse trains for a change of -lr d^T x, as `Tile.update` does."""
        self.arrays[name].update(x, d, lr, end_of_batch=False)

    def write(self, name: str, change: ArrayLike) -> None:
        """Sends array `name` pulse trains for a change [d_size, x_size], column after column.

        A cell changes by `change` in expectation where its steps are alike up and down, and by at
        most `update.desired_bl` steps. Columns of zeros are left out.
        """
        wanted = np.asarray(change, np.float32)
        columns = np.flatnonzero(wanted.any(axis=0))
        if len(columns):
            lines = np.eye(self.x_size, dtype=np.float32)[columns]
            self.pulse(name, lines, np.ascontiguousarray(-wanted.T[columns]), 1.0)

    def random(self) -> np.random.Generator:
        """Returns a generator that is keyed by the seed and the number of the step.

        A resumed run therefore draws as an uninterrupted one does. Every call within a step returns
        a generator at the same beginning.
        """
        return np.random.default_rng([self.seed, self.steps])

    @property
    def d_size(self) -> int:
        """Number of outputs, rows of W."""
        return next(iter(self.arrays.values())).d_size

    @property
    def x_size(self) -> int:
        """Number of inputs, columns of W."""
        return next(iter(self.arrays.values())).x_size

    def forward(self, x: ArrayLike, *, evaluation: bool = False) -> Matrix:
        """Reads y [m, d_size] = W x for x [m, x_size], each array through its own periphery.

        Args:
            x: Inputs.
            evaluation: Whether the read leaves training as it is, as in `Tile.forward`.

        Raises:
            InputError: For a wrong shape, and values that are not finite.
        """
        lines = self._lines("x", x, self.x_size)
        return self._summed(
            (factor, tile.forward(lines, evaluation=evaluation)) for factor, tile in self._parts()
        )

    def backward(self, d: ArrayLike, *, evaluation: bool = False) -> Matrix:
        """Reads dx [m, x_size] = W^T d for d [m, d_size]; arguments and errors as in `forward`."""
        lines = self._lines("d", d, self.d_size)
        return self._summed(
            (factor, tile.backward(lines, evaluation=evaluation)) for factor, tile in self._parts()
        )

    def update(self, x: ArrayLike, d: ArrayLike, lr: float) -> None:
        """Makes one step by a mini-batch, and ends the mini-batch of every array.

        Cells decay and diffuse then. The values of the digital memory are rounded to single
        precision.

        Raises:
            InputError: For wrong shapes, and values that are not finite; a ConfigError for a bad
                lr. Nothing has changed then.
        """
        inputs = self._lines("x", x, self.x_size)
        gradients = self._lines("d", d, self.d_size)
        if len(inputs) != len(gradients):
            raise InputError(
                f"x has {len(inputs)} rows and d has {len(gradients)}; give one row of each for "
                "each sample"
            )
        if not math.isfinite(lr):
            raise ConfigError(f"lr is {lr}; it must be a finite number")
        self.step(inputs, gradients, lr)
        for name, start in self._start.items():
            values = _finite(f"digital[{name!r}]", self.digital[name])
            if values.shape != start.shape:
                raise InputError(
                    f"digital[{name!r}] has shape {list(values.shape)} after step(); it began with "
                    f"{list(start.shape)}"
                )
            self.digital[name] = values
        for tile in self.arrays.values():
            tile.end_batch(lr)
        self.steps += 1

    @property
    def weights(self) -> Matrix:
        """The weight W [d_size, x_size] that perfect reads would see; a copy.

        Setting it writes W / factor digitally to the first array, and 0 to the others. The digital
        memory then has the values of its beginning.

        Raises:
            InputError: On setting a wrong shape, or values that are not finite.
            ConfigError: If the first array has the factor 0.
        """
        return read_only(self._summed((factor, tile.weights) for factor, tile in self._parts()))

    @weights.setter
    def weights(self, weights: ArrayLike) -> None:
        wanted = _finite("weights", weights)
        if wanted.shape != (self.d_size, self.x_size):
            raise InputError(
                f"weights have shape {list(wanted.shape)}; expected [{self.d_size}, {self.x_size}]"
            )
        before = self.digital
        self.digital = copy.deepcopy(self._start)
        first, *others = self.arrays
        factor = self.factors().get(first, 0.0)
        if factor == 0.0:
            self.digital = before
            raise ConfigError(
                f"array {first!r}, the first one, has the factor 0 and cannot hold written "
                "weights; name an array with a factor first"
            )
        for name in others:
            self.arrays[name].weights = np.zeros_like(wanted)
        self.arrays[first].weights = wanted / np.float32(factor)

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns the complete state as named arrays (copies), for `numpy.savez` and the like.

        A rule of the same class, arguments and seed continues from it to the bit.

        Raises:
            StateError: If a weight is not finite.
        """
        made = {
            f"arrays.{name}.{tensor}": values
            for name, tile in self.arrays.items()
            for tensor, values in to_tensors(tile.state()).items()
        }
        made |= {f"digital.{name}": np.array(values) for name, values in self.digital.items()}
        return made | {_COUNTS: np.array([self.seed, self.steps], np.int64)}

    def load_state(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        """Restores the arrays of `state()`.

        Raises:
            StateError: If arrays are missing, damaged, or of a rule with other arrays, sizes,
                configurations or seed; nothing has changed then.
        """
        digital = {name: f"digital.{name}" for name in self._start}
        parts = {name: f"arrays.{name}." for name in self.arrays}
        known = {_COUNTS, *digital.values()}
        for name in tensors:
            if name not in known and not name.startswith(tuple(parts.values())):
                raise StateError(f"the state has an array {name!r}, which this rule has not")
        if missing := sorted(known - set(tensors)):
            raise StateError(f"the state has no array {missing[0]!r}; it is incomplete")
        steps = self._saved_steps(np.asarray(tensors[_COUNTS]))
        memory = {name: self._saved(name, tensors[full]) for name, full in digital.items()}
        arrays = {}
        for name, start in parts.items():
            saved = {n.removeprefix(start): v for n, v in tensors.items() if n.startswith(start)}
            if not saved:
                raise StateError(f"the state has no arrays {start + '*'!r}; it is incomplete")
            tile = copy.copy(self.arrays[name])  # a tile in the same state
            try:
                tile.load_state(from_tensors(saved))
            except StateError as error:
                raise StateError(f"array {name!r}: {error}") from None
            arrays[name] = tile
        self.arrays, self.digital, self.steps = arrays, memory, steps

    def _saved_steps(self, counts: NDArray[Any]) -> int:
        """Returns the number of steps in a state of this seed."""
        if counts.shape != (2,) or counts.dtype != np.int64 or counts[1] < 0:
            raise StateError(
                f"{_COUNTS!r} of the state has to be the seed and the steps, two int64"
            )
        if counts[0] != self.seed:
            raise StateError(
                f"the state is of seed {counts[0]}, and this rule has {self.seed}; make the rule "
                "with the seed of the state"
            )
        return int(counts[1])

    def _saved(self, name: str, saved: NDArray[Any]) -> Matrix:
        """Returns a copy of the values of a digital memory in a state."""
        values, start = np.array(saved), self._start[name]
        if values.shape != start.shape or values.dtype != np.float32:
            raise StateError(
                f"'digital.{name}' of the state has shape {list(values.shape)} and type "
                f"{values.dtype}; expected {list(start.shape)} and float32"
            )
        if not np.isfinite(values).all():
            raise StateError(f"'digital.{name}' of the state has values that are not finite")
        return values

    def statistics(self) -> dict[str, dict[str, Any]]:
        """Returns the statistics of each array, as `Tile.statistics`."""
        return {name: tile.statistics() for name, tile in self.arrays.items()}

    def __repr__(self) -> str:
        sizes = f"{self.d_size}, {self.x_size}"
        return f"{type(self).__name__}({sizes}, arrays={list(self.arrays)}, seed={self.seed})"

    def _parts(self) -> list[tuple[float, Tile]]:
        factors = self.factors()
        if unknown := [name for name in factors if name not in self.arrays]:
            raise ConfigError(
                f"factors() names {unknown[0]!r}; the arrays are {', '.join(self.arrays)}"
            )
        return [(float(f), self.arrays[name]) for name, f in factors.items() if f != 0.0]

    @staticmethod
    def _summed(parts: Any) -> Matrix:  # noqa: ANN401 - pairs of a factor and a matrix
        made = [np.float32(factor) * values for factor, values in parts]
        if not made:
            raise ConfigError("factors() gives every array the factor 0; one must have another")
        total: Matrix = made[0]
        for more in made[1:]:
            total = total + more
        return total

    @staticmethod
    def _lines(name: str, values: ArrayLike, size: int) -> Matrix:
        lines = np.atleast_2d(_finite(name, values))
        if lines.ndim != 2 or lines.shape[1] != size:
            raise InputError(f"{name} has shape {list(lines.shape)}; expected [m, {size}]")
        return np.ascontiguousarray(lines)


def _finite(name: str, values: ArrayLike) -> Matrix:
    made = np.array(values, np.float32)
    if not np.isfinite(made).all():
        raise InputError(f"{name} has values that are not finite; every value must be")
    return made
