"""Reads in integers have the bits of the CPU on a GPU, in every kernel that reads an array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pulsora as pl

pytestmark = pytest.mark.skipif(
    not (torch.cuda.is_available() and pl.cuda_device_count() > 0),
    reason="no GPU that torch and this build of Pulsora can use",
)
# Samples, inputs and outputs for each kernel: few long and many short rows, few outputs, groups of
# rows, products of small and large blocks, of several parts, of sizes that are no multiple of four
# (of short rows, also numbers of samples that are no multiple of eight).
SHAPES = [
    (1, 784, 256),
    (3, 4000, 7),
    (700, 300, 40),
    (40, 300, 200),
    (4200, 25, 16),
    (4203, 25, 6),
    (4101, 70, 5),
    (4097, 9, 33),
    (64, 1024, 640),
    (70, 514, 1027),
    (3000, 260, 516),
    (9, 20000, 36),
    (600, 129, 1031),
]
READS: dict[str, dict[str, Any]] = {
    "24 bits": {"weight_bits": 24},
    "16 bits": {"weight_bits": 16},
    "two bytes": {"weight_bits": 24, "inp_res": 1 / 4094},
    "asymmetric": {
        "weight_bits": 24,
        "inp_asymmetry": 0.1,
        "w_noise": 0.01,
        "w_noise_type": "additive_constant",
    },
    "repeated": {"weight_bits": 24, "out_bound": 2.0, "bm_backward": True},
    "repeated, two bytes": {
        "weight_bits": 16,
        "inp_res": 1 / 4094,
        "out_bound": 1.0,
        "bm_backward": True,
    },
}
KINDS = {
    "single": lambda **io: pl.SingleConfig(device=pl.devices.SoftBounds(), **io),
    "lrtt": lambda **io: pl.LRTTConfig(
        visible=pl.devices.SoftBounds(), rank=5, transfer_every=3, **io
    ),
}


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize("read", list(READS))
@pytest.mark.parametrize("kind", list(KINDS))
def test_reads_and_updates_have_the_bits_of_the_cpu(
    kind: str, read: str, shape: tuple[int, int, int]
) -> None:
    samples, inputs, outputs = shape
    io = pl.IOParameters(**READS[read])
    rng = np.random.default_rng(7)
    weights = rng.uniform(-0.4, 0.4, (outputs, inputs)).astype(np.float32)
    x = rng.uniform(-1, 1, (3, samples, inputs)).astype(np.float32)
    d = rng.uniform(-0.1, 0.1, (3, samples, outputs)).astype(np.float32)
    results = []
    for device in ("cpu", "cuda:0"):
        tile = pl.Tile(outputs, inputs, KINDS[kind](forward=io, backward=io), seed=4, device=device)
        tile.weights = weights
        seen = []
        for step in range(3):
            x_of, d_of = (torch.from_numpy(each[step]).to(device) for each in (x, d))
            seen += [
                torch.from_dlpack(each).cpu().numpy()
                for each in (tile.forward(x_of), tile.backward(d_of))
            ]
            tile.update(x_of[:40], d_of[:40], lr=0.05)
        results.append(seen)
    for on_cpu, on_gpu in zip(*results, strict=True):
        np.testing.assert_array_equal(on_gpu, on_cpu)
