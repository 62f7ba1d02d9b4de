"""The low-rank adapter beside full-rank pulsed SGD: accuracy, and what it takes in pulses."""

from pulsora.experiment import Experiment, Run

# 1. The same network, data, device and learning rate.
common = {"hidden": (64,), "epochs": 10, "lr": 0.1, "device_preset": "Idealized", "seed": 1}
ways = {
    "floating point": Experiment(algorithm="digital", **common),
    "full-rank pulses": Experiment(algorithm="pulsed", **common),
    "LRTT, rank 4": Experiment(algorithm="lrtt", rank=4, **common),
    "LRTT, rank 16": Experiment(algorithm="lrtt", rank=16, **common),
    "LRTT, rank 16, long cycles": Experiment(
        algorithm="lrtt", rank=16, transfer_every=1000, **common
    ),
}

# 2. Train each, and compare.
print(f"{'':28}{'accuracy':>10}{'pulses/cell':>13}{'gain':>8}")
scores = {}
for name, experiment in ways.items():
    last = Run(experiment, threads=1).train()[-1]
    scores[name] = last["accuracy"]
    pulses = f"{last['pulses_per_cell']:.0f}" if "pulses_per_cell" in last else "-"
    gain = f"{last['gain']:.3f}" if "gain" in last else "-"
    print(f"{name:28}{last['accuracy']:>10.1%}{pulses:>13}{gain:>8}")

# 3. Alpha sets itself so that the adapter keeps pace with SGD at the same learning rate.
assert scores["LRTT, rank 16"] > scores["floating point"] - 0.05
