"""AIHWKit's example 05: a layer trained with weight noise, then programmed and drifting."""

import torch

import pulsora as pl

x = torch.tensor([[0.1, 0.2, 0.4, 0.3], [0.2, 0.1, 0.1, 0.3]])
y = torch.tensor([[1.0, 0.5], [0.7, 0.3]])
config = pl.InferenceConfig(
    noise_model=pl.noise_models.PCMLike(g_max=25.0),
    compensation="global",
    forward=pl.IOParameters(out_res=0.0, w_noise=0.02, w_noise_type="additive_constant"),
    clip="fixed",
    clip_value=2.5,
    modifier="add_normal",
    modifier_std=0.01,
)
torch.manual_seed(1)
model = pl.nn.AnalogLinear(4, 2, config=config, seed=1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
for _ in range(300):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()

model.eval()
errors = []
with torch.no_grad():
    pl.program(model)
    for time in (0.0, 1.0, 20.0, 1000.0, 1e5):
        pl.drift(model, time)
        errors.append(torch.nn.functional.mse_loss(model(x), y).item())
        print(f"{time:8.0f} s: mean squared error {errors[-1]:.4f}")
assert errors[-1] < 0.1
