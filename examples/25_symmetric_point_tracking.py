"""A training rule of one's own: E-RIDER, which estimates symmetric points while it trains.

Residual learning moves an array P to W. Noisy gradients pull P to its symmetric points, so that it
fails where these are not 0. E-RIDER moves P - Q instead, where Q is a mean of P (Xiao, Li, Wu,
Gokmen & Chen, arXiv 2602.21321, 2026, algorithm 3). The control has Q = 0: residual learning.
"""

import numpy as np

import pulsora as pl

IO = pl.IOParameters(is_perfect=True)
CELLS = pl.devices.SoftBounds(dw_min=0.01, up_down_dtod=0.3)
ARRAY = pl.SingleConfig(device=CELLS, forward=IO, backward=IO)
WIDE = pl.IdealConfig(forward=IO, backward=IO)  # an array for Q that takes any value


# 1. The rule: reads see W + gamma c (P - Q), with a sign c that changes at random (a chopper).
class ERider(pl.prototype.Rule):
    """Array q holds the mean as it was at the last change of sign."""

    gamma, beta, eta, flips = 0.6, 0.003, 0.3, 0.01

    def __init__(self, seed: int) -> None:
        memory = {"mean": np.zeros((10, 20)), "sign": 1.0}
        super().__init__(10, 20, {"w": ARRAY, "p": ARRAY, "q": WIDE}, digital=memory, seed=seed)

    def factors(self) -> dict[str, float]:
        """The weight of reads."""
        return {"w": 1.0, "p": (c := self.gamma * float(self.digital["sign"])), "q": -c}

    def step(self, x: np.ndarray, d: np.ndarray, lr: float) -> None:
        """One mini-batch: P learns, the mean follows P, and W takes what is left."""
        sign = float(self.digital["sign"])
        self.pulse("p", x, sign * d, lr)
        p = self.arrays["p"].weights
        self.digital["mean"] += self.eta * (p - self.digital["mean"])
        self.write("w", self.beta * sign * (p - self.arrays["q"].weights))
        if self.random().random() < self.flips:  # for the next mini-batch
            self.digital["sign"] = -sign
            self.arrays["q"].weights = self.digital["mean"]


# 2. Linear regression with noisy labels; errors are squares of W - W_0, relative to those of W_0.
found = {"plain pulses": [], "residual learning": [], "E-RIDER": []}
for seed in range(3):
    made = [pl.Tile(10, 20, ARRAY, seed=seed), (control := ERider(seed)), ERider(seed)]
    control.gamma, control.beta, control.eta, control.flips = 0.1, 0.001, 0.0, 0.0
    for name, rule in zip(found, made, strict=True):
        rng, errors = np.random.default_rng(seed), []
        target = rng.uniform(-0.4, 0.4, (10, 20)).astype(np.float32)
        for _ in range(4000):
            x = rng.uniform(-1, 1, (1, 20)).astype(np.float32)
            labels = x @ target.T + 0.3 * rng.standard_normal((1, 10)).astype(np.float32)
            rule.update(x, rule.forward(x) - labels, 0.05)
            errors.append(np.sum((rule.weights - target) ** 2) / np.sum(target**2))
        found[name].append(np.mean(errors[-200:]))
print(*(f"{name:18} {np.round(errors, 3)}" for name, errors in found.items()), sep="\n")
assert max(found["E-RIDER"]) < 0.3 * min(found["plain pulses"] + found["residual learning"])
