"""An LSTM that learns to write like these documents; all its matrices are analog.

Bits per character fall far below the entropy of single characters. Each of the 16 steps in time is
a sample of the pulsed update, and the samples of 32 pieces of text are one mini-batch.
"""

import math
from pathlib import Path

import torch
from torch import nn

import pulsora as pl

# 1. The text: a page of the documentation, in small letters. Its last tenth is for testing.
source = Path(__file__).parents[1] / "docs" / "reference" / "lrtt.md"
letters = "abcdefghijklmnopqrstuvwxyz .,\n"
text = torch.tensor([letters.index(c) for c in source.read_text().lower() if c in letters])
split = len(text) * 9 // 10
train, test = text[:split], text[split:]
torch.manual_seed(0)

# 2. Both layers become analog: noisy reads, and pulses on cells. The largest weight of a layer
#    becomes 0.2 of the cells' 1.0, which leaves it room to grow.
config = pl.SingleConfig(device=pl.devices.GokmenVlasov())
layers = nn.ModuleDict({"memory": nn.LSTM(len(letters), 64), "head": nn.Linear(64, len(letters))})
model = pl.convert_to_analog(layers, config, threads=1, weight_scaling=0.2)
print(pl.conversion_report(model))


def predict(x: torch.Tensor) -> torch.Tensor:
    """Return the unnormalised log-probabilities of the next characters."""
    return model["head"](model["memory"](6.0 * nn.functional.one_hot(x, len(letters)))[0])


def bits() -> float:
    """Return the bits per character of the test."""
    with torch.no_grad():
        return nn.functional.cross_entropy(predict(test[:-1]), test[1:]).item() / math.log(2.0)


# 3. The usual loop over pieces of 17 characters.
optimizer = pl.optim.AnalogSGD(model.parameters(), lr=4.0)
for step in range(201):
    starts = torch.randint(len(train) - 17, (32,))
    piece = torch.stack([train[start : start + 17] for start in starts], dim=1)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(predict(piece[:-1]).flatten(0, 1), piece[1:].flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step}: {bits():.2f} bits per character")
share = torch.bincount(train, minlength=len(letters)) / len(train)
alone = -torch.log2(share[test]).mean().item()
print(f"single characters, by their frequency: {alone:.2f} bits")
assert bits() < alone - 0.5
