"""Pulse trains and their coincidences in numpy: an oracle for src/rpucuda/pulses/bit_line_maker.h.

Probabilities are computed in double precision, the library's in single: a slot may differ if its
random word lies within 1e-7 of the threshold, which does not happen in the small cases of the
tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from reference_random import Purpose, draw

if TYPE_CHECKING:
    from reference_random import Key

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SECOND_PASS_SLOT = 1 << 20
"""In the two-pass pulse type, d lines draw the slots for negative x from here on."""


@dataclass(frozen=True)
class Update:
    """Parameters of the pulsed update; names and defaults are the library's."""

    pulse_type: str = "stochastic_compressed"
    desired_bl: int = 31
    fixed_bl: bool = True
    update_management: bool = True
    update_bl_management: bool = True
    um_grad_scale: float = 1.0


def train_scale(
    p: Update, lr: float, granularity: float, x_max: float, d_max: float
) -> tuple[int, float, float]:
    """Length of one sample's pulse trains, and the factors from |x| and |d| to probabilities."""
    if lr == 0 or x_max == 0 or d_max == 0:
        return 0, 0.0, 0.0
    length = float(p.desired_bl)
    if not p.fixed_bl and not p.update_bl_management and lr > granularity * length:
        length = float(np.ceil(lr / granularity))
    d_scaled = p.um_grad_scale * d_max
    strength = lr * x_max * d_scaled / granularity
    if p.update_bl_management:
        length = min(float(np.ceil(strength)), length)
    base = float(np.sqrt(lr / (granularity * length)))
    if not (p.update_management or p.update_bl_management):
        return int(length), base, base
    if strength > length:
        d_scaled *= length / strength
    ratio = float(np.sqrt(d_scaled / x_max))
    return int(length), base * ratio, base / ratio


def _fires(
    key: Key, purpose: Purpose, sample: int, probability: Floats, length: int, first_slot: int = 0
) -> NDArray[np.bool_]:
    """Whether each line fires in each slot, [lines, slots]."""
    lines = np.arange(probability.size)[:, np.newaxis]
    slots = first_slot + np.arange(length)
    words = draw(key, purpose, lines, sample // 4, slots)[..., sample % 4]
    fires: NDArray[np.bool_] = (words >> np.uint32(1)) < np.floor(probability * 2.0**31)[
        :, np.newaxis
    ]
    return fires


def counts(
    p: Update, x: Floats, d: Floats, lr: float, granularity: float, key: Key, first_sample: int = 0
) -> Ints:
    """Signed coincidences [samples, d lines, x lines]; positive steps a cell up."""
    out = np.zeros((len(x), d.shape[1], x.shape[1]), dtype=np.int64)
    for s, (xs, ds) in enumerate(zip(x, d, strict=True)):
        length, x_scale, d_scale = train_scale(
            p, abs(lr), granularity, np.abs(xs).max(), np.abs(ds).max()
        )
        if length == 0:
            continue
        q_x = np.minimum(x_scale * np.abs(xs), 1.0)
        q_d = np.minimum(d_scale * np.abs(ds), 1.0)
        direction = -np.sign(lr) * np.sign(ds)[:, np.newaxis] * np.sign(xs)
        if p.pulse_type == "deterministic_implicit":
            n = np.rint(length * np.outer(q_d, q_x))
        elif p.pulse_type == "mean_count":
            n = np.rint(np.outer(np.rint(length * q_d), np.rint(length * q_x)) / length)
        else:
            sample = first_sample + s
            fires_x = _fires(key, Purpose.X_PULSE, sample, q_x, length).astype(np.int64)
            fires_d = _fires(key, Purpose.D_PULSE, sample, q_d, length).astype(np.int64)
            n = fires_d @ fires_x.T
            if p.pulse_type == "stochastic":
                second = _fires(key, Purpose.D_PULSE, sample, q_d, length, SECOND_PASS_SLOT)
                n = np.where(xs < 0, second.astype(np.int64) @ fires_x.T, n)
        out[s] = (direction * n).astype(np.int64)
    return out
