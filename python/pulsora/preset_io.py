"""The periphery of the presets."""

from __future__ import annotations

from typing import Any

from pulsora.config import IOParameters


def io(**changes: Any) -> IOParameters:
    """The periphery of the configurations below: 7-bit DAC, 9-bit ADC, bound 20, noise 0.1."""
    numbers = {"inp_res": 1 / 126, "out_res": 1 / 510, "out_bound": 20.0, "out_noise": 0.1}
    return IOParameters(**(numbers | changes))
