"""The programmed array of a tile: weights that are written once, and drift."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from pulsora import _core
from pulsora.tile.arrays import read_only

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pulsora.tile.arrays import Array, Matrix

__all__ = ["ProgrammedPoint", "Programming", "programming_of"]


# Largest measured conductances beyond these multiples of g_max have another unit.
_LEAST, _MOST = 1e-3, 10.0


class ProgrammedPoint(NamedTuple):
    """The state of a programmed array: which programming, and when it is read."""

    number: int
    """Number of the programming; each has programming errors of its own."""
    time: float
    """Seconds since the end of programming."""
    redraw: int
    """Number of the reading at that time; each has read noise of its own."""
    chip: int = 0
    """Number of the chip; each has stuck devices, converters and errors of its own."""


class Programming:
    """The programmed array of a tile, `tile.programming` (of InferenceConfig).

    What reads see is a function of the weights, the tile's seed and tile_id, the number of the
    programming and the time. So the order of calls does not matter: `drift(60.0)` has the same bits
    before and after `drift(1.0)`. Reads draw their noise by their number since the last call of
    `program` or `drift`.

    Until `program` is called, reads see the weights themselves.
    """

    def __init__(self, core: _core.Tile) -> None:
        self._core = core

    def program(self, number: int = 0, *, chip: int = 0, time: float = 0.0) -> None:
        """Programs the weights; reads see the array at a time.

        Args:
            number: Number of the programming, from 0 to 2^47 - 1.
            chip: Number of the chip, from 0 to 2^32 - 1: each has stuck devices, spreads of its
                converters and programming errors of its own.
            time: Seconds since the end of programming. `program(time=t)` has the bits of
                `program()` and `drift(t)`; a GPU makes both arrays in one pass.

        Raises:
            ConfigError: For a bad number, and a time for which the noise model has no numbers.
            InputError: If a weight is not finite. Nothing has changed then.
        """
        if not self.written.any():
            warnings.warn(
                "all weights are 0, and are programmed as zeros: reads see noise without a scale "
                "as 0; write weights before program()",
                stacklevel=2,
            )
        self._core.program(number, chip, time)

    def program_measured(self, conductances: NDArray[np.float32], number: int = 0) -> None:
        """Programs the weights with programmed conductances that were measured.

        The array then drifts as any other does; its drift and read noise are those of programming
        `number`. States hold the conductances.

        Args:
            conductances: Of all devices in uS, [d_size, x_size, devices of a cell], in the order of
                `conductances("programmed")`.
            number: Number of the programming.

        Raises:
            ConfigError: For a bad number, and for cells with a reference column.
            InputError: For another shape, for conductances that are negative or not finite, and
                unless the largest lies between a thousandth of g_max and ten times g_max, or is 0.
                Nothing has changed then.
        """
        values = np.asarray(conductances, dtype=np.float32)
        shape = (self._core.d_size, self._core.x_size, self._core.conductance_devices)
        if values.shape != shape:
            raise _core.InputError(
                f"conductances have shape {list(values.shape)}; give {list(shape)}: outputs, "
                "inputs, devices of a cell"
            )
        self.require_measured(values)
        self._core.program_measured(values.reshape(-1, shape[2]), number)

    def require_measured(self, conductances: NDArray[np.float32]) -> None:
        """Raises InputError for measured conductances that are not in uS, or of other devices."""
        g_max: float = self._core.config()["noise_model"]["g_max"]
        largest = float(conductances.max(initial=0.0))
        if largest > _MOST * g_max or 0.0 < largest < _LEAST * g_max:
            raise _core.InputError(
                f"the largest of the conductances is {largest:g}, and g_max of the noise model is "
                f"{g_max:g} uS; give uS (not siemens), and the g_max of these devices"
            )

    def drift(self, time: float, *, redraw: int = 0) -> None:
        """Lets reads see the array `time` seconds after programming, whatever they saw before.

        Args:
            time: Seconds since the end of programming, finite and >= 0.
            redraw: Number of the reading at this time, from 0 to 2^32 - 1; read noise is drawn for
                each.

        Raises:
            ConfigError: For a time for which the noise model has no numbers.
            StateError: If nothing is programmed, or weights changed since they were programmed.
        """
        self._core.drift(time, redraw)

    def unprogram(self) -> None:
        """Returns to reads of the weights themselves."""
        self._core.unprogram()

    @property
    def point(self) -> ProgrammedPoint | None:
        """The point that reads see; None if nothing is programmed."""
        point = self._core.programmed_point()
        if point is None:
            return None
        return ProgrammedPoint(point["number"], point["time"], point["redraw"], point["chip"])

    @property
    def is_measured(self) -> bool:
        """Whether the programmed conductances were measured (`program_measured`)."""
        point = self._core.programmed_point()
        return point is not None and point["measured"]

    @property
    def scales(self) -> list[float]:
        """The scale of each output: the weight that uses the whole range of a cell."""
        return self._core.scales()

    def converted(self, x: Array) -> Array:
        """Returns inputs as the array sees them in a forward read, without the DAC's noise.

        Args:
            x: Inputs [m, x_size] or [x_size].
        """
        return self._core.converted(x)

    @property
    def is_stale(self) -> bool:
        """Whether weights changed since they were programmed; reads are then a StateError."""
        point = self._core.programmed_point()
        return point is not None and point["stale"]

    @property
    def written(self) -> Matrix:
        """The weights [d_size, x_size] as they were written, programmed or not; a copy."""
        return read_only(self._core.written())

    @property
    def compensation(self) -> list[float]:
        """Factor of drift compensation on each output.

        Raises:
            StateError: If weights changed since they were programmed.
        """
        self._core.require_current()
        return self._core.compensation()

    @property
    def adc_gains(self) -> NDArray[np.float32]:
        """Gains of the ADCs of forward reads, [arrays with ADCs of their own, d_size].

        An amplifier between the output noise and the ADC multiplies by the gain, and the result is
        divided by it: the ADC of gain g has the range +-forward.out_bound / g and 1 / g of its
        steps. Slices with converters apart have a row each; other cells have one row. 1 unless set.
        Assign numbers of this shape, or a number or row for all. States hold the gains.

        Raises:
            ConfigError: If the forward read is perfect, and has no ADCs.
            InputError: For another shape, and unless gains are finite and above 0. Nothing has
                changed then.
        """
        gains = np.array(self._core.adc_gains(), dtype=np.float32)
        return gains.reshape(-1, self._core.d_size)

    @adc_gains.setter
    def adc_gains(self, gains: NDArray[np.float32] | float) -> None:
        shape = self.adc_gains.shape
        values = np.asarray(gains, dtype=np.float32)
        try:
            values = np.broadcast_to(values, shape)
        except ValueError:
            raise _core.InputError(
                f"gains of ADCs have shape {list(values.shape)}; give {list(shape)}: arrays with "
                "ADCs of their own, outputs"
            ) from None
        given = [] if (values == 1.0).all() else values.ravel().tolist()
        self._core.set_adc_gains(given)

    def conductances(
        self, which: Literal["now", "programmed", "target"] = "now"
    ) -> NDArray[np.float32]:
        """Returns the conductances of all devices in uS, [d_size, x_size, devices of a cell].

        Args:
            which: "now", as reads see them; "programmed", after programming and before drift and
                read noise; "target", as asked for.

        Raises:
            StateError: If nothing is programmed, or weights changed since they were programmed.
        """
        values: NDArray[np.float32] = self._core.conductances(which)
        return values.reshape(self._core.d_size, self._core.x_size, -1)

    def statistics(self) -> dict[str, Any]:
        """Numbers of the array.

        The keys are devices; compensation, the mean factor on outputs; and once programmed, number,
        time, redraw, and weight_error, the norm of the difference between the weights that a
        perfect read sees and the written ones, relative to the norm of these.

        Raises:
            StateError: If weights changed since they were programmed.
        """
        self._core.require_current()
        statistics = self._core.statistics()
        kept = ("devices", "compensation", "weight_error")
        values = {name: statistics[name] for name in kept if name in statistics}
        point = self.point
        return values if point is None else values | point._asdict()

    def __repr__(self) -> str:
        return f"Programming({self.point or 'nothing programmed'})"


def programming_of(core: _core.Tile) -> Programming | None:
    """Returns the programmed array of a tile, or None."""
    return Programming(core) if core.is_programmable else None
