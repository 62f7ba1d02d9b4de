"""A convolution over time, a GRU and a layer of one's own on arrays, with learned scales.

The network distinguishes signals of three pitches in torch, and on noisy cells too. A and B of an
adapter span each layer, however it is cut into tiles. `weight_scaling` fills the cells.
"""

import torch
from torch import nn

import pulsora as pl

torch.manual_seed(0)


class Gain(nn.Linear):
    """A layer of one's own that torch does not have; here it computes the same as Linear."""


class Network(nn.Module):
    """A convolution over time, a GRU both ways, and a Gain."""

    def __init__(self) -> None:
        super().__init__()
        self.ears = nn.Conv1d(1, 8, 9, stride=4, padding=4, padding_mode="reflect")
        self.memory = nn.GRU(8, 16, batch_first=True, bidirectional=True)
        self.mouth = Gain(32, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits of the pitch."""
        heard = self.ears(x[:, None]).relu().transpose(1, 2)
        return self.mouth(self.memory(heard)[0].mean(1))


def on_tiles(layer: Gain, config: pl.TileConfig, **options: object) -> nn.Module:
    """Return a product on tiles, with a digitally learned gain for its outputs."""
    made = pl.nn.AnalogLinear(32, 3, config=config, learn_out_scaling=True, **options)
    made.set_weights(layer.weight, layer.bias)
    return made


pitch, shift = torch.randint(3, (512,)), 6.28 * torch.rand(512, 1)
time = torch.linspace(0.0, 6.28, 64) + shift
signals = torch.sin((2 + pitch[:, None]) * time) + 0.5 * torch.randn(512, 64)
config = pl.LRTTConfig(visible=pl.devices.ReRamSB(), adapter_span="layer")
model = Network()
analog = pl.convert_to_analog(
    model, config, conversions={Gain: on_tiles}, weight_scaling="width", max_input_size=16, seed=1
)
print(pl.conversion_report(analog))
for name, net in {"torch": model, "arrays": analog}.items():
    optimizer = pl.optim.AnalogSGD(net.parameters(), lr=0.4)
    for step in range(400):
        optimizer.zero_grad()
        part = slice(32 * (step % 12), 32 * (step % 12) + 32)
        nn.functional.cross_entropy(net(signals[part]), pitch[part]).backward()
        optimizer.step()
    right = (net(signals[384:]).argmax(1) == pitch[384:]).float().mean().item()
    print(f"{name}: {100 * right:.0f} % of signals that were not trained")
assert right > 0.8
