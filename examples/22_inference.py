"""Accuracy over years: a network on phase-change memory that is programmed once, and drifts.

Two networks are trained in floating point, one of them hardware-aware: its training reads see
weights with normal noise, and its weights are limited to 2.5 standard deviations. Both are
programmed three times and read up to a year later.
"""

import torch
from torch import nn

import pulsora as pl
from pulsora.training.data import batches, digits

data = digits()
test = [(torch.from_numpy(data.test_x), torch.from_numpy(data.test_y))]
array = pl.InferenceConfig(noise_model=pl.noise_models.PCMLike(g_max=25.0), compensation="global")
aware = array.replace(
    modifier="add_normal", modifier_std=0.1, drop_connect=0.01, clip="gaussian", clip_sigma=2.5
)


def trained(config: pl.InferenceConfig) -> nn.Module:
    """Train a perceptron; any optimiser of torch will do."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
    )
    model = pl.convert_to_analog(net, config, seed=1, threads=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(10):
        for x, y in batches(data, batch=32, seed=0, epoch=epoch):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y))
            loss.backward()
            optimizer.step()
    return model.eval()


# Both models have the same seeds, and so the same programming errors and the same drift.
reports = {}
for name, config in (("plain", array), ("hardware-aware", aware)):
    model = trained(config)
    reports[name] = pl.inference.evaluate(model, test, programmings=3)
    print(f"{name}\n{reports[name]}\n")

print(f"gained by hardware-aware training\n{reports['hardware-aware'] - reports['plain']}")
reports["hardware-aware"].save("drift.json")
pl.inference.plot(reports, "drift.png")
assert reports["hardware-aware"].mean.min() > 0.9
