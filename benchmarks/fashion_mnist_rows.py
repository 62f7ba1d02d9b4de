"""Rows of the Fashion-MNIST table: the configuration of layer 1, and its reference accuracy."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pulsora as pl

if TYPE_CHECKING:
    from collections.abc import Callable

EPOCHS, BATCH, HIDDEN = 5, 128, 256
MARGIN = 0.8  # points that a row may stay below its reference
PERFECT = {
    "forward": pl.IOParameters(is_perfect=True),
    "backward": pl.IOParameters(is_perfect=True),
}
CYCLE = {"transfer_every": 100, "units_in_mbatch": True}
# The rules that the references followed.
RULES = {"ab_lr_scale": "alpha", "transfer_mode": "lossless", "reinit": "kaiming"}
DIGITAL = pl.UpdateParameters(pulse_type="none")


def device(dw_min: float, spread: float = 0.0) -> pl.devices.Device:
    """ConstantStep between +-1 with the same relative spread of everything that spreads."""
    return pl.devices.ConstantStep(
        dw_min=dw_min,
        dw_min_dtod=spread,
        dw_min_std=spread,
        w_max=1.0,
        w_min=-1.0,
        w_max_dtod=spread,
        w_min_dtod=spread,
        up_down_dtod=0.0,
    )


def pulsed(dw_min: float) -> pl.SingleConfig:
    """Full-rank pulsed SGD."""
    return pl.SingleConfig(device=device(dw_min), **PERFECT)


def lrtt(dw_min: float, rank: int = 16, spread: float = 0.0, **settings: Any) -> pl.LRTTConfig:
    """A pulsed adapter on a pulsed array."""
    cells = {"visible": device(dw_min, spread), "fast": device(dw_min, spread)}
    return pl.LRTTConfig(rank=rank, **(RULES | cells | CYCLE | PERFECT | settings))


def digital_lrtt(rank: int = 16, **settings: Any) -> pl.LRTTConfig:
    """The adapter's algorithm in floating point."""
    return lrtt(2e-4, rank, update=DIGITAL, transfer_mode="exact", **settings)


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        name: What it is.
        reference: Accuracy (%) of an independent prototype with the same protocol, or None.
        config: Makes the configuration of layer 1.
        frozen: Whether layer 1 does not learn.
        seeds: The row is run with each of these.
    """

    name: str
    reference: float | None
    config: Callable[[], pl.TileConfig]
    frozen: bool = False
    seeds: tuple[int, ...] = (0,)

    @property
    def gate(self) -> float | None:
        """The accuracy (%) from which the row passes."""
        return None if self.reference is None else self.reference - MARGIN

    def settings(self) -> list[Any]:
        """The settings that a stored result must agree with."""
        protocol = [EPOCHS, BATCH, HIDDEN, self.frozen]
        settings: list[Any] = json.loads(json.dumps([protocol, self.config().to_dict()]))
        return settings


ROWS = [  # in the order in which they are run
    Row("full-rank digital", 83.94, lambda: pl.IdealConfig(**PERFECT), seeds=(0, 1, 2)),
    Row("layer 1 frozen", 75.88, lambda: pl.IdealConfig(**PERFECT), frozen=True),
    Row("LRTT pulsed K=16, dw 2e-4", 83.77, lambda: lrtt(2e-4), seeds=(0, 1, 2)),
    Row("full-rank pulsed, dw 2e-4", 84.02, lambda: pulsed(2e-4), seeds=(0, 1, 2)),
    Row("LRTT digital K=16", 83.67, digital_lrtt),
    Row("LRTT pulsed K=4, dw 2e-4", 82.72, lambda: lrtt(2e-4, 4)),
    Row("LRTT pulsed K=64, dw 2e-4", 83.72, lambda: lrtt(2e-4, 64)),
    Row(
        "LRTT pulsed K=16, dw 2e-4, single train",
        83.19,
        lambda: lrtt(2e-4, transfer_mode="single"),
    ),
    Row("full-rank pulsed, dw 2e-3", 83.69, lambda: pulsed(2e-3)),
    Row("LRTT digital K=16, alpha 1", 78.00, lambda: digital_lrtt(lora_alpha=1.0)),
    Row("LRTT digital K=16, lr without alpha", 80.69, lambda: digital_lrtt(ab_lr_scale="none")),
    Row("LRTT pulsed K=16, dw 2e-4, every 10", 83.59, lambda: lrtt(2e-4, transfer_every=10)),
    Row("LRTT pulsed K=16, dw 2e-4, every 1000", 85.33, lambda: lrtt(2e-4, transfer_every=1000)),
    Row("LRTT pulsed K=16, dw 2e-5", 83.49, lambda: lrtt(2e-5)),
    Row(
        "LRTT pulsed K=16, dw 2e-5, single train",
        81.09,
        lambda: lrtt(2e-5, transfer_mode="single"),
    ),
    Row("LRTT pulsed K=16, dw 2e-4, all spreads 30 %", None, lambda: lrtt(2e-4, spread=0.3)),
    Row("LRTT digital K=4", 82.64, lambda: digital_lrtt(4)),
    Row("LRTT digital K=64", 83.87, lambda: digital_lrtt(64)),
    Row("LRTT digital K=16, every 1000", 85.53, lambda: digital_lrtt(transfer_every=1000)),
    Row("LRTT digital K=16, no transfer", 85.60, lambda: digital_lrtt(transfer_every=0)),
    Row("LRTT pulsed K=16, dw 2e-3", 83.33, lambda: lrtt(2e-3)),
    Row(
        "6T1C adapter K=16, ideal W",
        83.35,
        lambda: lrtt(2e-4, fast=pl.presets.SixT1C(), transfer_mode="exact"),
    ),
]
