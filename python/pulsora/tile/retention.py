"""The ages of pulsed arrays whose cells drift."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pulsora import _core

__all__ = ["Age", "Retention", "retention_of"]


class Age(NamedTuple):
    """The age at which reads see an array."""

    time: float
    """Seconds since its cells were last pulsed, written or reset."""
    redraw: int
    """Number of the reading at that time; each has read noise of its own."""


class Retention:
    """The ages of a tile's pulsed arrays, `tile.retention` (with a `retention=` in its config).

    What reads see of an array is a function of its stored weights, the tile's seed and tile_id,
    time and redraw. So the order of calls does not matter: `drift(60.0)` has the same bits before
    and after `drift(1.0)`, and `drift(0.0)` returns to the stored weights. Pulses on an array, and
    resets and decay, first make its drift permanent, without the read noise; its age is then 0.
    """

    def __init__(self, core: _core.Tile) -> None:
        self._core = core

    def drift(self, time: float, *, redraw: int = 0) -> None:
        """Lets reads see each array `time` seconds after its last pulse, whatever they saw before.

        Reads that are evaluations draw their noise by their number since this call.

        Args:
            time: Seconds since the last pulse, finite and >= 0.
            redraw: Number of the reading at this time, from 0 to 2^32 - 1; read noise is drawn for
                each.

        Raises:
            ConfigError: For a time for which a noise model has no numbers; nothing has changed.
        """
        self._core.drift_cells(time, redraw)

    def elapse(self, time: float, *, redraw: int = 0) -> None:
        """Lets `time` seconds pass: each array is seen so much older than it is.

        Arrays that were pulsed at different ages so keep the difference between their ages.

        Raises:
            ConfigError: As of `drift`.
        """
        self._core.drift_cells(time, redraw, from_now=True)

    @property
    def ages(self) -> dict[str, Age]:
        """The age of each array that drifts, by its name in `tile.arrays`."""
        arrays = self._core.retention()
        return {name: Age(array["time"], array["redraw"]) for name, array in arrays.items()}

    @property
    def compensation(self) -> NDArray[np.float32]:
        """The factors on the outputs that compensate drift, [out]; 1 without compensation."""
        return np.array(self._core.age_compensation(), np.float32)

    @property
    def models(self) -> dict[str, str]:
        """The name of the noise model of each array that drifts."""
        return {name: array["model"] for name, array in self._core.retention().items()}

    def __repr__(self) -> str:
        return f"Retention({self.ages})"


def retention_of(core: _core.Tile) -> Retention | None:
    """Returns the ages of a tile's arrays, or None if no array drifts."""
    return Retention(core) if core.retains else None
