"""A small GPT whose weights are in analog cells, trained by AdamW.

AdamW trains digital weights. Cells of ECRAM follow them by pulses, a whole step at a time, and all
products of the network are read from the cells. The same network is trained digitally beside it.
With `--full`, it has 2 blocks of width 128, and the program takes some minutes. The text is Python
source, byte by byte.
"""

import argparse
import inspect
import sys

import torch
from matplotlib.figure import Figure
from torch import nn

import pulsora as pl
from pulsora.training.models import Transformer

blocks, width, length, batch, steps = 1, 32, 24, 8, 60
if "--full" in sys.argv:
    blocks, width, length, batch, steps = 2, 128, 64, 16, 1500
text = torch.tensor(list(inspect.getsource(argparse).encode()))


def train(model: nn.Module) -> list[float]:
    """Train with AdamW; return the loss of each step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    draws = torch.Generator().manual_seed(0)
    losses = []
    for _ in range(steps):
        starts = torch.randint(len(text) - length - 1, (batch, 1), generator=draws)
        rows = text[starts + torch.arange(length + 1)]
        loss = nn.functional.cross_entropy(model(rows[:, :-1]).mT, rows[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # and the cells follow
        losses.append(loss.item())
    return losses


# 1. The same first weights, once in torch and once in cells with noisy reads.
torch.manual_seed(1)
digital = Transformer((length,), 256, width=width, blocks=blocks)
analog = pl.convert_to_analog(digital, pl.presets.EcRamMixedPrecision(), weight_scaling="sigma")
found = {"digital": train(digital), "analog": train(analog)}

# 2. Loss in nats per byte, a mean over the last tenth of the steps.
axes = (figure := Figure(figsize=(5.0, 3.2), layout="constrained")).subplots()
for name, losses in found.items():
    last = losses[-(steps // 10) :]
    print(f"{name}: {losses[0]:.2f} at first, {sum(last) / len(last):.2f} at last")
    axes.plot(losses, linewidth=0.7, label=name)
axes.set(xlabel="step", ylabel="loss in nats per byte")
axes.legend(frameon=False)
figure.savefig("mixed_precision_gpt.png")
