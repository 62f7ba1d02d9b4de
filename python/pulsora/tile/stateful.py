"""The state of a tile: saved, restored, moved to a device, with another seed or periphery."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from pulsora import _core, devices, noise_models
from pulsora import state as states
from pulsora._internal.threads import chosen_threads
from pulsora.config import TileConfig
from pulsora.tile.clipping import confined, warn_of_clipping

if TYPE_CHECKING:
    from typing_extensions import Self

    from pulsora._core import Tile as CoreTile
    from pulsora.config import IOParameters, UpdateParameters
    from pulsora.tile.arrays import Matrix
    from pulsora.tile.clipping import Confined

__all__ = ["StatefulTile"]


class StatefulTile:
    """The part of `Tile` that saves, restores and copies its configuration and its state."""

    _core: CoreTile

    if TYPE_CHECKING:
        threads: int
        gpu_products: str
        weights: Matrix

        def _hold(self, core: CoreTile) -> None: ...

    @property
    def config(self) -> TileConfig:
        """The configuration, frozen: `replace()` gives a copy that can be changed."""
        return TileConfig.from_dict(self._core.config()).frozen()

    @property
    def device(self) -> str:
        """Device of the tile: "cpu" or "cuda:<number>"."""
        return self._core.device

    def to(self, device: str) -> Self:
        """Returns a copy of the tile, in the same state, on another device.

        Raises:
            DeviceError: If the device cannot be used.
        """
        copied: Self = _restored(*self._copied(device))
        return copied

    @property
    def evaluated(self) -> int:
        """Samples that evaluations have read since training last read or updated the tile.

        With `counters` they number the random draws of the next evaluation. States do not contain
        this number, so that an evaluation is a function of the trained state.
        """
        return self._core.evaluated

    def state(self) -> states.State:
        """A copy of the state, from which a tile resumes bit-exactly.

        Raises:
            StateError: If a weight is not finite, as after a training that diverged.
        """
        return states.State(*self._core.state())

    def load_state(self, saved: states.State) -> None:
        """Restores the state of a tile that has the same sizes, configuration and seed.

        Raises:
            TypeError: For anything but a State.
            StateError: If the state does not fit, is incomplete or damaged, or was changed and not
                signed (`State.signed`); nothing has changed then.
        """
        if not isinstance(saved, states.State):
            raise TypeError(
                f"saved is of type {type(saved).__name__}; give a State, as of tile.state() or "
                "pulsora.state.load(path)"
            )
        self._core.load_state(saved.tensors, saved.values)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the state to a safetensors file atomically.

        Raises:
            OSError: If the file cannot be written; a previous one is then still there.
            StateError: If a weight is not finite.
        """
        states.save(self.state(), path)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        device: str = "cpu",
        threads: int | None = None,
        trust_device_source: bool = False,
    ) -> Self:
        """Returns the saved tile, in its saved state.

        Args:
            path: A file that save() wrote.
            device: Device of the tile.
            threads: As in the constructor.
            trust_device_source: Whether to compile and run source of models in the file.

        Raises:
            FileNotFoundError: If there is no such file.
            StateError: If the file is damaged, of another version, or not the state of a tile.
        """
        saved = states.load(path)
        try:
            if trust_device_source:
                devices.from_state(saved)
                noise_models.from_state(saved)
            return cls.from_state(saved, device=device, threads=threads)
        except states.StateError as error:
            raise states.StateError(f"{os.fspath(path)}: {error}") from None

    @classmethod
    def from_state(
        cls, saved: states.State, *, device: str = "cpu", threads: int | None = None
    ) -> Self:
        """Makes a tile from the state of another tile.

        Raises:
            StateError: For a damaged or incomplete state, another version, or an unsigned change.
        """
        count = chosen_threads(threads)
        return cls._made_of(_core.tile_from_state(saved.tensors, saved.values, device, count))

    @classmethod
    def _made_of(cls, core: CoreTile) -> Self:
        made = cls.__new__(cls)
        made._hold(core)  # noqa: SLF001 - of this class
        return made

    def reseed(self, seed: int, *, cells: bool = False) -> None:
        """Gives the tile the random numbers of another seed from now on.

        Noise of reads, pulses and cycles then differs from the noise of every other seed. Weights,
        counters and cells stay, and `state()` contains the new seed. Reads that an adapter with
        projection="reuse" has stored for an update are lost.

        Args:
            seed: The new seed, from 0 up to 2^63 - 1.
            cells: Whether cells and the fixed spreads of lines and converters are sampled anew too.
                Each array is then written with its weights, within the bounds of the new cells,
                with a warning if more than 1 % lay outside. (Cells of devices with a
                construction_seed stay.)

        Raises:
            ConfigError: For a bad seed; nothing has changed then.
            StateError: If a weight is not finite.
        """
        if cells:  # a warning may be an error, so it comes before the change
            warn_of_clipping([self._confined_by(seed)], self.weights)
        self._core.reseed(seed, cells)

    def _confined_by(self, seed: int) -> Confined:
        """Returns which weights the cells of another seed confine."""
        copied = self.from_state(self.state())
        copied._core.reseed(seed, True)  # noqa: SLF001, FBT003 - of this class
        return confined(copied._core, self.weights)  # noqa: SLF001

    def with_io(
        self,
        *,
        forward: IOParameters | None = None,
        backward: IOParameters | None = None,
        update: UpdateParameters | None = None,
    ) -> Self:
        """Returns a copy of the tile with another periphery around the same cells.

        Weights, cells, counters and seeds are those of this tile. Fixed spreads of lines and
        converters have the same random numbers, scaled by the new parameters.

        Args:
            forward: Periphery of the forward read; by default it stays, as the others do.
            backward: Periphery of the backward read.
            update: How activations and gradients become pulses.

        Raises:
            ConfigError: If a parameter does not suit the kind of the tile.
            StateError: If a weight is not finite.
        """
        given = {"forward": forward, "backward": backward, "update": update}
        config = self.config.replace(**{name: io for name, io in given.items() if io is not None})
        return self._made_of(self._core.with_periphery(config.to_dict()))

    def __reduce__(self) -> tuple[Any, ...]:
        """Supports pickle and copy: they make a tile in the same state on the same device."""
        return _restored, self._copied(self.device)

    def _copied(self, device: str) -> tuple[type[Self], states.State, str, int, str, int]:
        """Returns the arguments of `_restored` for a copy on a device."""
        return (
            type(self),
            self.state(),
            device,
            self.threads,
            self.gpu_products,
            self._core.evaluated,
        )


def _restored(
    made: type[StatefulTile],
    saved: states.State,
    device: str,
    threads: int,
    gpu_products: str,
    evaluated: int = 0,
) -> Any:  # noqa: ANN401 - of type `made`
    tile = made.from_state(saved, device=device, threads=threads)
    tile.gpu_products = gpu_products
    tile._core.evaluated = evaluated  # noqa: SLF001 - of this package
    return tile
