"""AIHWKit's example 27: input ranges of a trained network, from a few samples."""

import torch
from torch import nn

import pulsora as pl
from pulsora.training.data import batches, digits

data = digits()
test = [(torch.from_numpy(data.test_x), torch.from_numpy(data.test_y))]
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
for epoch in range(4):
    for x, y in batches(data, batch=32, seed=0, epoch=epoch):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(torch.from_numpy(x)), torch.from_numpy(y)).backward()
        optimizer.step()

model = pl.convert_to_analog(net, pl.InferenceConfig(), seed=1, threads=1).eval()
samples = torch.from_numpy(data.train_x).split(100)
results = {}
for quantile in (0.9, 0.99, 0.9999):
    ranges = pl.inference.calibrate(model, samples, quantile=quantile)
    report = pl.inference.evaluate(model, test, times=[0.0], programmings=3)
    results[quantile] = report.mean[0]
    print(f"quantile {quantile}: ranges {ranges}, accuracy {report.mean[0]:.3f}")
print(pl.inference.explain(model, test[0]))
assert max(results.values()) > 0.85
