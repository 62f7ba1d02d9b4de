"""The random-number contract of src/rpucuda/numerics/random.h in numpy, for test oracles.

Counters, words and uniforms are exact; normals agree with the library to about 1e-6, because they
are computed in double precision.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Words = NDArray[np.uint32]
Floats = NDArray[np.float64]

_MASK32 = 0xFFFFFFFF
_MASK64 = 0xFFFFFFFFFFFFFFFF


class Purpose(enum.IntEnum):
    """Purposes of random numbers."""

    CONSTRUCT = 0
    X_PULSE = 1
    D_PULSE = 2
    X_ROUND = 3
    D_ROUND = 4
    CYCLE_NOISE = 5
    CYCLE_PULSE = 6
    WRITE_NOISE = 7
    FORWARD_INPUT_NOISE = 8
    FORWARD_OUTPUT_NOISE = 9
    FORWARD_WEIGHT_NOISE = 10
    FORWARD_INPUT_ROUND = 11
    FORWARD_OUTPUT_ROUND = 12
    BACKWARD_INPUT_NOISE = 13
    BACKWARD_OUTPUT_NOISE = 14
    BACKWARD_WEIGHT_NOISE = 15
    BACKWARD_INPUT_ROUND = 16
    BACKWARD_OUTPUT_ROUND = 17
    IO_CONSTRUCT = 18
    REINIT = 19
    DECAY = 20
    DIFFUSION = 21
    RESET = 22
    DRIFT = 23
    TRANSFER_READ = 24
    WEIGHT_INIT = 25
    USER_DRAW = 26
    WEIGHT_MODIFIER = 27
    PROGRAM = 28
    CHOPPER_SWITCH = 29
    TRANSFER_SELECT = 30
    CYCLE_NOISE_BATCH = 31
    ARRAY_SELECT = 32
    DROPOUT = 33


class Key(NamedTuple):
    """Key of one array's random numbers."""

    k0: int
    k1: int


