"""The low-rank adapter beside full-rank pulsed SGD: accuracy, and what it takes in pulses.

What one sees: the adapter comes within about a point of full-rank pulses. With short cycles it takes
twice as many pulses, so there it is the worse choice; with long cycles it takes about half of them,
and is the better choice where writing is what costs.
"""

from pulsora.experiment import Experiment, Run

# 1. The same network, data, device and learning rate; cycles in mini-batches.
common = {"hidden": (64,), "epochs": 20, "lr": 0.4, "device_preset": "EcRam", "seed": 1}
ways = {
    "floating point": Experiment(algorithm="digital", **common),
    "full-rank pulses": Experiment(algorithm="pulsed", **common),
    "LRTT, rank 4, cycles of 100": Experiment(rank=4, transfer_every=100, **common),
    "LRTT, rank 8, cycles of 3": Experiment(rank=8, transfer_every=3, **common),
    "LRTT, rank 8, cycles of 100": Experiment(rank=8, transfer_every=100, **common),
}

# 2. Train each, and compare.
print(f"{'':28}{'accuracy':>10}{'pulses/cell':>13}{'gain':>8}")
results = {}
for name, experiment in ways.items():
    last = results[name] = Run(experiment, threads=1).train()[-1]
    pulses = f"{last['pulses_per_cell']:.0f}" if "pulses_per_cell" in last else "-"
    gain = f"{last['gain']:.3f}" if "gain" in last else "-"
    print(f"{name:28}{last['accuracy']:>10.1%}{pulses:>13}{gain:>8}")

# 3. Alpha sets itself so that the adapter keeps pace with SGD at the same learning rate.
full, adapter = results["full-rank pulses"], results["LRTT, rank 8, cycles of 100"]
assert adapter["accuracy"] > full["accuracy"] - 0.02
assert adapter["pulses_per_cell"] < 0.7 * full["pulses_per_cell"]
