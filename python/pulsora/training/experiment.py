"""Everything that settles a run of a small network; `pulsora.training.run` runs it.

history = Run(Experiment(algorithm="lrtt", rank=8)).train()
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pulsora import presets
from pulsora.config import TileConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["ALGORITHMS", "Experiment"]


@dataclass(frozen=True)
class Experiment:
    """Everything that settles a run.

    Attributes:
        data: 'digits', or a folder of IDX files.
        hidden: Sizes of the hidden layers. These are analog; the output layer is digital.
        epochs: Passes over the training set.
        batch: Images per mini-batch.
        lr: Learning rate of plain SGD, for all layers.
        algorithm: 'digital': floating point; 'pulsed': pulsed SGD on one full array;
            'lrtt': a pulsed low-rank adapter.
        device_preset: Name of the device, see `pulsora.presets.names()`.
        rank: Rank of the adapter (lrtt).
        transfer_every: Samples per transfer of the adapter (lrtt).
        seed: Seed of everything.
        tile: A complete tile configuration as `TileConfig.to_dict()` writes it; replaces
            algorithm, device_preset, rank and transfer_every.

    Raises:
        ValueError: for a value out of range.
    """

    data: str = "digits"
    hidden: tuple[int, ...] = (64,)
    epochs: int = 10
    batch: int = 32
    lr: float = 0.1
    algorithm: str = "lrtt"
    device_preset: str = "Idealized"
    rank: int = 8
    transfer_every: int = 100
    seed: int = 0
    tile: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        for name, low in (("epochs", 1), ("batch", 1), ("rank", 1), ("transfer_every", 0)):
            if getattr(self, name) < low:
                raise ValueError(f"{name} = {getattr(self, name)}: choose a number from {low} up")
        if not self.hidden or min(self.hidden) < 1:
            raise ValueError(
                f"hidden = {list(self.hidden)}: give sizes of hidden layers, from 1 up"
            )
        if not 0.0 < self.lr < float("inf"):
            raise ValueError(f"lr = {self.lr}: choose a positive number")
        if self.seed < 0:
            raise ValueError(f"seed = {self.seed}: choose a number from 0 up")
        if self.algorithm not in ALGORITHMS:
            raise ValueError(
                f"algorithm = '{self.algorithm}': choose one of {', '.join(ALGORITHMS)}"
            )
        presets.device(self.device_preset)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Experiment:
        """The experiment that a table of attributes describes; ValueError for unknown names."""
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise ValueError(f"unknown setting {unknown}; there are {', '.join(known)}")
        return cls(**values)

    def tile_config(self) -> TileConfig | None:
        """The configuration of the tiles; None where there are none."""
        if self.tile is not None:
            return TileConfig.from_dict(self.tile)
        return ALGORITHMS[self.algorithm](self)


ALGORITHMS: dict[str, Callable[[Experiment], TileConfig | None]] = {
    "digital": lambda _: None,
    "pulsed": lambda run: presets.single(run.device_preset),
    "lrtt": lambda run: presets.lrtt(
        run.device_preset, run.rank, transfer_every=run.transfer_every
    ),
}
"""What the tiles of each algorithm are made of; None where there are none."""
