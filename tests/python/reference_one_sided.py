"""One-sided cells of constant steps in NumPy: the oracle of tests, written from the rules alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]


def counts(x: Matrix, d: Matrix, lr: float, dw_min: float, settings: dict[str, Any]) -> Matrix:
    """Signed deterministic pulses [d, x] of one sample: negative ones step down (lr > 0)."""
    length = settings["desired_bl"]
    x_max, d_max = np.abs(x).max(), np.abs(d).max()
    if x_max == 0.0 or d_max == 0.0:
        return np.zeros((len(d), len(x)))
    ratio = 1.0
    if settings["update_management"]:
        ratio = np.sqrt(d_max / x_max)
    if settings["update_bl_management"]:
        length = min(length, int(np.ceil(lr * x_max * d_max / dw_min)))
    scale = np.sqrt(lr / (dw_min * length))
    p_x = np.minimum(np.abs(x) * scale * ratio, 1.0)
    p_d = np.minimum(np.abs(d) * scale / ratio, 1.0)
    return -np.sign(np.outer(d, x)) * np.rint(length * np.outer(p_d, p_x))


class OneSided:
    """g_plus and g_minus under deterministic pulses.

    With `writes_down`, the pulses that write a difference back after a refresh go down: an error of
    the other simulator, which loses the sign of a negative learning rate.
    """

    def __init__(self, case: dict[str, Any], weights: Matrix, *, writes_down: bool) -> None:
        self.given = case["config"]
        (self.cell,) = self.given["devices"]
        assert self.cell["type"] == "ConstantStep"
        assert self.cell["up_down"] == 0.0
        self.update_settings = case["update"]
        self.lr = case["lr"]
        self.writes_down = writes_down
        self.plus, self.minus = np.maximum(weights, 0.0), np.maximum(-weights, 0.0)
        self.samples = self.refreshed = 0
        in_batches = self.given["units_in_mbatch"]
        self.period = self.given["refresh_every"] * (case["inputs"]["m_batch"] if in_batches else 1)

    def pulsed(self, weights: Matrix, pulses: Matrix) -> Matrix:
        moved = weights + pulses * self.cell["dw_min"]
        return np.clip(moved, self.cell["w_min"], self.cell["w_max"])

    def sample(self, x: Matrix, d: Matrix) -> None:
        n = counts(x, d, self.lr, self.cell["dw_min"], self.update_settings)
        self.plus = self.pulsed(self.plus, np.maximum(n, 0.0))
        self.minus = self.pulsed(self.minus, np.maximum(-n, 0.0))
        self.samples += 1
        if self.period and self.samples % self.period == 0:
            self.refresh()

    def refresh(self) -> None:
        large, small = np.maximum(self.plus, self.minus), np.minimum(self.plus, self.minus)
        w_max = self.cell["w_max"]
        due = (large > self.given["refresh_upper_thres"] * w_max) & (
            small > self.given["refresh_lower_thres"] * w_max
        )
        wanted = np.where(due, self.plus - self.minus, 0.0)
        self.refreshed += int(due.sum())
        self.plus, self.minus = np.where(due, 0.0, self.plus), np.where(due, 0.0, self.minus)
        self.plus = self.written(self.plus, np.maximum(wanted, 0.0))
        self.minus = self.written(self.minus, np.maximum(-wanted, 0.0))

    def written(self, weights: Matrix, wanted: Matrix) -> Matrix:
        settings = self.given["refresh_update"]
        if settings["pulse_type"] == "NoneWithDevice":
            return np.clip(weights + wanted, self.cell["w_min"], self.cell["w_max"])
        sign = -1.0 if self.writes_down else 1.0
        for j in range(wanted.shape[1]):
            n = -counts(np.ones(1), wanted[:, j], 1.0, self.cell["dw_min"], settings)[:, 0]
            weights[:, j] = self.pulsed(weights[:, j], sign * n)
        return weights
