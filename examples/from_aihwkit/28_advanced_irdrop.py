"""AIHWKit's example 28: the voltage that is lost along wires, for three ways to send inputs.

Inputs of 10 bits are sent at once, in two parts, or bit by bit; shifts and sums are digital. The
loss grows with the inputs that are on at a time. Bits that are 1 load a line more than inputs of
the same bits at once. Pulsora's IR drop has no time within a read (see docs/reference/io.md).
"""

import numpy as np

import pulsora as pl

FEATURES, BITS = 512, 9  # and a sign
levels = 2**BITS - 1
rng = np.random.default_rng(0)
weights = np.clip(rng.standard_normal((FEATURES, FEATURES)) / 3, -1, 1).astype(np.float32)
x = np.clip(rng.standard_normal((10, FEATURES)) / 3, -1, 1)
code = np.rint(np.abs(x) * levels).astype(int)
sign = np.sign(x)


def made(ir_drop: float) -> pl.Tile:
    """A programmed tile with exact converters and devices."""
    reads = pl.IOParameters(
        ir_drop=ir_drop, inp_res=0.0, out_res=0.0, out_noise=0.0, out_bound=0.0,
        noise_management="none", bound_management="none",
    )  # fmt: skip
    memory = pl.noise_models.PCMLike(g_max=15.0, prog_noise_scale=0.0, read_noise_scale=0.0)
    config = pl.InferenceConfig(noise_model=memory, compensation="none", forward=reads)
    tile = pl.Tile(FEATURES, FEATURES, config, seed=1)
    tile.weights = weights
    tile.programming.program()
    return tile


def product(tile: pl.Tile, shifts: list[int], bits: int) -> np.ndarray:
    """The product, of groups of bits that are sent one after another."""
    total = np.zeros((len(x), FEATURES))
    for shift in shifts:
        group = (code >> shift) % 2**bits
        sent = (sign * group / (2**bits - 1)).astype(np.float32)
        total += tile.forward(sent) * (2**bits - 1) * 2.0**shift
    return total / levels


wanted = (sign * code / levels) @ weights.T
ways = {"at once": ([0], 9), "in two parts": ([0, 5], 5), "bit by bit": (list(range(9)), 1)}
tiles = {drop: made(drop) for drop in (0.0, 1.0)}
errors = {}
for name, (shifts, bits) in ways.items():
    for drop, tile in tiles.items():
        found = product(tile, shifts, bits)
        errors[name, drop] = np.std(found - wanted) / np.std(wanted)
    print(f"{name:13} {len(shifts)} reads, error {errors[name, 1.0]:.4f}")
    assert errors[name, 0.0] < 1e-5
assert errors["in two parts", 1.0] < errors["at once", 1.0] < errors["bit by bit", 1.0]
