"""Networks on the tiles of AIHWKit, for benchmarks that compare AIHWKit with Pulsora."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aihwkit.nn.conversion import convert_to_analog
from aihwkit.optim import AnalogSGD
from aihwkit.simulator.configs import (
    SingleRPUConfig,
    SoftBoundsDevice,
    TransferCompound,
    UnitCellRPUConfig,
)
from aihwkit.simulator.parameters import MappingParameter

if TYPE_CHECKING:
    from torch import nn


def on_aihwkit_tiles(
    model: nn.Module, kind: str, limit: int, lr: float
) -> tuple[nn.Module, AnalogSGD]:
    """The model on tiles of up to `limit` lines (0: any number), with its optimiser.

    Args:
        model: A digital network.
        kind: "SoftBounds", or "TTv1", Tiki-Taka on two arrays of such devices.
        limit: The largest side of a tile.
        lr: The learning rate.

    All else is that package's default.
    """
    mapping = MappingParameter(max_input_size=limit, max_output_size=limit)
    device = SoftBoundsDevice()
    config = (
        UnitCellRPUConfig(
            device=TransferCompound(unit_cell_devices=[device, device]), mapping=mapping
        )
        if kind == "TTv1"
        else SingleRPUConfig(device=device, mapping=mapping)
    )
    analog = convert_to_analog(model, config)
    optimizer = AnalogSGD(analog.parameters(), lr=lr)
    optimizer.regroup_param_groups(analog)
    return analog, optimizer
