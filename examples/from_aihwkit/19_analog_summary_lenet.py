"""AIHWKit's example 19: which layers are analog, on which arrays, and what they have done."""

import torch
from torch import nn

import pulsora as pl

net = nn.Sequential(
    nn.Conv2d(1, 16, 5),
    nn.Tanh(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 5),
    nn.Tanh(),
    nn.MaxPool2d(2),
    nn.Tanh(),
    nn.Flatten(),
    nn.Linear(512, 128),
    nn.Tanh(),
    nn.Linear(128, 10),
    nn.LogSoftmax(dim=1),
)
config = pl.SingleConfig(device=pl.devices.ConstantStep())
model = pl.convert_to_analog(net, config, seed=1, max_input_size=256, max_output_size=256)
print(pl.conversion_report(model))

model(torch.rand(1, 1, 28, 28))
arrays = 0
for name, layer in model.named_children():
    if isinstance(layer, pl.nn.AnalogModule):
        for number, tile in enumerate(layer.tiles):
            # How often an array is read for one image: each patch of a convolution is a read.
            reads = tile.counters["forward_samples"]
            print(f"layer {name}, array {number}: {tile.d_size} x {tile.x_size}, {reads} reads")
            arrays += 1
assert arrays == 6  # one and two of the convolutions, two and one of the others
