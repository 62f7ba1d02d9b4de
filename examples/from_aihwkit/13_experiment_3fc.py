"""AIHWKit's example 13: an experiment object that knows its data, its network and its loop.

`pulsora train` is the same in a shell.
"""

from pulsora.training.experiment import Experiment
from pulsora.training.run import Run

experiment = Experiment(
    data="digits",  # or a folder with the files of MNIST or Fashion-MNIST
    hidden=(64, 32),
    epochs=10,
    batch=16,
    lr=0.3,
    algorithm="pulsed",
    device_preset="ConstantStep",
)
run = Run(experiment)
history = run.train(on_epoch=lambda row: print(f"{row['epoch']:.0f}: {row['accuracy']:.1%}"))
print(run.model)
print(history[-1])
assert history[-1]["accuracy"] > 0.8
