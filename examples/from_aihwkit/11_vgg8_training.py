"""AIHWKit's example 11: eight layers like VGG's, with weights scaled to the cells.

Digits take the place of SVHN, with a sixth of the channels.
"""

import torch
from torch import nn

import pulsora as pl
from pulsora.training.data import batches, digits
from pulsora.training.run import accuracy

data = digits()
base = 8  # channels; 48 there


def block(inputs: int, outputs: int) -> list[nn.Module]:
    """Two convolutions, and the largest of 2 x 2 pixels."""
    return [
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.MaxPool2d(2),
    ]


torch.manual_seed(1)
net = nn.Sequential(
    nn.Unflatten(1, (1, 8, 8)),
    *block(1, base),
    *block(base, 2 * base),
    *block(2 * base, 3 * base),
    nn.Flatten(),
    nn.Linear(3 * base, 8 * base),
    nn.ReLU(),
    nn.Linear(8 * base, 10),
)
# The first and the last layer stay digital. The largest weight of a layer fills 0.6 of the cells.
config = pl.presets.GokmenVlasovSingle()
model = pl.convert_to_analog(net, config, exclude=["1", "22"], weight_scaling=0.6, threads=1)
print(pl.conversion_report(model))
optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.1)
test = torch.from_numpy(data.test_x), torch.from_numpy(data.test_y)
for epoch in range(2):
    for x, y in batches(data, batch=32, seed=0, epoch=epoch):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()
        optimizer.step()
    score = accuracy(model, *test)
    print(f"epoch {epoch + 1}: accuracy {score:.1%}")
assert score > 0.8
