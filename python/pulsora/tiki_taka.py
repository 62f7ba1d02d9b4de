"""Tiki-Taka and its successors by name: `TransferConfig`s with the settings of their papers.

    config = pl.AGAD(visible=pl.devices.EcRam())            # a fast array like the visible one
    config = pl.TTv2(visible=..., fast=[...], momentum=0.0)  # any setting of TransferConfig

docs/reference/transfers.md defines what each of them does, and has sources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsora.config import TransferConfig, UpdateParameters
from pulsora.devices import Device

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["AGAD", "ChoppedTTv2", "TTv2", "TikiTaka"]


def _chain(
    visible: Device, fast: Sequence[Device] | Device | None, **settings: Any
) -> TransferConfig:
    if fast is None:
        fast = [visible]
    elif isinstance(fast, Device):
        fast = [fast]
    return TransferConfig(visible=visible, fast=fast, **settings)


def _counted() -> UpdateParameters:
    return UpdateParameters(desired_bl=1, update_management=False, update_bl_management=False)


def TikiTaka(
    visible: Device, fast: Sequence[Device] | Device | None = None, **settings: Any
) -> TransferConfig:
    """Tiki-Taka v1: reads of the fast array are written onto the next one at once, by pulse trains.

    Args:
        visible: Device of the slowest array, which holds written weights.
        fast: Devices of the other arrays, the fastest first; one like `visible` by default.
        settings: Settings of `TransferConfig`. By default one column is read after each mini-batch.

    Source: Gokmen & Haensch, Front. Neurosci. 14:103 (2020).
    """
    return _chain(visible, fast, **settings)


def TTv2(
    visible: Device, fast: Sequence[Device] | Device | None = None, **settings: Any
) -> TransferConfig:
    """Tiki-Taka v2: a digital buffer adds up reads, and writes a pulse where it exceeds a step.

    Args:
        visible: Device of the slowest array, which holds written weights.
        fast: Devices of the other arrays, the fastest first; one like `visible` by default.
        settings: Settings of `TransferConfig`. By default one column is read after each mini-batch.

    Source: Gokmen, Front. Artif. Intell. 4:699148 (2021).
    """
    defaults = {"buffer": "sum", "transfer_update": _counted()}
    return _chain(visible, fast, **(defaults | settings))


def ChoppedTTv2(
    visible: Device, fast: Sequence[Device] | Device | None = None, **settings: Any
) -> TransferConfig:
    """c-TTv2: as Tiki-Taka v2, with inputs whose signs change at random between reads of a line.

    What a fast array has by itself, such as a symmetric point that is not 0, then adds to the
    buffer with either sign.

    Args:
        visible: Device of the slow array, which holds written weights.
        fast: Device of the fast array; one like `visible` by default.
        settings: Settings of `TransferConfig`. By default one column is read after each sample, and
            `fast_lr` is the learning rate of the fast array itself.

    Source: Rasch, Carta, Fagbohungbe & Gokmen, Nat. Commun. 15:7133 (2024).
    """
    defaults = {
        "buffer": "chopped",
        "transfer_update": _counted(),
        "units_in_mbatch": False,
        "scale_fast_lr": False,
        "momentum": 0.0,
    }
    return _chain(visible, fast, **(defaults | settings))


def AGAD(
    visible: Device, fast: Sequence[Device] | Device | None = None, **settings: Any
) -> TransferConfig:
    """AGAD: as c-TTv2, with a running mean of reads as the reference of each cell.

    The reference is taken whenever a line changes its sign, so that the fast array needs no
    symmetric point that is known or 0.

    Args:
        visible: Device of the slow array, which holds written weights.
        fast: Device of the fast array; one like `visible` by default.
        settings: Settings of `TransferConfig`. By default one column is read after each sample,
            signs change after every 10 reads of a line, and `fast_lr` is the learning rate of the
            fast array itself.

    Source: Rasch, Carta, Fagbohungbe & Gokmen, Nat. Commun. 15:7133 (2024).
    """
    defaults = {
        "buffer": "dynamic",
        "transfer_update": _counted(),
        "units_in_mbatch": False,
        "scale_fast_lr": False,
        "momentum": 0.0,
        "in_chop_random": False,
    }
    return _chain(visible, fast, **(defaults | settings))
