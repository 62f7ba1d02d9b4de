"""Transfers onto noisy ReRAM cells: pulse trains, or each cell read and pulsed to its target.

W alone is deployed in the end: `pulsora.merge` writes the adapter into it. Needs scikit-learn.
"""

import torch
from torch import nn

import pulsora as pl
from pulsora.training.data import digits

data = digits()
x, y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
test_x, test_y = torch.from_numpy(data.test_x), torch.from_numpy(data.test_y)


def accuracy(model: nn.Module) -> float:
    """Share of test images that the model names, in per cent."""
    model.eval()
    with torch.no_grad():
        return 100.0 * (model(test_x).argmax(1) == test_y).float().mean().item()


for mode in ("verified", "write_verify"):
    torch.manual_seed(1)
    config = pl.LRTTConfig(visible=pl.presets.ReRamES(), transfer_every=0, transfer_mode=mode)
    model = nn.Sequential(
        pl.nn.AnalogLinear(64, 32, config=config, seed=1),
        nn.ReLU(),
        pl.nn.AnalogLinear(32, 10, config=config, seed=2),
    )
    optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.1)
    for _ in range(6):
        model.train()
        for chosen in torch.randperm(len(x)).split(16):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[chosen]), y[chosen]).backward()
            optimizer.step()
    before = accuracy(model)
    # With inputs, cells within reach make up for those that cannot hold their weights.
    batches = x.split(256) if mode == "write_verify" else None
    report = pl.merge(model, batches)  # for each layer, the account of its last transfer
    error = report["0"][0]["error"]
    print(
        f"{mode:13}  {before:.1f} % before the merge, {accuracy(model):.1f} % by W alone; ", end=""
    )
    print(f"error of a cell {error:.3f}" if error else "cells are not verified")
