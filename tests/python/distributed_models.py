"""Small models and data for the trainings by several processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

import pulsora as pl
from pulsora.nn import AnalogLinear

if TYPE_CHECKING:
    from torch import Tensor

SINGLE = pl.SingleConfig(device=pl.devices.SoftBounds(dw_min=0.002, lifetime=50.0, diffusion=1e-3))
LR = 0.1


def data(step: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1000 + step))


def labels(step: int, rows: int, classes: int = 6) -> Tensor:
    return torch.randint(classes, (rows,), generator=torch.Generator().manual_seed(step))


def mlp(config: pl.TileConfig = SINGLE, **options: Any) -> nn.Sequential:
    torch.manual_seed(5)
    options = {"max_input_size": 7} | options
    return nn.Sequential(
        AnalogLinear(12, 16, config=config, **options),
        nn.ReLU(),
        AnalogLinear(16, 6, config=config, **options),
    )


def perfect() -> pl.TileConfig:
    """Weights in floating point: what depends on their rounding shows no more than that."""
    io = pl.IOParameters(is_perfect=True)
    return pl.IdealConfig(forward=io, backward=io)
