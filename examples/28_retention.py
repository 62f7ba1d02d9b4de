"""Arrays that forget: cells that pulses have trained drift, and adapters learn on the old array.

Cells of one memory lose weight by a power law, each by an exponent of its own. A plain array, and
an adapter on an array, are trained, read up to a month later, and trained again for an epoch at
that age. The plain array is written anew by that; with an adapter, W stays a month old, and A and
B, capacitors that leak, learn what it needs. Needs scikit-learn.
"""

import torch
from torch import nn

import pulsora as pl
from pulsora.training.data import digits

data = digits()
x, y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
test_x, test_y = torch.from_numpy(data.test_x), torch.from_numpy(data.test_y)
memory = pl.noise_models.PowerLaw(nu_mean=[0.08, 0.08], nu_std=[0.06, 0.06])
capacitor = pl.noise_models.Exponential()  # tau of a 6T1C cell: 46505 s
cells = pl.devices.SoftBounds(dw_min=5e-4)
configs = {
    "plain": pl.SingleConfig(device=cells, retention=memory),
    "adapter": pl.LRTTConfig(
        visible=cells, rank=8, transfer_every=50, retention=memory, retention_fast=capacitor
    ),
}


def accuracy(model: nn.Module) -> float:
    """Share of test images that the model names, in per cent."""
    model.eval()
    with torch.no_grad():
        return 100.0 * (model(test_x).argmax(1) == test_y).float().mean().item()


def train(model: nn.Module, epochs: int, lr: float) -> None:
    """Train by pulses."""
    optimizer = pl.optim.AnalogSGD(model.parameters(), lr=lr)
    model.train()
    for _ in range(epochs):
        for chosen in torch.randperm(len(x)).split(16):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[chosen]), y[chosen]).backward()
            optimizer.step()


for name, config in configs.items():
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    model = pl.convert_to_analog(net, config, seed=1)
    train(model, 8, 0.1)
    print(f"{name:8}", end="")
    for age in (0, "1 hour", "1 day", "30 days"):
        print(f"{age!s:>8} {accuracy(pl.drift(model, age)):.1f} %", end="")
    train(model, 1, 0.05)
    ages = {array: round(age.time) for array, age in model[0].tiles.grid[0][0].retention.ages.items()}
    print(f", trained again {accuracy(model):.1f} %; ages in s: {ages}")
