#!/usr/bin/env python3
"""Trains the ensemble that continues the residual of the power law of a loss curve.

    train_loss_forecaster.py [--out FILE] ...

It learns from trainings that are made for it, without a data set: networks with one hidden layer
learn what random networks say of random inputs, by gradient descent, momentum or Adam, at rates
that stay, fall along a cosine or a line, or in steps. Each curve is cut at many lengths; the
residual of the law of each cut is what its features are to continue, by maximum likelihood.
Held-out trainings tell how well. One seed gives one file, on one machine with one version of torch.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from train_forecaster import Members

from pulsora.forecast.gru.rollout import rollout
from pulsora.forecast.loss_curve.power_law import PowerLaw
from pulsora.forecast.loss_curve.residual import STEPS, UNIT, features, future

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    Values = NDArray[np.float64]

FOLDER = Path(__file__).parent.parent / "python" / "pulsora" / "forecast"
BLOCKS = 120  # losses of a curve
SHORTEST, LONGEST = 10, 108  # losses of a part
EVERY = 3  # losses from one cut of a curve to the next
TOGETHER = 32  # trainings of one shape, side by side
SAMPLES = 2000
KNOWN = 0.7  # share of the cuts whose learning rates are known
HELD_OUT = 1 / 8
FAR = 60.0  # units; cuts with larger residuals are left out
SCHEDULES = ("constant", "cosine", "linear", "steps")


class Curve(NamedTuple):
    """Mean losses of the blocks of a training [BLOCKS], and the learning rates of their ends."""

    losses: Values
    rates: Values


class Cuts(NamedTuple):
    """Features [n, FEATURES] of parts of curves, later residuals in units [n, STEPS], a mask."""

    rows: Tensor
    residuals: Tensor
    there: Tensor


def factor(schedule: str, done: float) -> float:
    """The learning rate over that of the beginning, after a share of a training."""
    return {
        "constant": 1.0,
        "cosine": 0.5 * (1.0 + math.cos(math.pi * done)),
        "linear": 1.0 - done,
        "steps": 0.1 ** int(3.0 * min(done, 0.999)),
    }[schedule]


class Optimizer:
    """Gradient descent, momentum or Adam with a rate for each of TOGETHER networks."""

    def __init__(self, kind: str, weights: list[Tensor]) -> None:
        self._kind, self._weights = kind, weights
        self._speeds, self._squares = (
            [torch.zeros_like(weight) for weight in weights] for _ in range(2)
        )
        self._steps = 0

    @torch.no_grad()
    def step(self, slopes: tuple[Tensor, ...], rates: Tensor) -> None:
        """One step against the slopes, at rates [TOGETHER]."""
        self._steps += 1
        by = rates.view(-1, 1, 1)
        for place, slope in enumerate(slopes):
            speed, square = self._speeds[place], self._squares[place]
            if self._kind == "adam":
                speed.lerp_(slope, 0.1)
                square.lerp_(slope * slope, 0.001)
                size = (square / (1.0 - 0.999**self._steps)).sqrt() + 1e-8
                self._weights[place] -= by * speed / (1.0 - 0.9**self._steps) / size
            else:
                speed.mul_(0.9 if self._kind == "momentum" else 0.0).add_(slope)
                self._weights[place] -= by * speed


class Tasks:
    """TOGETHER classifications of random inputs by random networks, some labels wrong."""

    def __init__(self, generator: torch.Generator) -> None:
        def draw(low: float, high: float, *shape: int) -> Tensor:
            return low + (high - low) * torch.rand(shape, generator=generator)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator)

        self.draw = draw
        self.inputs, self.hidden, self.outputs = (
            int(draw(*span)) for span in ((16, 64), (16, 48), (4, 10))
        )
        spectrum = torch.arange(1.0, self.inputs + 1.0) ** -draw(0.0, 1.0, TOGETHER, 1, 1)
        centres = normal(TOGETHER, 3 * self.outputs, self.inputs) * draw(0.3, 1.0, TOGETHER, 1, 1)
        self._lanes = torch.arange(TOGETHER)[:, None]
        places = torch.randint(3 * self.outputs, (TOGETHER, SAMPLES), generator=generator)
        x = (centres[self._lanes, places] + normal(TOGETHER, SAMPLES, self.inputs)) * spectrum
        self._x = x / x.std((1, 2), keepdim=True)
        first = normal(TOGETHER, self.inputs, 2 * self.hidden) / math.sqrt(self.inputs)
        y = (torch.tanh(x @ first) @ normal(TOGETHER, 2 * self.hidden, self.outputs)).argmax(2)
        wrong = draw(0.0, 1.0, TOGETHER, SAMPLES) < draw(0.0, 0.15, TOGETHER, 1)
        others = torch.randint(self.outputs, y.shape, generator=generator)
        self._y = torch.where(wrong, others, y)
        self._generator = generator

    def weights(self) -> list[Tensor]:
        """Initial weights of two layers of each network, as torch draws them."""
        return [
            self.draw(-1.0, 1.0, TOGETHER, *shape).div_(math.sqrt(rows)).requires_grad_()
            for rows, columns in ((self.inputs, self.hidden), (self.hidden, self.outputs))
            for shape in ((rows, columns), (1, columns))
        ]

    def losses(self, weights: list[Tensor], batch: int) -> Tensor:
        """The mean losses [TOGETHER] of some samples."""
        some = torch.randint(SAMPLES, (TOGETHER, batch), generator=self._generator)
        shown = torch.relu(torch.baddbmm(weights[1], self._x[self._lanes, some], weights[0]))
        said = torch.baddbmm(weights[3], shown, weights[2]).flatten(0, 1)
        each = functional.cross_entropy(
            said, self._y[self._lanes, some].flatten(), reduction="none"
        )
        return each.view(TOGETHER, batch).mean(1)


def made_curves(seed: int) -> list[Curve]:
    """Trainings of TOGETHER networks of one shape, side by side; diverged ones are left out."""
    tasks = Tasks(torch.Generator().manual_seed(seed))
    weights = tasks.weights()
    kind = ("sgd", "momentum", "adam")[seed % 3]
    optimizer = Optimizer(kind, weights)
    span = {"sgd": (-1.6, -0.3), "momentum": (-2.6, -1.2), "adam": (-3.3, -2.2)}[kind]
    top = 10.0 ** tasks.draw(*span, TOGETHER)
    block, batch = int(tasks.draw(8, 32)), int(tasks.draw(16, 96))
    # Half of the schedules are as long as the training, the others twice as long.
    lengths = BLOCKS * (1 + (tasks.draw(0.0, 1.0, TOGETHER) < 0.5).int())
    losses, rates = [], []
    for number in range(BLOCKS):  # within a block the rate stays
        done = (number / lengths).tolist()
        rates.append(
            top
            * torch.tensor(
                [factor(SCHEDULES[lane % len(SCHEDULES)], share) for lane, share in enumerate(done)]
            )
        )
        total = torch.zeros(TOGETHER)
        for _ in range(block):
            means = tasks.losses(weights, batch)
            optimizer.step(torch.autograd.grad(means.sum(), weights), rates[-1])
            total += means.detach()
        losses.append(total / block)
    curves, of_curves = (torch.stack(made, 1).double().numpy() for made in (losses, rates))
    return [
        Curve(curve, of_curve)
        for curve, of_curve in zip(curves, of_curves, strict=True)
        if np.isfinite(curve).all() and curve.min() > 1e-6 and curve.max() < 20.0
    ]


def cut(curves: list[Curve], random: np.random.Generator) -> Cuts:
    """Parts of curves from their beginning, and the residuals that followed."""
    rows, to_come, there = [], [], []
    for curve in curves:
        logs = np.log(curve.losses)
        for count in range(SHORTEST, LONGEST, EVERY):
            law = PowerLaw.fitted(logs[:count])
            known = random.random() < KNOWN
            left = logs[count:] - law.at(np.arange(count + 1.0, BLOCKS + 1.0))
            times = future(count)
            values = np.interp(times, np.arange(count, BLOCKS + 1.0), np.append(0.0, left))
            values = values / UNIT
            if np.abs(values[times <= BLOCKS]).max() > FAR:
                continue
            rows.append(features(logs[:count], law, curve.rates if known else None))
            to_come.append(values)
            there.append(times <= BLOCKS)
    parts = (rows, to_come, there)
    return Cuts(*(torch.tensor(np.stack(part), dtype=torch.float32) for part in parts))


def fit(members: Members, cuts: Cuts, iterations: int, batch: int, seed: int) -> None:
    """Maximum likelihood of Gaussian errors, plus least squares; members see different cuts."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(members.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, iterations, eta_min=1e-5)
    shape = (len(members.log_variance_bias), batch)
    for iteration in range(iterations):
        some = torch.randint(len(cuts.rows), shape, generator=generator)
        path, variance = members(cuts.rows[some], STEPS)
        there = cuts.there[some]
        squares = (path - cuts.residuals[some]) ** 2
        each = 0.5 * (squares * torch.exp(-variance) + variance) + 0.02 * squares.clamp_max(50.0)
        loss = (each * there).sum() / there.sum()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(members.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if (iteration + 1) % 250 == 0:
            print(f"iteration {iteration + 1}: {loss.item():.3f}", flush=True)


def judge(members: Members, cuts: Cuts) -> str:
    """Mean errors of the law with the ensemble and alone, in units, on held-out curves."""
    made = rollout(members.ensemble(), cuts.rows.numpy(), STEPS)
    mean, variance = made.expected, made.epistemic + made.aleatoric
    there, values = cuts.there.numpy() > 0, cuts.residuals.numpy()
    shown = []
    for place in (3, 7, 11, 15, 19, 23):
        some = there[:, place]
        left, law = np.abs(mean - values)[some, place].mean(), np.abs(values[some, place]).mean()
        shown.append(
            f"{left:.2f} (law alone {law:.2f}) at {4.0 ** ((place + 1) / STEPS):.2f} lengths"
        )
    inside = (np.abs(mean - values) < 1.645 * np.sqrt(variance))[there].mean()
    return f"mean errors {', '.join(shown)}; {inside:.1%} in the members' intervals of 90 %"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, default=FOLDER / "loss_curve" / "loss_ensemble.safetensors"
    )
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--groups", type=int, default=24, help=f"of {TOGETHER} trainings each")
    parser.add_argument("--iterations", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    curves: list[Curve] = []
    for number in range(arguments.groups):
        curves += made_curves(arguments.seed * arguments.groups + number)
        print(f"{len(curves)} curves, {time.perf_counter() - start:.0f} s", flush=True)
    held_out = max(round(HELD_OUT * len(curves)), 1)
    random = np.random.default_rng(arguments.seed)
    learned, held = cut(curves[:-held_out], random), cut(curves[-held_out:], random)
    members = Members(arguments.members, arguments.hidden, arguments.hidden, arguments.seed)
    fit(members, learned, arguments.iterations, arguments.batch, arguments.seed)
    print(judge(members, held))
    members.ensemble().save(arguments.out)
    print(
        f"{arguments.out}: {arguments.out.stat().st_size} bytes, "
        f"{time.perf_counter() - start:.0f} s"
    )


if __name__ == "__main__":
    main()
