"""AIHWKit's example 15: a GRU that is trained with noise, programmed, and drifts."""

import math

import torch
from torch import nn

import pulsora as pl

# The next value of a wave, five pieces of which begin at different places.
t = torch.linspace(0.0, 8.0 * math.pi, 126)
wave = torch.sin(t) * torch.cos(0.5 * t) + 0.5
x = torch.stack([wave[:-1].roll(25 * k) for k in range(5)], dim=1).unsqueeze(2)
y = torch.stack([wave[1:].roll(25 * k) for k in range(5)], dim=1).unsqueeze(2)

config = pl.InferenceConfig(
    noise_model=pl.noise_models.PCMLike(g_max=25.0),
    compensation="global",
    forward=pl.IOParameters(out_res=0.0, w_noise=0.02, w_noise_type="additive_constant"),
    clip="fixed",
    clip_value=1.0,
    modifier="add_normal",
    modifier_std=0.05,
    drop_connect=0.03,
)


class Network(nn.Module):
    """An embedding, a GRU, and a decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(1, 20)
        self.rnn = nn.GRU(20, 50)
        self.decoder = nn.Linear(50, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Predicts the next value at each step in time."""
        return self.decoder(self.rnn(self.embedding(inputs))[0])


torch.manual_seed(1)
model = pl.convert_to_analog(Network(), config, seed=1, threads=1)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(30):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    if epoch % 10 == 9:
        print(f"epoch {epoch + 1}: perplexity {loss.exp():.4f}")

pl.program(model.eval())
with torch.no_grad():
    for time in (0.0, 1.0, 20.0, 1000.0, 1e5):
        found = nn.functional.mse_loss(pl.drift(model, time)(x), y).exp()
        print(f"{time:8.0f} s: perplexity {found:.4f}")
assert found < 1.1  # a constant has 1.26
