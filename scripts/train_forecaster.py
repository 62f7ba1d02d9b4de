#!/usr/bin/env python3
"""Trains the recurrent ensemble of pulsora.forecast.GRUForecaster.

    train_forecaster.py [--out FILE] [--hidden 64] ...

It learns from trainings that are made for it, without a data set: networks with one hidden layer
learn what random networks say of random inputs, by gradient descent, momentum or Adam, at constant
rates or along a cosine. Each of their histories gives rows of features, and for each row the path
that followed, which the members learn by maximum likelihood. Held-out trainings tell how well: R2
of the paths, and how many of them lie in intervals of level 90 %. One seed gives one file, on one
machine with one version of torch.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from pulsora.forecast.gru.ensemble import Ensemble
from pulsora.forecast.gru.features import AHEAD, FEATURES, LEAST, MOST, basis, features
from pulsora.forecast.gru.rollout import rollout

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    Floats = NDArray[np.float32]

OUT = (
    Path(__file__).parent.parent
    / "python"
    / "pulsora"
    / "forecast"
    / "gru"
    / "ensemble.safetensors"
)
BLOCKS = 110  # of a training
AHEAD_MOST = 32  # blocks of a path
EVERY = 4  # blocks from one history of a training to the next
SAMPLES = 4000
HELD_OUT = 1 / 8
SHORT = 16  # blocks of a path in three of four iterations
FAR = 100.0  # units; histories with longer paths are left out
SIGNED = [*range(1, 33), *range(41, 45), 50, 51]  # features that change sign with their direction


@dataclass(frozen=True)
class Training:
    """Block means of the weights [BLOCKS, n], mean losses, and rates at block ends and later."""

    means: Floats
    losses: list[float]
    rates: list[float]


def made_training(seed: int) -> Training:
    """A training of a random network to agree with another."""
    generator = torch.Generator().manual_seed(seed)

    def draw(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=generator))

    inputs, hidden, outputs = int(draw(16, 64)), int(draw(16, 48)), int(draw(4, 10))

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    spectrum = torch.arange(1.0, inputs + 1.0) ** -draw(0.0, 1.0)
    centres = normal(3 * outputs, inputs) * draw(0.3, 1.0)
    places = torch.randint(len(centres), (SAMPLES,), generator=generator)
    x = (centres[places] + normal(SAMPLES, inputs)) * spectrum
    x = x / x.std()
    teacher = normal(inputs, 2 * hidden) / math.sqrt(inputs), normal(2 * hidden, outputs)
    y = (torch.tanh(x @ teacher[0]) @ teacher[1]).argmax(1)
    wrong = torch.rand(SAMPLES, generator=generator) < draw(0.0, 0.15)
    y = torch.where(wrong, torch.randint(outputs, (SAMPLES,), generator=generator), y)

    torch.manual_seed(seed)
    student = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
    kind = ("sgd", "momentum", "adam")[seed % 3]
    low, high = {"sgd": (-1.6, -0.3), "momentum": (-2.6, -1.2), "adam": (-3.3, -2.2)}[kind]
    rate = 10.0 ** draw(low, high)
    optimizer: torch.optim.Optimizer = (
        torch.optim.Adam(student.parameters(), rate)
        if kind == "adam"
        else torch.optim.SGD(
            student.parameters(), rate, momentum=0.9 if kind == "momentum" else 0.0
        )
    )
    falls, twice = draw(0.0, 1.0) < 0.5, draw(0.0, 1.0) < 0.5
    block, batch = int(draw(8, 32)), int(draw(16, 96))
    steps = BLOCKS * block
    length = steps * (2 if twice else 1)

    def rate_at(step: int) -> float:
        turn = math.pi * min(step / length, 1.0) if falls else 0.0
        return float(rate * 0.5 * (1.0 + math.cos(turn)))

    means, losses = [], []
    total, loss_total = None, 0.0
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rate_at(step)
        some = torch.randint(SAMPLES, (batch,), generator=generator)
        loss = functional.cross_entropy(student(x[some]), y[some])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        flat = nn.utils.parameters_to_vector(student.parameters()).detach()
        total = flat if total is None else total + flat
        loss_total += loss.item()
        if (step + 1) % block == 0:
            means.append((total / block).numpy())
            losses.append(loss_total / block)
            total, loss_total = None, 0.0
    rates = [rate_at((number + 1) * block) for number in range(BLOCKS + max(AHEAD))]
    return Training(np.stack(means), losses, rates)


def histories(training: Training, random: np.random.Generator) -> tuple[list[Floats], list[Floats]]:
    """Rows of features of some of its histories, and the paths that followed, in units."""
    rows, paths = [], []
    for last in range(LEAST, BLOCKS - AHEAD_MOST, EVERY):
        m = min(last, int(random.integers(LEAST, MOST + 1)))
        shifted = training.means[last - m : last + 1 + AHEAD_MOST] - training.means[last]
        if not np.isfinite(shifted).all():
            break
        past = shifted[:m].astype(np.float64)
        directions = basis(past @ past.T)
        if len(directions.scales) == 0:
            break
        rates = [training.rates[last + ahead] / max(training.rates[last], 1e-12) for ahead in AHEAD]
        made, units = features(directions, training.losses[: last + 1], rates)
        # Q = D^T E diag(1 / s)
        q = past.T @ (directions.vectors / directions.scales)
        rows.append(made)
        paths.append(((shifted[m + 1 :] @ q) / units).T)
    return rows, paths


class Members(nn.Module):
    """The ensemble in torch (docs/explain/forecasts.md); W has the gates z, r, n side by side."""

    def __init__(self, members: int, encoded: int, hidden: int, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)

        def drawn(scale: float, *shape: int) -> nn.Parameter:
            return nn.Parameter(
                scale * (2.0 * torch.rand(members, *shape, generator=generator) - 1.0)
            )

        self.encoder = drawn(math.sqrt(3.0 / FEATURES), FEATURES, encoded)
        self.encoder_bias = drawn(0.1, encoded)
        self.input = drawn(math.sqrt(3.0 / encoded), encoded, 3 * hidden)
        self.recurrent = drawn(1.0 / math.sqrt(hidden), hidden, 3 * hidden)
        self.bias = drawn(0.1, 3 * hidden)
        self.heads = drawn(0.1 / math.sqrt(hidden), hidden, 2)
        self.log_variance_bias = nn.Parameter(torch.zeros(members))

    def forward(self, rows: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        """Paths and the logarithms of their variances, [E, b, steps] of rows [E, b, FEATURES]."""
        before = torch.baddbmm(self.encoder_bias[:, None], rows, self.encoder)
        two = 2 * self.recurrent.shape[1]  # z and r
        gates, candidate = self.recurrent[..., :two], self.recurrent[..., two:]
        h = rows.new_zeros(*rows.shape[:2], candidate.shape[1])
        step = path = rows.new_zeros(*rows.shape[:2], 1)
        paths, variances = [], []
        for number in range(1, steps + 1):
            x = torch.relu(before + step * self.encoder[:, :1])
            a = torch.baddbmm(self.bias[:, None], x, self.input)
            z, r = torch.sigmoid(a[..., :two] + torch.bmm(h, gates)).chunk(2, 2)
            n = torch.tanh(a[..., two:] + torch.bmm(r * h, candidate))
            h = (1.0 - z) * h + z * n
            step, variance = torch.bmm(h, self.heads).chunk(2, 2)
            path = path + step
            paths.append(path)
            variances.append(variance + self.log_variance_bias[:, None, None] + math.log(number))
        return torch.cat(paths, 2), torch.cat(variances, 2)

    def ensemble(self) -> Ensemble:
        """The weights as the library takes them."""
        return Ensemble(**{name: value.detach().numpy() for name, value in self.named_parameters()})


def fit(
    members: Members, rows: Tensor, paths: Tensor, iterations: int, batch: int, seed: int
) -> None:
    """Maximum likelihood of Gaussian errors, plus least squares; members see different rows."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(members.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, iterations, eta_min=1e-5)
    count = len(members.log_variance_bias)
    blocks = torch.arange(1.0, AHEAD_MOST + 1.0)
    for iteration in range(iterations):
        some = torch.randint(len(rows), (count, batch), generator=generator)
        steps = AHEAD_MOST if iteration % 4 == 0 else SHORT
        sign = 1.0 - 2.0 * torch.randint(2, (count, batch, 1), generator=generator)
        seen = rows[some]
        seen[..., SIGNED] *= sign
        path, variance = members(seen, steps)
        squares = (path - sign * paths[some][..., :steps]) ** 2
        likelihood = 0.5 * (squares * torch.exp(-variance) + variance).mean()
        loss = likelihood + 0.02 * (squares / blocks[:steps]).clamp_max(50.0).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(members.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if (iteration + 1) % 100 == 0:
            print(f"iteration {iteration + 1}: {loss.item():.3f}", flush=True)


def judge(ensemble: Ensemble, rows: Floats, paths: Floats) -> str:
    """The quality of the ensemble on rows that it did not learn from."""
    made = rollout(ensemble, rows, AHEAD_MOST)
    error = made.expected - paths
    inside = np.abs(error) < 1.645 * np.sqrt(made.epistemic + made.aleatoric)
    shown = [
        f"{1.0 - (error[:, j] ** 2).sum() / (paths[:, j] ** 2).sum():.3f} after {j + 1}"
        for j in (0, 3, 7, 15, 31)
    ]
    return f"R2 of paths {', '.join(shown)} blocks; {inside.mean():.1%} in intervals of 90 %"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--encoded", type=int, default=64)
    parser.add_argument("--trainings", type=int, default=90)
    parser.add_argument("--iterations", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    random = np.random.default_rng(arguments.seed)
    found: list[tuple[Floats, Floats]] = []
    first = arguments.seed * arguments.trainings
    for number in range(first, first + arguments.trainings):
        found += zip(*histories(made_training(number), random), strict=True)
    rows = np.concatenate([part[0] for part in found])
    paths = np.concatenate([part[1] for part in found]).astype(np.float32)
    near = np.abs(paths).max(1) < FAR
    rows, paths = rows[near], paths[near]
    print(
        f"{len(rows)} rows of {arguments.trainings} trainings, {time.perf_counter() - start:.0f} s",
        flush=True,
    )
    learned = len(rows) - round(HELD_OUT * len(rows))  # the last trainings are held out
    members = Members(arguments.members, arguments.encoded, arguments.hidden, arguments.seed)
    fit(
        members, torch.from_numpy(rows[:learned]), torch.from_numpy(paths[:learned]),
        arguments.iterations, arguments.batch, arguments.seed,
    )  # fmt: skip
    ensemble = members.ensemble()
    with torch.no_grad():
        here, _ = members(
            torch.from_numpy(rows[learned:])[None].expand(arguments.members, -1, -1), AHEAD_MOST
        )
    difference = np.abs(rollout(ensemble, rows[learned:], AHEAD_MOST).mean - here.numpy()).max()
    if difference > 1e-3:
        raise RuntimeError(f"the library continues rows otherwise than torch, by {difference:.2g}")
    print(judge(ensemble, rows[learned:], paths[learned:]))
    ensemble.save(arguments.out)
    print(
        f"{arguments.out}: {arguments.out.stat().st_size} bytes, "
        f"{time.perf_counter() - start:.0f} s"
    )


if __name__ == "__main__":
    main()
