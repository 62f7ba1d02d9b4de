"""AIHWKit's example 18, small: a residual network on Tiki-Taka cells of ECRAM.

Digits take the place of CIFAR-10, with 3 of its 13 blocks and half of the channels.
"""

import torch
from torch import nn

import pulsora as pl
from pulsora.training.data import batches, digits
from pulsora.training.run import accuracy


class Block(nn.Module):
    """Two convolutions around which the input is led."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)])
        is_same = inputs == outputs and stride == 1
        self.around = nn.Identity() if is_same else nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of both ways."""
        y = self.norms[1](self.second(self.norms[0](self.first(x)).relu()))
        return (y + self.around(x)).relu()


data = digits()
torch.manual_seed(1)
net = nn.Sequential(
    nn.Unflatten(1, (1, 8, 8)),
    nn.Conv2d(1, 8, 3, padding=1),
    nn.BatchNorm2d(8),
    nn.ReLU(),
    Block(8, 8, 1),
    Block(8, 16, 2),
    Block(16, 32, 2),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(32, 10),
)
config = pl.presets.EcRamTikiTaka()
model = pl.convert_to_analog(net, config, seed=1, weight_scaling=0.6, threads=1)
optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.3)
test = torch.from_numpy(data.test_x), torch.from_numpy(data.test_y)
for epoch in range(3):
    for x, y in batches(data, batch=32, seed=0, epoch=epoch):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()
        optimizer.step()
    score = accuracy(model, *test)
    print(f"epoch {epoch + 1}: accuracy {score:.1%}")
assert score > 0.6
