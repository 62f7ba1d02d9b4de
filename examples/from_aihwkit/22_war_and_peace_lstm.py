"""AIHWKit's example 22, small: an LSTM of two layers learns a text on AGAD cells.

A page of this documentation takes the place of War and Peace. A file may be given instead.
"""

import sys
from pathlib import Path

import torch
from torch import nn

import pulsora as pl
from pulsora.training.data import text_file

page = Path(__file__).parents[2] / "docs" / "reference" / "lrtt.md"
data = text_file(sys.argv[1] if len(sys.argv) > 1 else page, length=12)
cells = pl.devices.SoftBoundsReference(dw_min=0.1, subtract_symmetry_point=True)
reads = pl.IOParameters(inp_res=1 / (2**7 - 2), out_res=1 / (2**9 - 2))
config = pl.AGAD(cells, forward=reads, backward=reads)


class Network(nn.Module):
    """Two LSTM layers, and a linear layer that names the next character."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(data.classes, 24, num_layers=2, dropout=0.2)
        self.head = nn.Linear(24, data.classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Unnormalised log-probabilities [characters, pieces, classes]."""
        return self.head(self.lstm(nn.functional.one_hot(x, data.classes).float())[0])


def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Nats per character."""
    return nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())


torch.manual_seed(1)
model = pl.convert_to_analog(Network(), config, seed=1, threads=1, weight_scaling=0.3)
x, y = torch.from_numpy(data.train_x).T, torch.from_numpy(data.train_y).T
test = torch.from_numpy(data.test_x).T, torch.from_numpy(data.test_y).T
optimizer = pl.optim.AnalogSGD(model.parameters(), lr=1.0)
for step in range(81):
    chosen = torch.randint(x.shape[1], (16,))
    optimizer.zero_grad()
    loss_of(x[:, chosen], y[:, chosen]).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 20 == 0:
        with torch.no_grad():
            found = loss_of(*test).item()
        print(f"step {step}: {found:.3f} nats per character")
uniform = torch.tensor(float(data.classes)).log().item()
print(f"equal probabilities: {uniform:.3f}")
assert found < uniform - 0.8
