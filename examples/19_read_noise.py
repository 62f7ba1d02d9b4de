"""A trained chip under other read noises and converters: the same cells, another periphery."""

import copy

import torch
from torch import nn

import pulsora as pl
from pulsora.training.data import batches, digits

# 1. A network on one chip, trained with the default periphery.
torch.manual_seed(0)
DATA = digits()
TEST_X, TEST_Y = torch.from_numpy(DATA.test_x), torch.from_numpy(DATA.test_y)
model = pl.convert_to_analog(
    nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10)),
    pl.SingleConfig(device=pl.devices.ConstantStep(w_max=2.0, w_min=-2.0)),
)
optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for x, y in batches(DATA, batch=32, seed=0, epoch=epoch):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y)).backward()
        optimizer.step()


def accuracy(chip: nn.Module) -> float:
    """Return the percentage of test images that a chip recognises. Its training does not notice."""
    with torch.no_grad():
        return 100 * float((chip(TEST_X).argmax(dim=1) == TEST_Y).float().mean())


# 2. The chip with other read noises, and with a coarser ADC. Cells and weights stay.
for noise in (0.0, 0.06, 0.2, 0.5):
    chip = pl.with_io(model, forward=lambda io, noise=noise: io.replace(out_noise=noise))
    print(f"read noise {noise:4.2f}: {accuracy(chip):.1f} % of the test images")
coarse = pl.with_io(model, forward=lambda io: io.replace(out_res=1 / 62))
print(f"6-bit ADC:       {accuracy(coarse):.1f} %")

# 3. The spread over chips: the same weights written to other cells, read with other noise.
chips = [pl.reseed(copy.deepcopy(model), seed, cells=True) for seed in range(5)]
print("five chips:      " + ", ".join(f"{accuracy(chip):.1f}" for chip in chips) + " %")
