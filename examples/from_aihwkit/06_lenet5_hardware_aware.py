"""AIHWKit's example 06, small: a convolutional network trained with noise, evaluated over time."""

import torch
from torch import nn

import pulsora as pl
from pulsora.training.data import batches, digits

data = digits()
config = pl.InferenceConfig(
    noise_model=pl.noise_models.PCMLike(g_max=25.0),
    compensation="global",
    modifier="add_normal",
    modifier_std=0.06,
    forward=pl.IOParameters(out_noise=0.02, w_noise=0.0175, w_noise_type="pcm_read"),
)
torch.manual_seed(0)
net = nn.Sequential(
    nn.Unflatten(1, (1, 8, 8)),
    nn.Conv2d(1, 8, 3),
    nn.Tanh(),
    nn.MaxPool2d(2),
    nn.Conv2d(8, 16, 3),
    nn.Tanh(),
    nn.Flatten(),
    nn.Linear(16, 32),
    nn.Tanh(),
    nn.Linear(32, 10),
)
model = pl.convert_to_analog(net, config, seed=1, threads=1)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(6):
    for x, y in batches(data, batch=32, seed=0, epoch=epoch):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y)).backward()
        optimizer.step()

test = [(torch.from_numpy(data.test_x), torch.from_numpy(data.test_y))]
report = pl.inference.evaluate(model.eval(), test, times=[0.0, "1 h", "1 day"], programmings=3)
print(report)
assert report.mean[-1] > 0.8
