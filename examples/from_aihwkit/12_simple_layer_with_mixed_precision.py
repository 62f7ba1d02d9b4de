"""AIHWKit's example 12: mixed precision, cells that follow a digital weight by pulses."""

import torch

import pulsora as pl

x = torch.tensor([[0.1, 0.2, 0.4, 0.3], [0.2, 0.1, 0.1, 0.3]])
y = torch.tensor([[1.0, 0.5], [0.7, 0.3]])
config = pl.MixedPrecisionConfig(visible=pl.devices.SoftBounds())
torch.manual_seed(1)
model = pl.nn.AnalogLinear(4, 2, config=config)
print(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # any optimiser of torch will do
for epoch in range(501):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    if epoch % 100 == 0:
        print(f"epoch {epoch:3}: loss {loss:.5f}")
print(f"{model.statistics()[0]['pulses']} pulses have followed the digital weight")
assert loss < 0.01
