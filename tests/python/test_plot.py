"""Pictures say what is in them, and show what they are for."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import pulsora as pl
from pulsora import presets
from pulsora.plot import Response, device_response, draw_response, plot_device, plot_training


def test_the_legend_names_everything_that_is_drawn() -> None:
    (axes,) = plot_device(pl.devices.EcRam(), pulses=50, cells=8).axes
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert texts == [
        "mean of cells",
        "±1 standard deviation",
        "single cells",
        "bounds, mean of cells",
    ]
    assert len(axes.collections) == 1  # the band
    kinds = {(to_hex(line.get_color()), line.get_linestyle()) for line in axes.lines}
    assert len(kinds) == 4  # mean, cells, bounds, and where the direction turns


def test_a_notebook_shows_a_figure_without_pyplot() -> None:
    program = """if True:
        import sys, pulsora as pl
        assert "plot" in dir(pl) and "matplotlib" not in sys.modules
        figure = pl.plot.plot_device(pl.devices.EcRam(), pulses=20, cells=2)
        assert not {"torch", "matplotlib.pyplot"} & set(sys.modules)
        sys.stdout.buffer.write(figure._repr_png_())
    """
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"\x89PNG")


def test_bounds_are_drawn_where_the_cells_have_them() -> None:
    device = pl.devices.ConstantStep(w_max=0.8, w_min=-0.4, w_max_dtod=0.0, w_min_dtod=0.0)
    response = device_response(device, cells=4)
    np.testing.assert_allclose(response.bounds, (-0.4, 0.8), rtol=1e-6)
    axes = Figure().subplots()
    draw_response(axes, response, "")
    heights = [line.get_ydata() for line in axes.lines if line.get_linestyle() == "--"]
    np.testing.assert_allclose(heights, [[-0.4, -0.4], [0.8, 0.8]], rtol=1e-6)


@pytest.mark.parametrize("model", pl.devices.MODELS)
def test_pulses_suffice_to_come_near_the_bounds(model: str) -> None:
    """Without spreads and noise, 95 % of the range is crossed in the slower direction."""
    device = presets.device(model)
    spreads = [name for name in device.to_dict() if name.endswith("_dtod")]
    response = device_response(device.replace(**dict.fromkeys([*spreads, "dw_min_std"], 0.0)))
    low, high = response.bounds
    mean = response.weights.mean(axis=1)
    top = mean[np.searchsorted(response.pulses, response.turn)]
    crossed = min(top - low, top - mean[-1]) / (high - low)
    assert 0.85 < crossed <= 1.0 + 1e-6
    assert response.pulses[-1] == 2 * response.turn


def test_pulses_have_a_limit_where_a_cell_never_arrives() -> None:
    stuck = pl.devices.PowStep(pow_gamma=40.0)  # whose step vanishes far from the bound
    response = device_response(stuck, cells=2, points=2)
    numbers = stuck.to_dict()
    assert response.turn == round(20 * (numbers["w_max"] - numbers["w_min"]) / numbers["dw_min"])


@pytest.mark.parametrize("dw_min", [1e-4, 0.3, 1.0, 5.0, 1e6])
def test_every_pulse_is_counted_whatever_the_step(dw_min: float) -> None:
    spreads = dict.fromkeys(("dw_min_dtod", "dw_min_std", "w_max_dtod", "w_min_dtod"), 0.0)
    device = pl.devices.ConstantStep(
        dw_min=dw_min, w_max=20 * dw_min, w_min=-20 * dw_min, up_down_dtod=0.0, **spreads
    )
    response = device_response(device, cells=2, pulses=20, points=20)
    counted = np.minimum(response.pulses, 40 - response.pulses)
    np.testing.assert_allclose(
        response.weights, dw_min * (counted - 20.0)[:, None] * np.ones(2), rtol=1e-5,
        atol=1e-5 * dw_min,
    )  # fmt: skip


def test_single_cells_are_typical_ones_from_low_to_high() -> None:
    weights = np.zeros((3, 10), np.float32)
    weights[1] = [5, 3, 100, 1, 4, 2, 7, 6, 9, 8]  # at the turn; the third one is odd
    weights[2] = np.arange(10)
    response = Response(np.array([0, 4, 8]), weights, 4, (0.0, 1.0))
    np.testing.assert_array_equal(response.typical(5)[1], [2, 4, 6, 8, 100])
    np.testing.assert_array_equal(response.typical(1)[1], [6])
    np.testing.assert_array_equal(response.typical(5)[2], [5, 4, 7, 9, 2])


@pytest.mark.parametrize("epochs", [1, 2, 3, 20])
def test_epochs_are_whole_numbers(epochs: int) -> None:
    history = [{"epoch": float(i + 1), "loss": 1.0, "accuracy": 0.5} for i in range(epochs)]
    figure = plot_training({"run": history})
    figure.canvas.draw()
    for axes in figure.axes:
        for label in axes.get_xticklabels():
            assert float(label.get_text().replace("\u2212", "-")).is_integer()
