"""A whole training step as one CUDA graph; without a GPU, the same step as a plain loop."""

import torch
from torch import nn

import pulsora as pl
from pulsora.training_step import TrainingStep

INPUTS, BATCH = 48, 32
DEVICE = "cuda" if torch.cuda.is_available() and pl.cuda_device_count() > 0 else "cpu"


def network() -> tuple[nn.Sequential, torch.optim.Optimizer]:
    """A network with an adapter's tile in it, and its optimiser; always the same."""
    torch.manual_seed(0)
    tiles = pl.nn.AnalogLinear(INPUTS, 16, config=pl.LRTTConfig(rank=4, transfer_every=50), seed=1)
    model = nn.Sequential(tiles, nn.Tanh(), nn.Linear(16, 2)).to(DEVICE)
    return model, pl.optim.AnalogSGD(model.parameters(), lr=0.2)


def mini_batch(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs, and whether the first of them is positive."""
    generator = torch.Generator().manual_seed(number)
    x = (2 * torch.rand(BATCH, INPUTS, generator=generator) - 1).to(DEVICE)
    return x, (x[:, 0] > 0).long()


# 1. One call takes the place of the loop's five lines.
model, optimizer = network()
step = TrainingStep(model, optimizer, nn.functional.cross_entropy)
losses = torch.stack([step(*mini_batch(number)) for number in range(200)])
print(f"on {DEVICE}: loss {losses[0]:.2f} -> {losses[-20:].mean():.2f}")
assert losses[-20:].mean() < 0.6 * losses[0]

# 2. The loop gives the same bits, transfers of the adapter included.
twin, optimizer = network()
for number in range(200):
    x, target = mini_batch(number)
    optimizer.zero_grad()
    nn.functional.cross_entropy(twin(x), target).backward()
    optimizer.step()
assert torch.equal(model[0].weight, twin[0].weight)
assert torch.equal(model[2].weight, twin[2].weight)
print("weights = those of the plain loop, to the bit")
