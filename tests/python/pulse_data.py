"""Measurements of simulated cells, with read noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import pulsora as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

ONE_PULSE = pl.UpdateParameters(desired_bl=1, update_management=False, update_bl_management=False)


def measured(
    device: pl.devices.Device, cells: int = 20, pulses: int = 60, read: float = 0.02, seed: int = 1
) -> tuple[Array, Array]:
    """Readings of an up and then a down trace from the lower bound on, each [cells, pulses + 1]."""
    tile = pl.Tile(cells, 1, pl.SingleConfig(device=device, update=ONE_PULSE), seed=seed, threads=1)
    rng = np.random.default_rng(seed)
    tile.visible = np.full((cells, 1), device.w_min, np.float32)
    traces = []
    for way in (-1.0, 1.0):
        rows = [tile.weights[:, 0].astype(np.float64)]
        for _ in range(pulses):
            tile.update(np.ones(1, np.float32), np.full(cells, way, np.float32), lr=1e15)
            rows.append(tile.weights[:, 0].astype(np.float64))
        traces.append(np.array(rows).T + read * rng.standard_normal((cells, pulses + 1)))
    return traces[0], traces[1]
