"""A torch model with an analog layer, trained on handwritten digits."""

import torch
from torch import nn

import pulsora as pl
from pulsora.plot import plot_training
from pulsora.training.data import batches, digits
from pulsora.training.run import accuracy

# 1. The seed of torch determines everything that has no seed of its own.
torch.manual_seed(0)
data = digits()

# 2. The hidden layer is a tile array; the output layer an ordinary one.
config = pl.presets.EcRamLRTT(rank=8)
layer = pl.nn.AnalogLinear(64, 48, config=config, threads=1)
model = nn.Sequential(layer, nn.Sigmoid(), nn.Linear(48, 10))
print(model)

# 3. Pulses for the analog layer, momentum for the digital one; schedulers act on both.
optimizer = pl.optim.AnalogSGD(
    [
        {"params": list(layer.parameters()), "lr": 0.3},
        {"params": list(model[2].parameters()), "momentum": 0.9},
    ],
    lr=0.1,
)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)

# 4. The usual loop.
history = []
for epoch in range(8):
    for x, y in batches(data, batch=32, seed=0, epoch=epoch):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()
        optimizer.step()
    scheduler.step()
    score = accuracy(model, torch.from_numpy(data.test_x), torch.from_numpy(data.test_y))
    history.append({"epoch": epoch + 1, "loss": loss.item(), "accuracy": score})
    print(f"epoch {epoch + 1}: loss {loss.item():.3f}, accuracy {score:.1%}")
assert score > 0.85

# 5. Loss and accuracy over the epochs.
plot_training({"LRTT on EcRam": history}).savefig("training.png")
