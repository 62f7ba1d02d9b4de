"""AIHWKit's example 01: one analog layer, trained by pulses."""

import torch

import pulsora as pl

x = torch.tensor([[0.1, 0.2, 0.4, 0.3], [0.2, 0.1, 0.1, 0.3]])
y = torch.tensor([[1.0, 0.5], [0.7, 0.3]])
config = pl.SingleConfig(device=pl.devices.ConstantStep())
torch.manual_seed(1)
model = pl.nn.AnalogLinear(4, 2, config=config)
optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.1)
for epoch in range(101):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    if epoch % 20 == 0:
        print(f"epoch {epoch:3}: loss {loss:.5f}")
assert loss < 0.01
