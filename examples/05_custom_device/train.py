"""A device model of one's own, from its source to the accuracy of a network."""

from pathlib import Path

import torch
from torch import nn

import pulsora as pl
from pulsora.training.data import batches, digits

# 1. The header becomes a class with ranges, documentation, plots and saving. The compiler takes
#    some seconds the first time.
QuadraticStep = pl.devices.from_source(Path(__file__).parent / "quadratic_step.h")
print(repr(QuadraticStep(curvature=0.5)))

# 2. Checks of every model: bounds, signs, spreads, states, equal bits however a batch is split.
for promise in pl.devices.check(QuadraticStep):
    print(" ", promise)

# 3. A network whose analog layer has such cells.
device = QuadraticStep(curvature=0.5, dw_min=0.01, w_max=1.0, w_min=-1.0)
DATA = digits()
torch.manual_seed(1)
layer = pl.nn.AnalogLinear(64, 32, config=pl.SingleConfig(device=device))
model = nn.Sequential(layer, nn.Tanh(), nn.Linear(32, 10))
optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for x, y in batches(DATA, batch=32, seed=0, epoch=epoch):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()
        optimizer.step()
with torch.no_grad():
    found = model(torch.from_numpy(DATA.test_x)).argmax(dim=1)
accuracy = float((found == torch.from_numpy(DATA.test_y)).float().mean())
print(f"{100 * accuracy:.1f} % of the test images")
