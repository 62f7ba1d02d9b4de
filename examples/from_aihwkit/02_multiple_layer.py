"""AIHWKit's example 02: three analog layers, one after another."""

import torch
from torch import nn

import pulsora as pl

x = torch.tensor([[0.1, 0.2, 0.0, 0.0], [0.2, 0.4, 0.0, 0.0]])
y = torch.tensor([[0.3], [0.6]])
config = pl.SingleConfig(device=pl.devices.ConstantStep())
torch.manual_seed(1)
model = nn.Sequential(
    pl.nn.AnalogLinear(4, 2, config=config),
    pl.nn.AnalogLinear(2, 2, config=config),
    pl.nn.AnalogLinear(2, 1, config=config),
)
optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.5)
losses = []
for epoch in range(101):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if epoch % 20 == 0:
        print(f"epoch {epoch:3}: loss {loss:.5f}")
assert sum(losses[-20:]) / 20 < 0.03  # the noise of three reads remains
