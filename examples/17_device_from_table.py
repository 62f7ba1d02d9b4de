"""A device from a table of its steps: read it, look at it, and train with it."""

import numpy as np
import torch
from torch import nn

import pulsora as pl
from pulsora.plot import plot_device
from pulsora.training.data import batches, digits

# 1. The mean change of the weight by one pulse at five weights, and its spread from cycle to cycle,
#    as a figure in a paper or a characterisation gives them. Steps up saturate earlier than down.
TABLE = {
    "w": [-1.0, -0.5, 0.0, 0.5, 1.0],
    "dw_up": [0.0110, 0.0085, 0.0050, 0.0020, 0.0010],
    "dw_down": [0.0010, 0.0025, 0.0045, 0.0080, 0.0095],
    "std_up": [0.0030, 0.0025, 0.0015, 0.0010, 0.0005],
    "std_down": [0.0005, 0.0010, 0.0015, 0.0020, 0.0030],
}

# 2. The mean step up at some weights: the table is interpolated between its nodes.
equal = pl.devices.from_table(**TABLE)
tile = pl.Tile(4, 1, pl.SingleConfig(device=equal))
tile.weights = np.array([[-0.5], [0.0], [0.25], [0.5]], np.float32)
steps = tile.describe_cells()["step_up"][:, 0]
print("mean steps up:", "  ".join(f"{step:.4f}" for step in steps))

# 3. The response of such cells to pulses up, then down.
plot_device(equal, title="from a table").savefig("table.png")

# 4. A network with one analog layer of such cells.
device = pl.devices.from_table(**TABLE, dw_min_dtod=0.2)  # cells differ by a fifth
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
