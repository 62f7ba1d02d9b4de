"""A ledger of what hardware would do: pulses, reads and conversions, with costs also energy."""

from pathlib import Path

import torch

import pulsora as pl

COSTS = pl.accounting.Costs.load(Path(__file__).with_name("costs.toml"))


def trained(config: pl.TileConfig, samples: int = 256) -> torch.nn.Module:
    """A small classifier after one epoch on points inside and outside a ball."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        pl.nn.AnalogLinear(8, 32, config=config),
        torch.nn.Tanh(),
        pl.nn.AnalogLinear(32, 8, config=config),
    )
    optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.1)
    x = torch.randn(samples, 8)
    inner = (x.norm(dim=1) < 2.7).long()
    for rows in torch.arange(samples).split(8):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[rows]), inner[rows]).backward()
        optimizer.step()
    return model


# 1. Counts of each array, without costs.
adapter = trained(pl.LRTTConfig(rank=4, transfer_every=8))
print(pl.ledger(adapter))

# 2. With costs: energy where every event that occurred has one, and the costs that are missing.
for name, config in {"full rank": pl.SingleConfig(), "LRTT": pl.LRTTConfig(rank=4)}.items():
    ledger = pl.ledger(trained(config), COSTS)
    converters = {event: round(ledger.per(256)[event] or 0.0) for event in ("pulse", "dac", "adc")}
    print(f"{name}: per sample {converters}; energy {ledger.total.energy}; no {ledger.missing}")

# 3. The same samples by digital SGD, and by mixed precision.
for name, row in pl.ledger(adapter, COSTS).alternatives.items():
    print(f"{name}: {row.digital_operation} operations, energy {row.energy} pJ")
