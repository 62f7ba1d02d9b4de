"""Tiles on a GPU take their memory from torch's caching allocator."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import nn

import pulsora as pl
from conftest import DEVICES
from pulsora.nn import AnalogLinear
from pulsora.optim import AnalogSGD
from pulsora.training_step import TrainingStep

pytestmark = pytest.mark.skipif("cuda" not in DEVICES, reason="needs a GPU")

CONFIG = pl.LRTTConfig(rank=8, transfer_every=4)


def in_use() -> int:
    """Bytes that torch's allocator has lent."""
    gc.collect()
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated()


def test_torch_counts_the_memory_of_tiles() -> None:
    AnalogLinear(8, 8, config=CONFIG).cuda()  # what the first tile of a process needs
    before = in_use()
    layer = AnalogLinear(2048, 1024, config=CONFIG, seed=1).cuda()
    expected = sum(tile.memory_bytes for tile in layer.tiles)
    assert in_use() - before == pytest.approx(expected, rel=0.03)
    del layer
    assert in_use() - before < 0.01 * expected


def test_steps_on_another_stream_give_their_memory_back() -> None:
    before = in_use()
    x, d = torch.rand(64, 1024, device="cuda"), torch.rand(64, 512, device="cuda")
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        stream.wait_stream(torch.cuda.current_stream())
        layer = AnalogLinear(1024, 512, config=CONFIG, seed=1).cuda()
        with torch.cuda.stream(stream):
            layer(x).backward(d)
            AnalogSGD(layer.parameters(), lr=0.1).step()
        torch.cuda.current_stream().wait_stream(stream)
        del layer
    torch.cuda.empty_cache()
    assert in_use() - before < 3 * 2**20 + 2**20  # x, d and scratch memory


def test_recorded_steps_and_models_after_them_have_equal_bits() -> None:
    def weights_of() -> torch.Tensor:
        layer = AnalogLinear(300, 200, config=CONFIG, seed=1)
        model = nn.Sequential(layer).cuda()
        step = TrainingStep(model, AnalogSGD(model.parameters(), lr=0.1), nn.functional.mse_loss)
        generator = torch.Generator("cuda").manual_seed(1)
        for _ in range(6):
            x = torch.rand(32, 300, generator=generator, device="cuda")
            step(x, torch.zeros(32, 200, device="cuda"))
        return layer.tiles.get_weights().cpu()

    first = weights_of()
    torch.cuda.empty_cache()
    assert torch.equal(weights_of(), first)


def test_a_share_of_the_card_limits_tiles_as_well() -> None:
    whole = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    share = (torch.cuda.memory_reserved() + 16 * 2**20) / whole
    torch.cuda.set_per_process_memory_fraction(share)
    try:
        with pytest.raises(pl.OutOfMemoryError, match="use a smaller array or batch"):
            pl.Tile(4096, 4096, pl.SingleConfig(), seed=1, device="cuda")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert pl.Tile(64, 64, pl.SingleConfig(), seed=1, device="cuda").weights.shape == (64, 64)
