"""AIHWKit's example 07: three devices at each cross-point, one of which takes the pulses."""

import torch

import pulsora as pl

x = torch.tensor([[0.1, 0.2, 0.4, 0.3], [0.2, 0.1, 0.1, 0.3]])
y = torch.tensor([[1.0, 0.5], [0.7, 0.3]])
config = pl.VectorConfig(
    devices=[
        pl.devices.ConstantStep(w_max=0.3),
        pl.devices.ConstantStep(w_max_dtod=0.4),
        pl.devices.ConstantStep(up_down_dtod=0.1),
    ],
    gamma_vec=[1.0, 1.0, 1.0],
    update_policy="single_random",
)
torch.manual_seed(1)
model = pl.nn.AnalogLinear(4, 2, config=config)
print(config.summary())
optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.1)
for epoch in range(101):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    if epoch % 20 == 0:
        print(f"epoch {epoch:3}: loss {loss:.5f}")
assert loss < 0.01
