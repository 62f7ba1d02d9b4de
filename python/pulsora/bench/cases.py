"""Cases of `pulsora bench`, and the least work of each.

A case is a square array under default periphery with inputs x uniform in (-1, 1), at a learning
rate of ten dw_min. Errors d are uniform in (-1, 1) ("dense": 2.5 coincidences per cell and sample)
or in (-0.01, 0.01) ("sparse", and whole steps: 0.025).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulsora import presets
from pulsora._internal.checks import require_at_least
from pulsora.bench import least_work
from pulsora.bench.machine import Work
from pulsora.config import LRTTConfig, SingleConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulsora.config import TileConfig
    from pulsora.devices import Device

__all__ = ["OPERATIONS", "Case", "cases", "work_of"]

OPERATIONS = ("forward", "backward", "update sparse", "update dense", "step")


@dataclass(frozen=True)
class Case:
    """One thing to measure.

    Attributes:
        operation: One of OPERATIONS. A step is a forward and a backward read, a sparse update, and
            the end of the mini-batch.
        model: A device model or preset, of all arrays.
        size: Rows and columns of the array.
        batch: Samples of the mini-batch.
        rank: Rank of a pulsed adapter; 0 for a single array.
        transfer_every: Mini-batches from one transfer of the adapter to the next; 0 for none, as
            in all operations but steps.
    """

    operation: str
    model: str
    size: int
    batch: int
    rank: int = 0
    transfer_every: int = 0

    @property
    def tile(self) -> str:
        """The tile, by device and rank, as tables name it."""
        return f"{self.model}, LRTT K={self.rank}" if self.rank else self.model

    @property
    def reads(self) -> bool:
        """Whether the case changes no weight."""
        return self.operation in ("forward", "backward")

    @property
    def dense(self) -> bool:
        """Whether the errors d are large."""
        return self.operation == "update dense"

    def device(self) -> Device:
        """The device of all arrays. ValueError if there is none of that name."""
        return presets.device(self.model)

    def config(self) -> TileConfig:
        """The configuration of the tile."""
        if not self.rank:
            return SingleConfig(device=self.device())
        return LRTTConfig(
            rank=self.rank,
            visible=self.device(),
            fast=self.device(),
            transfer_every=self.transfer_every,
            units_in_mbatch=True,
        )


def cases(
    models: Sequence[str],
    sizes: Sequence[int],
    batch: int,
    ranks: Sequence[int] = (0,),
    operations: Sequence[str] = OPERATIONS,
    transfer_every: int = 10,
) -> list[Case]:
    """All combinations of models, sizes, ranks and operations.

    Raises:
        ValueError: for a number out of range, or an unknown operation or device.
    """
    for name, values, least in (
        ("sizes", sizes, 1),
        ("batch", [batch], 1),
        ("rank", ranks, 0),
        ("transfer_every", [transfer_every], 0),
    ):
        if not values:
            raise ValueError(f"{name} must name at least one number")
        for value in values:
            require_at_least(name, value, least)
    if max(ranks) > min(sizes):
        raise ValueError(
            f"rank = {max(ranks)} exceeds the array of size {min(sizes)}; choose a lower rank"
        )
    for operation in operations:
        if operation not in OPERATIONS:
            raise ValueError(f"operation '{operation}': choose from {', '.join(OPERATIONS)}")
    made = [
        Case(
            operation,
            model,
            size,
            batch,
            rank,
            transfer_every if rank and operation == "step" else 0,
        )
        for size, model, rank, operation in itertools.product(sizes, models, ranks, operations)
    ]
    if not made:
        raise ValueError("there is nothing to measure: name at least one model and one operation")
    for case in made:
        case.device()
    return made


def work_of(case: Case, *, on_gpu: bool = False) -> Work:
    """Least bytes and operations of one call.

    A transfer sends one pulse train per component; each call counts its share of a transfer.
    """
    n, m, k = float(case.size), float(case.batch), float(case.rank)
    model = case.device().model
    read = least_work.product(n, n, m, on_gpu=on_gpu)
    if case.rank:  # reads of A and B; an update projects x and d by them, and pulses both
        factor = least_work.product(n, k, m, on_gpu=on_gpu)
        read += factor * 2.0
        update = (factor + least_work.pulses(model, n, k, m, dense=case.dense)) * 2.0
    else:
        update = least_work.pulses(model, n, n, m, dense=case.dense)
    if case.reads:
        return read
    if case.operation != "step":
        return update
    transfer = Work()
    if case.transfer_every:
        transfer = least_work.pulses(model, n, n, k, dense=True) * (1.0 / case.transfer_every)
    return read * 2.0 + update + transfer
