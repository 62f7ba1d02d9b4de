"""Tiles that hold the weights of a parameter of torch, written to them for reads."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch

from pulsora import _core
from pulsora._internal.checks import is_whole
from pulsora.nn.tiles.group_products import gradient_of, product_of
from pulsora.nn.tiles.layer_names import described, named_errors
from pulsora.nn.tiles.tile_read import for_tile, parameter_for_tile, require_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from pulsora.nn.tiles.tile_array import TileArray
    from pulsora.nn.tiles.tile_read import ReadPosition
    from pulsora.tile.programming import ProgrammedPoint

__all__ = [
    "HeldWeights",
    "layers_with_held_weights",
    "require_number",
    "version_of",
]

_STALE = (
    "the weights of {} changed after they were programmed, and the programmed array no longer "
    "stands for them; call pulsora.program(model) again, or return to the weights by "
    "pulsora.inference.unprogram(model)"
)
_TRAINED_ON = (
    "the weights of {} may have changed after they were programmed, as a read in train() returned "
    "to them; call pulsora.program(model) again, or stay with the weights by "
    "pulsora.inference.unprogram(model)"
)


_UNPROGRAMMED = (
    "a layer of InferenceConfig is evaluated that was never programmed, so that its reads see the "
    "weights themselves; call pulsora.program(model) to see an array, or ignore this warning"
)


class HeldWeights:
    """Tiles whose weights are a parameter of torch.

    The parameter is what optimisers train. Its values are written to the tiles before reads,
    unless the tiles are programmed: a programmed array stays until it is programmed anew, and is
    not read in an evaluation once the parameter differs from what was programmed.

    Args:
        array: The tiles, of a kind whose facts say `digital_weight`.
    """

    exact: Callable[[Tensor], object] | None = None
    """For now, reads are exact products, and this function gets their inputs (`exact_reads`)."""

    affine: Tensor | None = None
    """Gain and offset [2, out_features] on outputs at the present point (`fit_affine`), or None."""

    points: int = 1
    """The number of points of the programmed array that a read sees (`program_many`)."""

    def __init__(self, array: TileArray) -> None:
        self.array = array
        self._version: tuple[int, int] | None = None  # of the values that the tiles have
        self._was_programmed = False  # before training went on from the weights

    def move(self, device: torch.device) -> None:
        """Moves the tiles and the correction of outputs; see `TileArray.move` for errors."""
        self.array.move(device)
        self.affine = None if self.affine is None else self.affine.to(device)

    @property
    def is_programmed(self) -> bool:
        """Whether reads see a programmed array."""
        return next(iter(self.array))._core.is_programmed  # noqa: SLF001 - of this package

    @property
    def point(self) -> ProgrammedPoint:
        """The point of the programmed array."""
        programming: Any = next(iter(self.array)).programming
        point: ProgrammedPoint = programming.point
        return point

    @property
    def is_measured(self) -> bool:
        """Whether the programmed conductances were measured."""
        programming: Any = next(iter(self.array)).programming
        return bool(programming.is_measured)

    def write(self, weight: Tensor) -> None:
        """Writes the values of the parameter to the tiles."""
        self.array.changes += 1
        is_same = self._version == version_of(weight)
        values = weight.detach().reshape(self.array.shape)
        with named_errors(self.array):
            if self.array.groups == 1:
                self.array.together.take(parameter_for_tile(values), is_same)
            else:
                for row, col, tile in self.array.parts():
                    tile._core.take(parameter_for_tile(values[row, col]), is_same)  # noqa: SLF001
        self._version = version_of(weight)

    def before_read(self, weight: Tensor, *, evaluation: bool) -> None:
        """Prepares the tiles for a read.

        Raises:
            StateError: In an evaluation, if the weights changed since they were programmed.
        """
        if not self.is_programmed:
            if evaluation and self._was_programmed:
                raise self._stale()
            if evaluation:
                _warn_once()
            # In place through .data, weights change without a new version, so they are written.
            self.write(weight)
        elif not evaluation and weight.requires_grad:
            self._was_programmed = True  # training goes on from the weights
            self._unprogram()
            self.write(weight)
        elif not self.is_current(weight):
            raise self._stale()

    def before_backward(self, weight: Tensor, noted: _core.NotedSamples | None) -> None:
        """Prepares the tiles for the backward read of the forward read that `noted` stands for."""
        if self.is_programmed:
            return
        if self._version != version_of(weight):
            self.write(weight)
        if noted is not None:
            self.array.together.see(noted)

    def noted(self, position: ReadPosition) -> _core.NotedSamples | None:
        """Notes the number of the mini-batch's first sample in each tile; None in evaluations."""
        if position.evaluation:
            return None
        if position.numbers:
            return _core.NotedSamples(position.numbers)
        return self.array.together.note_samples()

    def begin_step(self, weight: nn.Parameter) -> None:
        """Prepares a step of training that is recorded, or repeated: its reads see the weights."""
        if not weight.requires_grad:
            return
        if self.is_programmed:
            self._was_programmed = True
            self._unprogram()
        self._version = None  # a step may change the parameter without a mark

    def constants(self, weight: nn.Parameter) -> tuple[Any, ...]:
        """Returns the choices before a read that a recorded step does not repeat."""
        frozen = not weight.requires_grad and self.is_programmed
        return frozen, self.points, self.exact, self.affine is None

    def is_current(self, weight: Tensor) -> bool:
        """Whether the tiles have the values of the parameter."""
        if self._version == version_of(weight):
            return True
        require_whole(weight)
        values = weight.detach().reshape(self.array.shape).float().cpu()
        same = all(
            torch.equal(torch.from_numpy(tile.programming.written.copy()), values[row, col])
            for row, col, tile in self.array.parts()
            if tile.programming is not None
        )
        if same:
            self._version = version_of(weight)
        return same

    @staticmethod
    def program(
        layers: list[tuple[HeldWeights, nn.Parameter]],
        number: int,
        chip: int = 0,
        time: float = 0.0,
    ) -> None:
        """Programs the weights of layers; reads see the arrays at that time.

        Raises:
            ConfigError: For a bad number, and a time for which a noise model has no numbers;
                nothing has changed.
        """
        require_number(number)
        _require_whole("chip", chip, 32)
        for held, _ in layers if time > 0.0 else ():
            held.require_time(time)
        for held, weight in layers:
            held._prepare_programming(weight)  # noqa: SLF001 - of this class
        _core.program_tiles(_tiles_of(layers), number, chip, time)

    def program_many(self, weight: Tensor, points: list[tuple[int, float]], chip: int) -> None:
        """Programs the weights as at several points of a chip: numbers of programmings and times.

        Reads of R m rows, for R points, then see point r in rows r m to (r + 1) m. Measured
        conductances stay, if all points are of their programming.
        """
        if self.is_measured and {number for number, _ in points} == {self.point.number}:
            self.affine = None
        else:
            self._prepare_programming(weight)
        for tile in self.array:
            tile._core.program_many(points, chip)  # noqa: SLF001 - of this package
        self.points = len(points)

    def program_measured(
        self, weight: Tensor, conductances: list[NDArray[np.float32]], number: int
    ) -> None:
        """Programs the weights with measured conductances in uS, an array for each tile."""
        require_number(number)
        self._prepare_programming(weight)
        for tile, values in zip(self.array, conductances, strict=True):
            flat = values.reshape(-1, values.shape[-1])
            tile._core.program_measured(flat, number)  # noqa: SLF001 - of this package

    def _prepare_programming(self, weight: Tensor) -> None:
        self.array.require_weights()
        self._unprogram()
        self.write(weight)
        self._was_programmed = False

    def unprogram(self, *, is_stale: bool = False) -> None:
        """Returns to reads of the weights, which are refused in evaluations of a stale array."""
        self._unprogram()
        self._was_programmed = is_stale

    def require_time(self, time: float) -> None:
        """Raises ConfigError for a time for which the noise model has no numbers."""
        model: Any = self.array.config.noise_model  # type: ignore[attr-defined]
        last = _core.last_time(model.to_dict())
        if time > last:
            raise _core.ConfigError(
                f"time is {time:g} s, but {model.model} has numbers up to {last:g} s; choose an "
                "earlier time, or set extrapolate=True in the noise model"
            )

    def _stale(self) -> _core.StateError:
        text = _TRAINED_ON if self._was_programmed else _STALE
        return _core.StateError(text.format(described(self.array)))

    def require_current(self, weight: Tensor) -> None:
        """Raises StateError if the weights changed after they were programmed."""
        if self._was_programmed or (self.is_programmed and not self.is_current(weight)):
            raise self._stale()

    def require_programmed(self) -> None:
        """Raises StateError if nothing is programmed."""
        if not self.is_programmed:
            raise _core.StateError(
                f"nothing is programmed in {described(self.array)}; program the weights first, by "
                "pulsora.program(model)"
            )

    def require_drift(self, weight: Tensor, time: float) -> None:
        """The errors of drift(); nothing changes."""
        self.require_current(weight)
        self.require_programmed()
        for tile in self.array:
            tile._core.require_drift(time)  # noqa: SLF001 - of this package

    @staticmethod
    def drift(layers: list[tuple[HeldWeights, nn.Parameter]], time: float, redraw: int) -> None:
        """Lets reads see the programmed arrays of layers at that time.

        Raises:
            ConfigError: For a time for which a noise model has no numbers; nothing has changed.
            StateError: If a layer is not programmed, or has changed since; nothing has changed.
        """
        _require_whole("redraw", redraw, 32)
        for held, weight in layers:
            held.require_drift(weight, time)
        for held, _ in layers:
            held.array.changes += 1
            held.points = 1
            held.affine = None
        _core.drift_tiles(_tiles_of(layers), time, redraw)

    def converted(self, x: Tensor) -> Tensor:
        """Returns the inputs [m, groups * in_features] as the DACs of the tiles convert them."""
        if self.array.config.forward.is_perfect:  # type: ignore[attr-defined]
            return x
        seen = torch.empty_like(x)
        for i in range(0, len(self.array.rows), len(self.array.rows) // self.array.groups):
            for col, tile in zip(self.array.cols, self.array.grid[i], strict=True):
                lines = self.array.lines(i, col)
                part = x[:, lines].contiguous()
                to = torch.empty_like(part)
                tile._core.converted(for_tile(part), for_tile(to))  # noqa: SLF001
                if part.shape == x.shape:
                    return to
                seen[:, lines] = to
        return seen

    def product(self, x: Tensor, weight: Tensor) -> Tensor:
        """Returns the exact product W x of each group, [m, out_features]."""
        return product_of(self.array, x, weight)

    def gradient(self, x: Tensor, d: Tensor) -> Tensor:
        """Returns d^T x [out_features, in_features], of each group for itself."""
        return gradient_of(self.array, x, d)

    def by_points(self, x: Tensor, steps: int) -> Tensor:
        """Sorts rows of time steps, each with a mini-batch for each point, by the points."""
        return x.reshape(steps, self.points, -1, x.shape[1]).transpose(0, 1).reshape(x.shape)

    def by_steps(self, y: Tensor, steps: int) -> Tensor:
        """The inverse of `by_points`."""
        return y.reshape(self.points, steps, -1, y.shape[1]).transpose(0, 1).reshape(y.shape)

    def state_tensors(self) -> dict[str, Tensor]:
        """Returns the complete state of the tiles, and the correction of outputs, if any."""
        own = {} if self.affine is None else {"affine": self.affine.cpu().clone()}
        return own | self.array.state_tensors()

    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restores the tensors of `state_tensors`.

        Raises:
            StateError: if they do not suit the tiles; nothing has changed then.
        """
        tiles = dict(tensors)
        affine, shape = tiles.pop("affine", None), (2, self.array.shape[0])
        if affine is not None and not (
            affine.shape == shape and affine.dtype == torch.float32 and affine.isfinite().all()
        ):
            raise _core.StateError(
                f"tiles.affine must be finite float32 numbers of the shape {list(shape)}, and is "
                f"{affine.dtype} of the shape {list(affine.shape)}"
            )
        self.array.load_state_tensors(tiles)
        self.points = 1
        with torch.inference_mode(mode=False):  # a correction that trainings may use
            self.affine = None if affine is None else affine.to(self.array.device, copy=True)

    def _unprogram(self) -> None:
        self.points = 1
        self.affine = None
        for tile in self.array:
            tile._core.unprogram()  # noqa: SLF001 - of this package


def layers_with_held_weights(model: nn.Module) -> list[Any]:
    """Returns the layers of a model that write a parameter of torch to tiles before reads."""
    return [
        each for each in model.modules() if isinstance(getattr(each, "held", None), HeldWeights)
    ]


def _tiles_of(layers: list[tuple[HeldWeights, nn.Parameter]]) -> list[_core.Tile]:
    return [tile._core for held, _ in layers for tile in held.array]  # noqa: SLF001


def require_number(number: object) -> None:
    """Raises ConfigError for what is no number of a programming."""
    _require_whole("number", number, 47)


def _require_whole(name: str, value: object, bits: int) -> None:
    """Raises ConfigError unless the value is a whole number of so many bits."""
    if not is_whole(value) or not 0 <= value < 2**bits:
        raise _core.ConfigError(f"{name} is {value!r}; give a whole number from 0 to 2^{bits} - 1")


def _warn_once() -> None:
    """Warns, once in a process, of an evaluation that sees the weights and no array."""
    if not _warned:
        _warned.append(True)
        warnings.warn(_UNPROGRAMMED, stacklevel=2)


_warned: list[bool] = []


def version_of(weight: Tensor) -> tuple[int, int]:
    """Returns a mark that differs after every write to a tensor that torch counts.

    It counts none through `.data`, and none to tensors that were made in `inference_mode()`.
    """
    version = -1 if weight.is_inference() else weight._version  # noqa: SLF001 - counts writes
    return weight.data_ptr(), version
