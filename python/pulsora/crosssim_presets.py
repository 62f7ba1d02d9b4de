"""Programmed arrays of two memories that CrossSim has measured numbers of."""

from __future__ import annotations

from typing import Any

import numpy as np

from pulsora import noise_models
from pulsora.config import InferenceConfig

__all__ = ["SONOS", "RRAMMilo"]

_DAY = 86400.0
_NANOAMPERE = 0.01
"""Conductance in uS of a cell with a current of 1 nA: 16 uS stand for 1600 nA."""
_LAST = 1400.0
"""Current in nA from which on the mean drift is that of this current.

Above it the polynomials of degree 10 have errors by the rounding of their coefficients: the drift
after one day is -39 nA at 1400 nA, -66 nA at 1500 nA and -246 nA at 1600 nA.
"""
_CURRENTS = (0.0, 50.0, 125.0, 200.0, 275.0, 425.0, 600.0, 875.0, _LAST, 1600.0)
"""Nodes of the tables in nA. Between them, means err by 1.3 nA at most and deviations by 0.4 nA."""
_VARIABILITY = (
    (19.88665, 176.3115),
    (25.59102, 186.85544),
    (28.72753, 193.56834),
    (31.04318, 198.90332),
    (33.76214, 204.77023),
    (34.57909, 207.34309),
)
"""A and B in nA of the deviation A (1 - exp(-I / B)) at the current I after 0 to 5 days."""
_DRIFT = np.array(
    [
        [0.683650, 0.660925, 1.15821, 0.872216, 1.15294],
        [6.51250e-3, 8.60627e-3, 1.96116e-2, 1.70926e-2, 1.03149e-2],
        [-4.03163e-4, -1.72936e-4, -4.70807e-4, -2.23370e-4, -6.05199e-5],
        [3.37944e-6, 7.44096e-7, 3.67510e-6, 1.57526e-6, 1.76086e-8],
        [-1.87435e-8, -5.94866e-9, -2.08786e-8, -1.32779e-8, -6.46690e-9],
        [5.88902e-11, 2.36734e-11, 6.59752e-11, 5.08256e-11, 3.39044e-11],
        [-1.07685e-13, -4.83740e-14, -1.19499e-13, -1.01251e-13, -7.53872e-14],
        [1.17751e-16, 5.56072e-17, 1.28435e-16, 1.14633e-16, 8.98185e-17],
        [-7.60016e-20, -3.65397e-20, -8.11574e-20, -7.46124e-20, -6.00346e-20],
        [2.67255e-23, 1.28405e-23, 2.78802e-23, 2.60559e-23, 2.12615e-23],
        [-3.94954e-27, -1.87450e-27, -4.02057e-27, -3.78724e-27, -3.11099e-27],
    ]
)
"""Coefficients [power, day] of the mean drift in nA after 1 to 5 days over the current in nA."""


def RRAMMilo(**settings: Any) -> InferenceConfig:  # noqa: N802 - named as CrossSim's device
    """Pairs of resistive memory of 50 to 225 uS, with programming errors alone.

    The standard deviation is 4.782 - 0.009107 G in uS: a fit to Fig. 4 of Milo et al., "Optimized
    programming algorithms for multilevel RRAM in hardware neural networks", IRPS 2021, as CrossSim
    has it (IGVVA-100 programming). There are no numbers of drift and read noise: conductances stay.

    Args:
        **settings: Settings of the configuration that differ.
    """
    ends = (50.0, 225.0)
    memory = noise_models.PowerLaw(
        g_min=ends[0],
        g_max=ends[1],
        g=[end / ends[1] for end in ends],
        sigma=[4.782321 - 0.009107 * end for end in ends],
        nu_mean=[0.0, 0.0],
        nu_std=[0.0, 0.0],
        read_noise=[0.0, 0.0],
    )
    return InferenceConfig(**({"noise_model": memory} | settings))


def SONOS(**settings: Any) -> InferenceConfig:  # noqa: N802 - named as CrossSim's device
    """Pairs of charge-trapping cells (40 nm SONOS) of up to 1600 nA, measured for five days.

    Mean drift and spread of 128000 devices, from Fig. 10 of Agrawal et al., "Subthreshold operation
    of SONOS analog memory to enable accurate low-power neural network inference", IEDM 2022, by the
    fits in CrossSim. 16 uS stand for 1600 nA. Drift and spread are those of programming in the
    first minute, and linear in ln t between it and the days (in CrossSim: in t). A device keeps its
    deviation. Above 1400 nA the fit of the mean is not used, because its coefficients are rounded.
    Read noise, which is drawn for each read, is left out; its deviation is 12.58 (1 - exp(-I /
    215.4)) nA: `forward=pl.IOParameters(w_noise=...)`. Times after five days are refused.

    Args:
        **settings: Settings of the configuration that differ.
    """
    currents = np.minimum(_CURRENTS, _LAST)
    drift = np.zeros((6, len(currents)))
    drift[1:] = np.polynomial.polynomial.polyval(currents, _DRIFT)
    scale, decay = np.array(_VARIABILITY).T[:, :, None]
    reached = np.maximum(_CURRENTS + drift, 0.0)
    deviation = scale * (1.0 - np.exp(-reached / decay))
    memory = noise_models.Shift(
        g_max=_CURRENTS[-1] * _NANOAMPERE,
        g=[current / _CURRENTS[-1] for current in _CURRENTS],
        times=[60.0, *(_DAY * day for day in range(1, 6))],
        shift=(_NANOAMPERE * drift).ravel().tolist(),
        sigma=(_NANOAMPERE * deviation).ravel().tolist(),
        persistence=1.0,
    )
    return InferenceConfig(**({"noise_model": memory} | settings))
