"""Programmed arrays in numpy, from docs/reference/inference.md: draws, phase-change memory."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from reference_random import Purpose, draw, make_key, normal_pair16, uniform

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from reference_random import Key


_MASK32 = 0xFFFFFFFF
CELLS = 0
"""Number of the stream of random numbers of the cells of the first array of a tile."""


def key_for(key: Key, number: int) -> Key:
    """Key of a number of 64 bits under another key."""
    return make_key(key.k1 << 32 | key.k0, number >> 32, number & _MASK32)


def bits_of(time: float) -> int:
    """The bits of a time as a double."""
    return int(struct.unpack("<Q", struct.pack("<d", time))[0])


def normals(key: Key, purpose: Purpose, devices: int, number: int) -> NDArray[np.float64]:
    """One normal for each device: a block of random words serves eight."""
    blocks = -(-devices // 8)
    words = draw(key, purpose, np.arange(blocks), number)
    return normal_pair16(words).reshape(-1)[:devices]


def stuck(key: Key, devices: int) -> NDArray[np.float64]:
    """One uniform for each device: two blocks of four serve eight."""
    blocks = -(-devices // 8)
    words = [draw(key, Purpose.PROGRAM, np.arange(blocks), 0, index) for index in (1, 2)]
    return uniform(np.stack(words, axis=1)).reshape(-1)[:devices]


def pcm(
    target: NDArray[np.float64],
    seed: int,
    tile_id: int,
    point: tuple[int, float, int],
    g_max: float = 25.0,
    stream: int = CELLS,
) -> dict[str, NDArray[np.float64]]:
    """Conductances of phase-change memory devices, in the order of their numbers."""
    number, time, redraw = point
    key = make_key(seed, tile_id, stream)
    reading = key_for(key_for(key, bits_of(time)), redraw)
    n = target.size
    g = target / g_max
    sigma = (0.26348 + 1.9650 * g - 1.1731 * g**2) * g_max / 25
    programmed = np.maximum(target + sigma * normals(key, Purpose.PROGRAM, n, number), 0)
    logarithm = np.log(np.maximum(g, 1e-7))
    mean = np.clip(-0.0155 * logarithm + 0.0244, 0.049, 0.1)
    spread = np.clip(-0.0125 * logarithm - 0.0059, 0.008, 0.045)
    nu = np.abs(mean + spread * normals(key, Purpose.DRIFT, n, number))
    drifted = programmed * ((time + 20) / 20) ** -nu
    q = np.minimum(0.0088 / np.maximum((programmed / g_max) ** 0.65, 0.001), 0.2)
    growth = np.sqrt(np.log((time + 20 + 250e-9) / 500e-9))
    now = drifted + drifted * q * growth * normals(reading, Purpose.PROGRAM, n, number)
    return {"programmed": programmed, "now": np.maximum(now, 0), "stuck": stuck(key, n)}
