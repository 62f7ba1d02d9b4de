"""AIHWKit's example 14: an experiment object with a schedule of one's own."""

from torch.optim.lr_scheduler import StepLR

from pulsora.training.experiment import Experiment
from pulsora.training.run import Metrics, Run

run = Run(
    Experiment(
        hidden=(64, 32),
        epochs=10,
        batch=16,
        lr=0.3,
        algorithm="pulsed",
        device_preset="ConstantStep",
    )
)
scheduler = StepLR(run.optimizer, step_size=5, gamma=0.5)
rates = []


def next_rate(row: Metrics) -> None:
    """Called after each epoch."""
    rates.append(run.optimizer.param_groups[0]["lr"])
    print(f"epoch {row['epoch']:.0f}: rate {rates[-1]}, accuracy {row['accuracy']:.1%}")
    scheduler.step()


history = run.train(on_epoch=next_rate)
assert rates == [0.3] * 5 + [0.15] * 5
assert history[-1]["accuracy"] > 0.8
