"""Stop a run, start it again elsewhere, and get the same bits as if it had not stopped."""

import tempfile
from pathlib import Path

import torch
from torch import nn

import pulsora as pl
from pulsora.training.data import batches, digits

DATA = digits()


def network(seed: int) -> nn.Sequential:
    """A network with one analog layer."""
    torch.manual_seed(seed)
    config = pl.presets.EcRamLRTT(rank=4, transfer_every=20)
    return nn.Sequential(pl.nn.AnalogLinear(64, 32, config=config), nn.Tanh(), nn.Linear(32, 10))


def train(model: nn.Module, epoch: int) -> None:
    """One pass over the data."""
    optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.1)
    for x, y in batches(DATA, batch=32, seed=0, epoch=epoch):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y)).backward()
        optimizer.step()


# 1. A run that is not interrupted.
whole = network(seed=1)
train(whole, epoch=0)
train(whole, epoch=1)

# 2. A run that is: every tensor of the state is real, and nothing in the file is code.
first = network(seed=1)
train(first, epoch=0)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "model.pt"
    torch.save(first.state_dict(), path)
    second = network(seed=999)  # seeds and random numbers come from the file
    second.load_state_dict(torch.load(path, weights_only=True))
for name, tensor in second.state_dict().items():
    print(f"{name:34}{tensor.dtype!s:16}{list(tensor.shape)}")
train(second, epoch=1)

# 3. The same, to the bit.
assert torch.equal(second[0].weight, whole[0].weight)
print("\nresumed run = uninterrupted run")
