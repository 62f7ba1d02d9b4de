"""The low-rank adapter beside full-rank pulsed SGD: accuracy and pulses.

On ReRAM cells, whose pulses are noisy and asymmetric, full-rank pulses stay some points below
floating point, and the adapter reaches it. It takes more pulses, on small arrays of better cells.
With short cycles B has no time to learn, and the large array is written too often.
"""

from pulsora.plot import plot_training
from pulsora.training.experiment import Experiment
from pulsora.training.run import Run

# 1. The same network, data, device and learning rate; cycles in mini-batches.
common = {"hidden": (64,), "epochs": 20, "lr": 0.4, "seed": 1}
cells = {"device_preset": "ReRamSB", **common}
ways = {
    "floating point": Experiment(algorithm="digital", **common),
    "full-rank pulses": Experiment(algorithm="pulsed", **cells),
    "LRTT, rank 4, cycles of 100": Experiment(rank=4, transfer_every=100, **cells),
    "LRTT, rank 16, cycles of 10": Experiment(rank=16, transfer_every=10, **cells),
    "LRTT, rank 16, cycles of 100": Experiment(rank=16, transfer_every=100, **cells),
}

# 2. Train each, and compare.
print(f"{'':28}{'accuracy':>10}{'pulses/cell':>13}{'gain':>8}")
results, histories = {}, {}
for name, experiment in ways.items():
    histories[name] = Run(experiment, threads=1).train()
    last = results[name] = histories[name][-1]
    pulses = f"{last['pulses_per_cell']:.0f}" if "pulses_per_cell" in last else "-"
    gain = f"{last['gain']:.3f}" if "gain" in last else "-"
    print(f"{name:28}{last['accuracy']:>10.1%}{pulses:>13}{gain:>8}")

# 3. The adapter is the better choice here.
full, adapter = results["full-rank pulses"], results["LRTT, rank 16, cycles of 100"]
assert adapter["accuracy"] > full["accuracy"] + 0.02
assert adapter["accuracy"] > results["floating point"]["accuracy"] - 0.03

# 4. Loss and accuracy over the epochs.
plot_training(histories).savefig("comparison.png")
