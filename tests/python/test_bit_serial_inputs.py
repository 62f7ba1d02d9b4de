"""Inputs bit by bit, through converters that are exact behind the array: the read of one pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pulsora as pl

X = np.sin(0.7 * np.arange(5 * 24)).reshape(5, 24).astype(np.float32)
W = (0.4 * np.cos(1.9 * np.arange(9 * 24))).reshape(9, 24).astype(np.float32)


def read(config: Any, **settings: Any) -> np.ndarray:  # noqa: ANN401
    """A read of X by an array whose inputs have levels, and whose outputs are not converted."""
    forward = pl.IOParameters(
        out_res=0, out_noise=0, out_bound=0, inp_bound=1, bound_management="none", **settings
    )
    tile = pl.Tile(9, 24, config.replace(forward=forward), seed=2)
    tile.weights = W
    if tile.programming is not None:
        tile.programming.program(3)
        tile.programming.drift(3600.0)
    return tile.forward(X)


@pytest.mark.parametrize("config", [pl.IdealConfig(), pl.InferenceConfig()], ids=["W", "array"])
@pytest.mark.parametrize("kind", ["bit_serial", "bit_serial_analog_sum"])
@pytest.mark.parametrize("slice_bits", [1, 2, 3])
@pytest.mark.parametrize("steps", [14, 62, 126, 510])
def test_property_73_inputs_in_bits_through_exact_converters_are_one_pass(
    config: Any,  # noqa: ANN401
    kind: str,
    slice_bits: int,
    steps: int,
) -> None:
    one = read(config, inp_res=1 / steps)
    bits = read(config, inp_res=1 / steps, mv_type=kind, input_slice_bits=slice_bits)
    assert np.abs(bits - one).max() < 2e-6 * np.abs(one).max()
    # Levels matter: the read of one pass without them is another.
    assert np.abs(read(config, inp_res=0) - one).max() > 1e-3 / steps
    # An ADC with few steps sees each bit alone, or their sum, and differs.
    coarse = {"inp_res": 1 / steps, "out_res": 1 / 14, "out_bound": 12.0}
    config = config.replace()
    forward = pl.IOParameters(
        inp_bound=1, out_noise=0, bound_management="none", mv_type=kind,
        input_slice_bits=slice_bits, **coarse,
    )  # fmt: skip
    tile = pl.Tile(9, 24, config.replace(forward=forward), seed=2)
    tile.weights = W
    assert np.abs(tile.forward(X) - one).max() > 1e-2 * np.abs(one).max()
