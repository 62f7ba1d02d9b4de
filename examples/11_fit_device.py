"""From measured pulses to accuracy: fit a device to a CSV file, and train with it."""

from pathlib import Path

import torch
from torch import nn

import pulsora as pl
from pulsora.training.data import batches, digits

# 1. Eight cells, 40 pulses up and 40 down each: conductances in microsiemens, with read noise.
CSV = Path(__file__).parent.parent / "tests" / "data" / "pulses.csv"

# 2. The device. All models take a while; leave out models= to compare them all.
device, report = pl.fit.device(CSV, models=["ConstantStep", "LinearStep", "SoftBounds"])
print(report)
report.plot().savefig("fit.png")
pl.devices.save(device, "device.json")

# 3. A network with one analog layer of such cells, alone and with a low-rank adapter of finer ones.
fitted = pl.devices.load("device.json")
CONFIGS = {
    "fitted device": pl.SingleConfig(device=fitted),
    "with an adapter": pl.LRTTConfig(rank=8, visible=fitted),
}
DATA = digits()


def accuracy(config: pl.TileConfig, epochs: int = 5) -> float:
    """Return the share of test images that the trained network recognises."""
    torch.manual_seed(1)
    layer = pl.nn.AnalogLinear(64, 32, config=config)
    model = nn.Sequential(layer, nn.Tanh(), nn.Linear(32, 10))
    optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        for x, y in batches(DATA, batch=32, seed=0, epoch=epoch):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y))
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        found = model(torch.from_numpy(DATA.test_x)).argmax(dim=1)
    return float((found == torch.from_numpy(DATA.test_y)).float().mean())


for name, config in CONFIGS.items():
    print(f"{name:16} {100 * accuracy(config):.1f} % of the test images")
