"""AIHWKit's example 03: three analog layers learn digits, with a rate that falls in steps.

`python 03_mnist_training.py FOLDER` takes the files of MNIST or Fashion-MNIST instead.
"""

import sys

import torch
from torch import nn

import pulsora as pl
from pulsora.training.data import batches, load
from pulsora.training.run import accuracy

data = load(sys.argv[1] if len(sys.argv) > 1 else "digits")
small = data.features < 784
hidden, epochs, batch, lr = ((64, 32), 10, 16, 0.3) if small else ((256, 128), 6, 64, 0.2)
config = pl.SingleConfig(device=pl.devices.ConstantStep())
torch.manual_seed(1)
model = nn.Sequential(
    pl.nn.AnalogLinear(data.features, hidden[0], config=config),
    nn.Sigmoid(),
    pl.nn.AnalogLinear(hidden[0], hidden[1], config=config),
    nn.Sigmoid(),
    pl.nn.AnalogLinear(hidden[1], data.classes, config=config),
    nn.LogSoftmax(dim=1),
)
optimizer = pl.optim.AnalogSGD(model.parameters(), lr=lr)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=max(epochs // 3, 1), gamma=0.5)
test = torch.from_numpy(data.test_x), torch.from_numpy(data.test_y)
for epoch in range(epochs):
    for x, y in batches(data, batch=batch, seed=0, epoch=epoch):
        optimizer.zero_grad()
        loss = nn.functional.nll_loss(model(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()
        optimizer.step()
    scheduler.step()
    score = accuracy(model, *test)
    print(f"epoch {epoch + 1}: accuracy {score:.1%}, next rate {optimizer.param_groups[0]['lr']}")
assert score > 0.8
