"""Pulsed adapters for three tasks in one network, chosen by an index or mixed by a gate.

Each task is learned by the pulses of its own adapter; layers and other tasks stay as they are.
For a task between two of them, three numbers per layer that mix the frozen adapters are enough.
"""

import torch
from torch import nn

import pulsora as pl

torch.manual_seed(0)

# 1. A frozen network with three adapters of rank 4 on two layers, in arrays of 6T1C cells.
plain = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))
gate = pl.nn.TaskGate(3)
model = pl.peft.add_adapters(
    plain, rank=4, targets=["0", "2"], gate=gate, adapters=3, seed=1, threads=1
)

# 2. The tasks: the outputs of the network, two of them turned by an angle.
x = torch.randn(256, 16)


def loss(angle: float) -> torch.Tensor:
    """Return the error of a task, relative to its outputs."""
    turn, (c, s) = torch.eye(4), (torch.tensor(angle).cos(), torch.tensor(angle).sin())
    turn[:2, :2] = torch.tensor([[c, -s], [s, c]])
    wanted = plain(x).detach() @ turn.T
    return (model(x) - wanted).square().mean() / wanted.square().mean()


def train(optimizer: torch.optim.Optimizer, angle: float, steps: int) -> float:
    """Return the error after steps on a task."""
    for _ in range(steps):
        optimizer.zero_grad()
        loss(angle).backward()
        optimizer.step()
    return loss(angle).item()


# 3. One task after another, by pulses alone. Later tasks leave the earlier ones as they are.
angles = (0.4, -0.4, 0.8)
optimizer = pl.optim.AnalogSGD([p for p in model.parameters() if p.requires_grad], lr=0.02)
for task, angle in enumerate(angles):
    pl.nn.select_task(model, task)
    print(f"angle {angle}: {loss(angle).item():.3f} -> {train(optimizer, angle, 100):.3f}")
for task, angle in enumerate(angles):
    pl.nn.select_task(model, task)
    assert loss(angle) < 0.04

# 4. A new task: the same adapters, frozen, with a gate that learns how to mix them.
for layer in (model[0], model[2]):
    layer.freeze_factors().gate = pl.nn.MixtureGate(3)
mixed = train(
    torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.05), 0.6, 60
)
print(f"angle 0.6 by mixing: {mixed:.3f},", model[0].gate.coefficients.tolist())
assert mixed < 0.04
