"""A memory of one's own in two ways: a table of measured numbers, and a header of C++."""

from pathlib import Path

import torch
from torch import nn

import pulsora as pl
from pulsora.training.data import batches, digits

# 1. Numbers that were measured at some conductances, in uS.
measured = pl.noise_models.from_table(
    g=[1.0, 5.0, 25.0],
    sigma=[0.3, 0.6, 0.9],  # programming error, uS
    nu_mean=[0.08, 0.06, 0.04],  # drift exponent
    nu_std=[0.02, 0.015, 0.01],
    read_noise=[0.03, 0.02, 0.01],
)

# 2. A law of one's own. The compiler takes some seconds the first time.
StretchedLoss = pl.noise_models.from_source(Path(__file__).parent / "stretched_loss.h")
own = StretchedLoss(loss=0.4, beta=0.3)
print(repr(own))

# 3. A network, trained digitally; then its accuracy on arrays of both memories.
DATA = digits()
torch.manual_seed(1)
net = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
for epoch in range(10):
    for x, y in batches(DATA, batch=32, seed=0, epoch=epoch):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()
        optimizer.step()
test = [(torch.from_numpy(DATA.test_x), torch.from_numpy(DATA.test_y))]
for memory in (measured, own):
    config = pl.InferenceConfig(noise_model=memory, compensation="global")
    model = pl.convert_to_analog(net, config, seed=1).eval()
    print(memory.model)
    print(pl.inference.evaluate(model, test, times=["1 s", "1 day", "1 year"], programmings=5))
