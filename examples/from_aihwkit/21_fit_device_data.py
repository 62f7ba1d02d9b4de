"""AIHWKit's example 21: a device with steps from a table, fitted to a file of measured pulses.

The file has two columns, the readings while pulses go up and while they go down. Here they are
simulated. Needs SciPy.
"""

import numpy as np

import pulsora as pl

rng = np.random.default_rng(0)
truth = pl.devices.SoftBounds(dw_min=0.05, w_max=1.0, w_min=-1.0, dw_min_std=0.2)
measured = pl.plot.device_response(truth, cells=1, pulses=80, points=80)
readings = measured.weights[:, 0] + 0.005 * rng.standard_normal(161)
np.savetxt("pulses.csv", np.stack([readings[:81], readings[80:]], axis=1), delimiter=",")

device, report = pl.fit.device(
    "pulses.csv", columns=("up", "down"), unit="weight", models=["PiecewiseStep"]
)
print(report)
pl.devices.save(device, "device.json")

again = pl.plot.device_response(device, cells=32, pulses=80, points=80).weights.mean(axis=1)
distance = np.abs(again - measured.weights[:, 0]).max()
span = np.ptp(measured.weights)
print(f"mean of fitted cells: within {distance / span:.1%} of the measured range")
report.plot().savefig("fit.png")
assert distance < 0.15 * span
