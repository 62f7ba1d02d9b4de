"""A device of one's own: the fitted device trains like the measured one; the example runs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import nn

import pulsora as pl
from conftest import ROOT
from pulse_data import measured
from pulsora.training.data import batches, digits

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

SEEDS = 8
EPOCHS = 4


def curve(device: pl.devices.Device, seed: int) -> list[float]:
    """Mean loss of each epoch of a network with one analog layer, and its test loss."""
    data = digits()
    torch.manual_seed(seed)
    layer = pl.nn.AnalogLinear(64, 32, config=pl.SingleConfig(device=device), seed=seed)
    model = nn.Sequential(layer, nn.Tanh(), nn.Linear(32, 10))
    optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.1)
    losses = []
    for epoch in range(EPOCHS):
        seen = []
        for x, y in batches(data, batch=32, seed=seed, epoch=epoch):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y))
            loss.backward()
            optimizer.step()
            seen.append(loss.item())
        losses.append(float(np.mean(seen)))
    with torch.no_grad():
        test = nn.functional.cross_entropy(
            model(torch.from_numpy(data.test_x)), torch.from_numpy(data.test_y)
        )
    return [*losses, test.item()]


def curves(device: pl.devices.Device) -> NDArray[np.float64]:
    return np.array([curve(device, seed) for seed in range(SEEDS)])


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:.*outside the bounds")
def test_a_fitted_device_trains_as_the_one_that_was_measured() -> None:
    true = pl.devices.SoftBounds(
        dw_min=0.02, dw_min_std=0.3, dw_min_dtod=0.2, up_down=0.1, up_down_dtod=0.05,
        w_max=1.0, w_min=-1.0, w_max_dtod=0.1, w_min_dtod=0.1,
    )  # fmt: skip
    up, down = measured(true, cells=30, pulses=100, seed=3)
    fitted, _ = pl.fit.device(up=up, down=down, unit="weight", span=(-1.0, 1.0))
    of_true, of_fitted = curves(true), curves(fitted)
    spread = of_true.std(axis=0, ddof=1)
    # The means of eight seeds agree within the spread of one, at every epoch.
    assert (np.abs(of_fitted.mean(axis=0) - of_true.mean(axis=0)) < spread).all()
    # A device with other asymmetry does not.
    other = curves(pl.devices.SoftBounds(**{**_settings(true), "up_down": -0.5}))
    assert (np.abs(other.mean(axis=0) - of_true.mean(axis=0)) > spread).any()


def _settings(device: pl.devices.Device) -> dict[str, object]:
    return {name: value for name, value in device.to_dict().items() if name != "model"}


@pytest.mark.nightly
@pytest.mark.skipif(not shutil.which("c++"), reason="needs a C++ compiler")
def test_the_example_from_source_runs(tmp_path: Path) -> None:
    done = subprocess.run(  # noqa: S603
        [sys.executable, str(ROOT / "examples" / "05_custom_device" / "train.py")],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "a saved state goes on to the bit" in done.stdout
    found = re.search(r"([0-9.]+) % of the test images", done.stdout)
    assert found is not None
    assert float(found[1]) > 85.0
