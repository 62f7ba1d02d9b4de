"""Training with predicted steps beside its controls, and a loss curve that is continued.

With 30 % fewer backward passes, the average of the last weights recovers most of the loss of a
shorter training, and the predicted steps recover some more. docs/explain/forecasts.md has tables of
a larger task.
"""

import torch
from torch import nn

import pulsora as pl
from pulsora.plot import plot_forecast
from pulsora.training import data as datasets

# 1. The task: handwritten digits, in batches that are the same for the same epoch.
data = datasets.digits()
test_x, test_y = torch.from_numpy(data.test_x), torch.from_numpy(data.test_y)
STEPS = 1000


def batches(epoch: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the batches of an epoch."""
    pairs = datasets.batches(data, 32, 0, epoch)
    return [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in pairs]


def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Return the mean loss of a batch."""
    x, y = batch
    return nn.functional.cross_entropy(model(x), y)


# 2. Plain training, and three of 30 % fewer passes.
runs = {
    "plain": {"saved": 0.0, "forecaster": "none", "average": False},
    "plain, shorter": {"forecaster": "none", "average": False},
    "average alone": {"forecaster": "none"},
    "drift and average": {},
}
for name, options in runs.items():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    trainer = pl.forecast.HybridTrainer(
        model, optimizer, loss, steps=STEPS, scheduler=schedule, **options
    )
    trainer.train(batches, progress=False)
    with torch.no_grad():
        score = loss(model, (test_x, test_y)).item()
    print(f"{name:18} {trainer.passes} backward passes, test loss {score:.4f}")
print(trainer.report([(test_x, test_y)]))

# 3. How the training loss of the first third would have gone on.
continued = pl.forecast.forecast_loss(trainer.losses[:12], ahead=len(trainer.losses) - 12)
print(continued)
plot_forecast(continued).savefig("forecast.png")
print(f"the measured loss at the end: {trainer.losses[-1]:.4f}")
