"""Networks on the tiles of AIHWKit, for benchmarks that compare AIHWKit with Pulsora."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aihwkit.nn.conversion import convert_to_analog
from aihwkit.optim import AnalogSGD
from aihwkit.simulator.configs import (
    BufferedTransferCompound,
    ChoppedTransferCompound,
    DigitalRankUpdateRPUConfig,
    DynamicTransferCompound,
    MixedPrecisionCompound,
    SingleRPUConfig,
    SoftBoundsDevice,
    TransferCompound,
    UnitCellRPUConfig,
)
from aihwkit.simulator.parameters import IOParameters, MappingParameter

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from torch import Tensor, nn


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


def update_of_aihwkit_tile(kind: str, x: Tensor, d: Tensor, lr: float) -> Callable[[], None] | None:
    """Returns a function that makes an update of a tile; None for a kind that is not there.

    Args:
        kind: "single array", "Tiki-Taka v1", "TTv2", "c-TTv2", "AGAD", with a transfer after each
            sample, or "mixed precision".
        x: Inputs [samples, in_features].
        d: Errors [samples, out_features].
        lr: The learning rate.

    Devices are SoftBounds with dw_min = 0.01, and reads of transfers are perfect. All else is that
    package's default.
    """
    config = _compound(kind)
    if config is None:
        return None
    tile = config.get_default_tile_module_class()(d.shape[1], x.shape[1], config)
    tile.set_learning_rate(lr)
    return lambda: tile.update(x, d)


def _compound(kind: str) -> Any:  # noqa: ANN401 - of a package without types
    device = SoftBoundsDevice(dw_min=0.01)
    if kind == "single array":
        return SingleRPUConfig(device=device)
    if kind == "mixed precision":
        return DigitalRankUpdateRPUConfig(device=MixedPrecisionCompound(device=device))
    compounds = {
        "Tiki-Taka v1": (TransferCompound, {}),
        "TTv2": (BufferedTransferCompound, {}),
        "c-TTv2": (ChoppedTransferCompound, {"fast_lr": 0.01}),
        "AGAD": (DynamicTransferCompound, {"fast_lr": 0.01}),
    }
    if kind not in compounds:
        return None
    compound, options = compounds[kind]
    return UnitCellRPUConfig(
        device=compound(
            unit_cell_devices=[device, device],
            transfer_every=1,
            units_in_mbatch=False,
            transfer_forward=IOParameters(is_perfect=True),
            **options,
        )
    )