def _mix_bits(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK64
    return x ^ (x >> 31)


def make_key(seed: int, tile: int, array: int) -> Key:
    """Key of one array of one tile."""
    place = tile << 32 | array
    key = _mix_bits(_mix_bits((seed + 0x9E3779B97F4A7C15) & _MASK64) ^ place)
    return Key(key & _MASK32, key >> 32)


def part_key(key: Key, part: int) -> Key:
    return key if part == 0 else make_key(key.k1 << 32 | key.k0, part, 0)


def philox4x32_10(counter: ArrayLike, key: Key) -> Words:
    """The Philox4x32-10 bijection of counters [..., 4]."""
    c = np.asarray(counter, dtype=np.uint64)
    c0, c1, c2, c3 = (c[..., i] for i in range(4))
    for i in range(10):
        a = np.uint64(0xD2511F53) * c0
        b = np.uint64(0xCD9E8D57) * c2
        k0 = np.uint64((key.k0 + i * 0x9E3779B9) & _MASK32)
        k1 = np.uint64((key.k1 + i * 0xBB67AE85) & _MASK32)
        low, high = np.uint64(_MASK32), np.uint64(32)
        c0, c1, c2, c3 = (b >> high) ^ c1 ^ k0, b & low, (a >> high) ^ c3 ^ k1, a & low
    return np.stack([c0, c1, c2, c3], axis=-1).astype(np.uint32)


def draw(
    key: Key, purpose: Purpose, element: ArrayLike, sample: ArrayLike, index: ArrayLike = 0
) -> Words:
    """Four random words [..., 4] for each (element, sample, index), broadcast."""
    e, s, i = (np.asarray(a, dtype=np.uint64) for a in np.broadcast_arrays(element, sample, index))
    low, shift32, shift16 = np.uint64(_MASK32), np.uint64(32), np.uint64(16)
    counter = [
        e & low,
        s & low,
        np.uint64(int(purpose) << 24) | i,
        (e >> shift32) << shift16 | s >> shift32,
    ]
    return philox4x32_10(np.stack(counter, axis=-1), key)


def uniform(words: ArrayLike) -> Floats:
    """Uniform in [0, 1), a multiple of 2^-24."""
    return (np.asarray(words, dtype=np.uint32) >> np.uint32(8)) * 2.0**-24


def uniform_open(words: ArrayLike) -> Floats:
    """Uniform in (0, 1): an odd multiple of 2^-24."""
    return (np.asarray(words, dtype=np.uint32) >> np.uint32(8) | np.uint32(1)) * 2.0**-24


def normal_pair(radius: ArrayLike, angle: ArrayLike) -> Floats:
    """Two standard normals [..., 2] from 64 bits (Box and Muller)."""
    u = np.asarray(radius, dtype=np.uint32) * 2.0**-32 + 2.0**-33
    r = np.sqrt(-2.0 * np.log(u))
    turns = 2.0 * np.pi * np.asarray(angle, dtype=np.uint32).astype(np.int32) * 2.0**-32
    return np.stack([r * np.cos(turns), r * np.sin(turns)], axis=-1)


_RADIUS = [
    float.fromhex(c)
    for c in (
        "0x1.b653b4p+4",
        "-0x1.5e95ep+2",
        "0x1.29b956p+2",
        "-0x1.09a814p+1",
        "0x1.0774bp-1",
        "-0x1.b8c24cp-5",
    )
]
_COSINE = [
    float.fromhex(c) for c in ("0x1.ffff2p-1", "-0x1.3bc5a4p+2", "0x1.02a466p+2", "-0x1.38dd52p+0")
]
_SINE = [
    float.fromhex(c) for c in ("0x1.921f6ep+1", "-0x1.4ab36ep+2", "0x1.456ac4p+1", "-0x1.1c6f1ep-1")
]


def normal_pair16(words: ArrayLike) -> Floats:
    """Two standard normals [..., 2] from 32 bits.

    The low 16 bits k give u = (k + 1/2) / 2^16 and the radius, near sqrt(-2 ln u), from the bits of
    2^-109 u as a float (exponent field 18 is u = 1) and a polynomial of its mantissa. The 15 bits
    above give half a turn h in (-1/2, 1/2); the top bit mirrors the cosine.
    """
    word = np.asarray(words, dtype=np.uint32)
    u = ((word & np.uint32(0xFFFF)) + 0.5) / 2.0**16
    bits = np.ldexp(u, -109).astype(np.float32).view(np.uint32)
    mantissa = (bits | np.uint32(0x3F800000)).view(np.float32).astype(np.float64)
    slope = float.fromhex("0x1.62eadep-23")
    r = np.sqrt(np.polynomial.polynomial.polyval(mantissa, _RADIUS) - slope * bits)
    fraction = (word >> np.uint32(16)) & np.uint32(0x7FFF)
    h = (fraction + 0.5) / 2.0**15 - 0.5
    cosine = np.polynomial.polynomial.polyval(h * h, _COSINE)
    sine = h * np.polynomial.polynomial.polyval(h * h, _SINE)
    mirror = np.where(word >> np.uint32(31), -1.0, 1.0)
    return np.stack([mirror * r * cosine, r * sine], axis=-1)


def normal_of_sample(
    key: Key, purpose: Purpose, element: ArrayLike, sample: ArrayLike, index: ArrayLike = 0
) -> Floats:
    """One standard normal per (element, sample, index); eight samples share a block of words."""
    e, s, i = np.broadcast_arrays(element, sample, index)
    block = draw(key, purpose, e, s >> 3, i)
    word = np.take_along_axis(block, (s >> 1 & 3)[..., np.newaxis], axis=-1)[..., 0]
    pair = normal_pair16(word)
    return np.take_along_axis(pair, (s & 1)[..., np.newaxis], axis=-1)[..., 0]
