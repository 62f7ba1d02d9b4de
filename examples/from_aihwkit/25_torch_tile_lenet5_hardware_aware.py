"""AIHWKit's example 25, small: the field's standard preset, and any optimiser of torch."""

import torch
from torch import nn

import pulsora as pl
from pulsora.training.data import batches, digits

data = digits()
test = [(torch.from_numpy(data.test_x), torch.from_numpy(data.test_y))]
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
config = pl.presets.StandardHWA(modifier="add_normal", modifier_std=0.05)
model = pl.convert_to_analog(net, config, seed=1, threads=1)

# Input ranges start at three root mean squares, and are learned with the weights.
found = pl.inference.calibrate(model.eval(), [torch.from_numpy(data.train_x)], rule="sigma")
optimizer = torch.optim.AdamW(model.train().parameters(), lr=5e-3, weight_decay=1e-3)
for epoch in range(6):
    for x, y in batches(data, batch=32, seed=0, epoch=epoch):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y)).backward()
        optimizer.step()

for name, start in found.items():
    print(f"layer {name}: input range {start:.3f} -> {model[int(name)].input_range.item():.3f}")
report = pl.inference.evaluate(model.eval(), test, programmings=3)
print(report)
assert report.mean[0] > 0.85
