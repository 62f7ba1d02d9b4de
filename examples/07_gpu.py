"""A tile on a GPU, or without one on the CPU: a mini-batch as a CUDA graph; all to the bit."""

from contextlib import nullcontext

import numpy as np
import torch

import pulsora as pl

OUTPUTS, INPUTS, BATCH = 64, 48, 32
ON_GPU = torch.cuda.is_available() and pl.cuda_device_count() > 0
DEVICE = "cuda" if ON_GPU else "cpu"


def tile_on(device: str) -> pl.Tile:
    """Return a tile with the same cells on any device."""
    return pl.Tile(OUTPUTS, INPUTS, pl.SingleConfig(), seed=1, device=device)


def mini_batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and errors of a step, in host memory."""
    generator = torch.Generator().manual_seed(step)
    x = 2 * torch.rand(BATCH, INPUTS, generator=generator) - 1
    d = 0.1 * (2 * torch.rand(BATCH, OUTPUTS, generator=generator) - 1)
    return x, d


tile, twin = tile_on(DEVICE), tile_on("cpu")
graph = pl.StepGraph(tile) if ON_GPU else nullcontext()
stream = torch.cuda.stream(torch.cuda.Stream()) if ON_GPU else nullcontext()

# 1. No call of the tile waits for the GPU. (The twin on the CPU does the same updates.)
with stream:
    y = torch.empty(BATCH, OUTPUTS, device=DEVICE)
    for step in range(20):
        x, d = mini_batch(step)
        on_device = x.to(DEVICE), d.to(DEVICE)
        with graph:  # a launch for the whole mini-batch
            tile.forward(on_device[0], out=y)
            tile.update(*on_device, 0.05)
        y_twin = twin.forward(x)
        twin.update(x, d, 0.05)

# 2. To look at weights is to wait.
print(f"on {tile.device}: {tile.statistics()['pulses']} pulses, |y| = {y.norm().item():.3f}")
assert np.array_equal(tile.weights, twin.weights)
assert np.array_equal(y.cpu().numpy(), y_twin)  # reads are sums of integers
print("weights and reads = those of the CPU, to the bit")

# 3. A tile goes on elsewhere from where it stands.
moved = tile.to("cpu")
x, d = mini_batch(20)
moved.update(x, d, 0.05)
twin.update(x, d, 0.05)
assert np.array_equal(moved.weights, twin.weights)
print("and they are after it has moved there")
