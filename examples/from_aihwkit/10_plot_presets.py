"""AIHWKit's example 10: how the cells of the presets respond to pulses up and down."""

import numpy as np
from matplotlib.figure import Figure

import pulsora as pl

devices = pl.devices
presets = {
    "Idealized": devices.Idealized(),
    "ReRamES": devices.ReRamES(),
    "ReRamSB": devices.ReRamSB(),
    "Capacitor": devices.Capacitor(),
    "EcRam": devices.EcRam(),
    "EcRamMO": devices.EcRamMO(),
    "PCM": devices.PCM(),
}
figure = Figure(figsize=(12.0, 9.0), layout="constrained")
for axes, (name, device) in zip(figure.subplots(3, 3).flat, presets.items(), strict=False):
    response = pl.plot.device_response(device, cells=32)
    pl.plot.draw_response(axes, response, name)
    turn = response.weights[np.searchsorted(response.pulses, response.turn)]
    print(
        f"{name:10} {response.turn:6} pulses up, weight {turn.mean():.2f} +- {turn.std():.2f}, "
        f"then as many down: {response.weights[-1].mean():.2f}"
    )
    assert turn.mean() > response.weights[0].mean()
figure.savefig("presets.png")
