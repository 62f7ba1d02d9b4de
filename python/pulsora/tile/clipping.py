"""Warnings about written weights that were clipped to the bounds of their cells."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pulsora.config import TileConfig
    from pulsora.tile.arrays import Array, Matrix

__all__ = ["on_host", "warn_of_clipping"]


def on_host(weights: Array) -> Matrix | None:
    """Returns an array that a tile has read as a NumPy array; None if it exports only once."""
    host = weights.cpu() if hasattr(weights, "cpu") else weights
    if isinstance(host, np.ndarray):
        return np.asarray(host)
    try:
        shared: Matrix = np.from_dlpack(host)  # type: ignore[assignment] # of any type
    except Exception:  # noqa: BLE001 - a second export may raise anything
        return None
    return shared


def warn_of_clipping(
    config: TileConfig,
    wanted: Matrix | None,
    written: Matrix,
    stacklevel: int = 3,
    remedy: str | None = None,
    share: float = 0.01,
) -> None:
    """Warns if more than `share` of the written weights were clipped to bounds of cells.

    `wanted` is None if the weights before clipping are no longer known.
    """
    if wanted is None:
        return
    written_to = next(iter(config.devices().values()), None)
    if written_to is not None and written_to.write_noise_std > 0.0:
        return  # what is read differs from what was written anyway
    # Clipped weights are smaller than wanted ones; the noise of an adapter's write is not counted.
    largest = float(np.abs(wanted).max(initial=0.0))
    count = int(np.count_nonzero(np.abs(wanted) - np.abs(written) > 1e-3 * largest))
    # If bounds spread, a few cells have narrow bounds, which is no reason to warn.
    if count > share * wanted.size:
        warnings.warn(
            f"{count} of {wanted.size} weights (up to {largest:.3g}) lie "
            "outside the bounds of their cells and were confined to them; "
            + (remedy or "choose a device with a larger w_max or scale the weights down"),
            stacklevel=stacklevel,
        )
