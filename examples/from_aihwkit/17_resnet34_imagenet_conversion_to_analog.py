"""AIHWKit's example 17: a ResNet-34 for ImageNet, converted to Tiki-Taka on ReRAM cells.

With `--full`, it has all channels: 21.8 million weights. Otherwise it has an eighth of them.
"""

import sys

import torch
from torch import nn

import pulsora as pl

base = 64 if "--full" in sys.argv else 8


def convolution(inputs: int, outputs: int, size: int, stride: int) -> nn.Sequential:
    """A convolution and its batch norm."""
    layer = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs))


class Block(nn.Module):
    """Two convolutions around which the input is led."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = convolution(inputs, outputs, 3, stride)
        self.second = convolution(outputs, outputs, 3, 1)
        is_same = inputs == outputs and stride == 1
        self.around = nn.Identity() if is_same else convolution(inputs, outputs, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of both ways."""
        return (self.second(self.first(x).relu()) + self.around(x)).relu()


torch.manual_seed(1)
layers = [convolution(3, base, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)]
inputs = base
for stage, blocks in enumerate((3, 4, 6, 3)):
    outputs = base * 2**stage
    for block in range(blocks):
        layers.append(Block(inputs, outputs, 2 if stage > 0 and block == 0 else 1))
        inputs = outputs
net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))

config = pl.presets.ReRamSBTikiTaka()
model = pl.convert_to_analog(
    net, config, seed=1, weight_scaling="abs_max", max_input_size=512, max_output_size=512
)
report = pl.conversion_report(model)
tiles = [t for m in model.modules() if isinstance(m, pl.nn.AnalogModule) for t in m.tiles]
print(f"{len(report.analog)} analog layers on {len(tiles)} tiles")
print(f"{sum(t.d_size * t.x_size for t in tiles)} weights, {config.summary()}")
with torch.no_grad():
    found = model.eval()(torch.rand(1, 3, 64, 64))
print(f"outputs of size {list(found.shape)}")
assert len(report.analog) == 37
assert not report.digital
