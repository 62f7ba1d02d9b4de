"""Arrays that forget: cells that pulses have trained drift, and learn again on the old array.

Each cell of W loses weight by a power law with an exponent of its own; A and B of the adapter are
capacitors that leak. An array, one with a factor that compensates, and one with an adapter are
trained and read up to a month later. Then they are trained for a few steps at each age, from where
they have drifted to: the array takes pulses on all of W, the adapter on A and B alone. Needs
scikit-learn.
"""

import torch
from torch import nn

import pulsora as pl
from pulsora.training.data import digits

data = digits()
x, y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
batches = list(zip(x.split(16), y.split(16), strict=True))
test = [(torch.from_numpy(data.test_x), torch.from_numpy(data.test_y))]
ages = ["1 s", "1 hour", "1 day", "30 days"]

memory = pl.noise_models.PowerLaw(
    nu_mean=[0.08, 0.08], nu_std=[0.06, 0.06], read_noise=[0.02, 0.02]
)
capacitor = pl.noise_models.Exponential()  # tau of a 6T1C cell: 46505 s
cells = pl.devices.SoftBounds(dw_min=5e-4)
configs = {
    "array": pl.SingleConfig(device=cells, retention=memory),
    "compensated": pl.SingleConfig(device=cells, retention=memory, retention_compensation="global"),
    "adapter": pl.LRTTConfig(
        visible=cells, rank=8, transfer_every=360, retention=memory, retention_fast=capacitor
    ),
}

for name, config in configs.items():
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    model = pl.convert_to_analog(net, config, seed=1)
    optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.1)
    for _ in range(12):
        for inputs, wanted in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), wanted).backward()
            optimizer.step()
    print(f"{name}\n{pl.inference.evaluate(model.eval(), test, times=ages, programmings=3)}")
    pl.drift(model, 0)  # reads follow from the age alone: this is the array as it was trained
    loss = nn.functional.cross_entropy
    print(pl.inference.readapt(model, optimizer, loss, batches, ages, steps=80, test=test))
    print(f"ages in s: {model[0].tiles.grid[0][0].retention.ages}\n")
