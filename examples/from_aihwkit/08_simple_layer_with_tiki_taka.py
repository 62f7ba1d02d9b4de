"""AIHWKit's example 08: Tiki-Taka, a fast array that is transferred to a slow one."""

import torch

import pulsora as pl

x = torch.tensor([[0.1, 0.2, 0.4, 0.3], [0.2, 0.1, 0.1, 0.3]])
y = torch.tensor([[1.0, 0.5], [0.7, 0.3]])
dac = 1 / (2**6 - 2)  # 6 bits
reads = pl.IOParameters(inp_res=dac)
config = pl.TikiTaka(
    visible=pl.devices.SoftBounds(w_min=-0.6, w_max=0.6),
    fast=pl.devices.SoftBounds(w_min=-0.3, w_max=0.3),
    transfer_every=2,
    n_reads_per_transfer=1,
    fast_lr=0.1,
    scale_fast_lr=False,  # the fast array learns at 0.1, whatever the optimiser's rate is
    transfer_lr=1.0,
    forward=reads,
    backward=reads,
    transfer_forward=reads.replace(noise_management="none", bound_management="none"),
)
torch.manual_seed(1)
model = pl.nn.AnalogLinear(4, 2, config=config)
print(config.summary())
optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.1)
for epoch in range(501):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    if epoch % 100 == 0:
        print(f"epoch {epoch:3}: loss {loss:.5f}")
print(f"{model.statistics()[0]['lines_read']} columns transferred")
assert loss < 0.02
