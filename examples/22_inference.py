"""Accuracy over years: a network on phase-change memory that is programmed once, and drifts.

Two networks are trained in floating point. The second one is trained hardware-aware: its training
reads see the programming errors, the drift and the read noise that inference will have. Both are
programmed three times and read up to a year later.
"""

import torch
from torch import nn

import pulsora as pl
from pulsora.training.data import batches, digits

data = digits()
test = [(torch.from_numpy(data.test_x), torch.from_numpy(data.test_y))]
plain = pl.InferenceConfig(
    noise_model=pl.noise_models.PCMLike(g_max=25.0),
    compensation="global",
    forward=pl.IOParameters(inp_res=1 / 254, out_res=1 / 254, out_noise=0.04),
)
aware = plain.replace(modifier="noise_model", clip="gaussian", clip_sigma=2.5)


def trained(config: pl.InferenceConfig) -> nn.Module:
    """Train a perceptron with six hidden layers; any optimiser of torch will do."""
    torch.manual_seed(0)
    hidden = [nn.Sequential(nn.Linear(n, 32), nn.ReLU()) for n in (64, 32, 32, 32, 32, 32)]
    net = nn.Sequential(*hidden, nn.Linear(32, 10))
    model = pl.convert_to_analog(net, config, seed=1, threads=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    for epoch in range(12):
        for x, y in batches(data, batch=32, seed=0, epoch=epoch):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y))
            loss.backward()
            optimizer.step()
    return model.eval()


# Both models have the same seeds, and so the same programming errors and the same drift.
reports = {}
for name, config in (("plain", plain), ("hardware-aware", aware)):
    model = trained(config)
    reports[name] = pl.inference.evaluate(model, test, programmings=3)
    print(f"{name}\n{reports[name]}\n")

print(f"gained by hardware-aware training\n{reports['hardware-aware'] - reports['plain']}")
reports["hardware-aware"].save("drift.json")
pl.inference.plot(reports, "drift.png")
assert reports["hardware-aware"].mean.min() > 0.85
