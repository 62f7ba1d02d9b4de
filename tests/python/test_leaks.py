"""Models that are made, trained and dropped leave no memory behind."""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import pulsora as pl
from conftest import DEVICES
from pulsora.nn import AnalogConv2d, AnalogLinear
from pulsora.optim import AnalogOptimizer
from pulsora.training_step import TrainingStep

needs_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="reads the memory of the process from Linux"
)

CONFIGS = {
    "single": pl.SingleConfig(),
    "lrtt": pl.LRTTConfig(rank=4, transfer_every=2),
    "ttv2": pl.TTv2(pl.devices.SoftBounds()),
    "mixed precision": pl.MixedPrecisionConfig(),
    "inference": pl.InferenceConfig(),
}
FIRST = 30
ALLOWED = 0.07 * 2**20
"""Bytes of growth a model after the first ones, on average. Its weights alone are 0.25 MiB."""


def life(config: pl.TileConfig, device: str) -> None:
    """Makes a model, trains it, saves its state, and programs it if it can be."""
    model = nn.Sequential(
        AnalogConv2d(1, 4, 5, config=config, seed=1), nn.ReLU(), nn.Flatten(),
        AnalogLinear(4 * 64, 256, config=config, seed=2), nn.Tanh(), nn.Linear(256, 10),
    ).to(device)  # fmt: skip
    optimizer = AnalogOptimizer(torch.optim.Adam, model.parameters(), lr=0.01, analog_lr=0.1)
    step = TrainingStep(model, optimizer, nn.functional.cross_entropy)
    x, target = torch.rand(4, 1, 12, 12, device=device), torch.arange(4, device=device)
    for _ in range(4):  # the last ones are recorded on a GPU
        step(x, target)
    model.load_state_dict(model.state_dict())
    model.eval()
    if isinstance(config, pl.InferenceConfig):
        pl.program(model)
        pl.drift(model, 3600.0)
    with torch.no_grad():
        model(x)


def bytes_of_process() -> int:
    """Resident memory of this process, after what is free went back to the system."""
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def bytes_of_torch() -> int:
    """Memory of the GPU that torch's allocator has lent, to tiles as well."""
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated()


def bytes_of_card() -> int:
    """Memory in use on the GPU, by all that use it."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    free, whole = torch.cuda.mem_get_info()
    return whole - free


@needs_linux
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("models", [60, pytest.param(200, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("kind", CONFIGS)
def test_dropped_models_leave_no_memory(kind: str, models: int, device: str) -> None:
    looks = [bytes_of_process]
    if device == "cuda":  # by day, other tests use the card as well
        looks.append(bytes_of_torch if models < 200 else bytes_of_card)
    seen = []
    for count in (FIRST, models):
        for _ in range(count):
            life(CONFIGS[kind], device)
        gc.collect()
        seen.append([look() for look in looks])
    for look, before, after in zip(looks, *seen, strict=True):
        assert after - before < models * ALLOWED, look.__name__
