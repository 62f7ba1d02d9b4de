"""AIHWKit's example 30: a network that was trained elsewhere with noise, on programmed arrays.

torch alone trains a small residual network with noise on its weights, and saves it. Its ranges of
inputs and outputs are unknown, so a few samples calibrate them.
"""

import torch
from torch import nn

import pulsora as pl
from pulsora.training.data import batches, digits


class Network(nn.Module):
    """Two convolutions around which the first one's output is led, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(12, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU())
        self.third = nn.Sequential(nn.Conv2d(12, 12, 3, padding=1), nn.BatchNorm2d(12))
        self.last = nn.Sequential(nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(192, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Unnormalised log-probabilities."""
        y = self.first(x.reshape(-1, 1, 8, 8))
        return self.last(y + self.third(self.second(y)))


# 1. Elsewhere: gradients at noisy weights, steps from the weights themselves.
data = digits()
torch.manual_seed(0)
net = Network()
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
weights = [p for p in net.parameters() if p.dim() > 1]
for epoch in range(4):
    for x, y in batches(data, batch=32, seed=0, epoch=epoch):
        noise = [0.05 * p.abs().max() * torch.randn_like(p) for p in weights]
        with torch.no_grad():
            torch._foreach_add_(weights, noise)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(torch.from_numpy(x)), torch.from_numpy(y)).backward()
        with torch.no_grad():
            torch._foreach_sub_(weights, noise)
        optimizer.step()
torch.save(net.state_dict(), "external.pt")

# 2. Here.
net = Network()
net.load_state_dict(torch.load("external.pt"))
model = pl.convert_to_analog(net, pl.presets.StandardHWA(), seed=1, threads=1).eval()
print(pl.inference.calibrate(model, [torch.from_numpy(data.train_x[:200])]))
test = [(torch.from_numpy(data.test_x), torch.from_numpy(data.test_y))]
report = pl.inference.evaluate(model, test, times=[0.0, "1 h", "1 day"], programmings=5)
print(report)
assert report.mean[-1] > 0.85
