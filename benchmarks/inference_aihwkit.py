#!/usr/bin/env python3
"""Times programmed arrays on a CPU beside AIHWKit's, in one run: a table in Markdown.

    python benchmarks/inference_aihwkit.py [--size 512] [--threads 1] [--rounds 5] [--out FILE]

Needs AIHWKit. Both have PCMLike devices in pairs, global drift compensation that is measured by
reads, and the default periphery. Before anything is timed, the weights that reads of perfect
converters see after programming have to differ from the written ones by the same root mean square
in both, within 5 %; so do the modified weights of a training read. Rounds of both packages
alternate, and the least time of each counts. An evaluation of LeNet-5 is 1000 images, five
programmings and five times, on random weights. A hardware-aware step has normal weight noise of
0.05 of the largest weight, and a step of gradient descent.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from aihwkit.inference import GlobalDriftCompensation, PCMLikeNoiseModel
from aihwkit.nn.conversion import convert_to_analog
from aihwkit.nn.modules.base import AnalogLayerBase
from aihwkit.optim import AnalogSGD
from aihwkit.simulator.configs import InferenceRPUConfig, WeightModifierType
from torch import nn

import pulsora as pl
from pulsora.training.models import lenet

if TYPE_CHECKING:
    from collections.abc import Callable

TIMES = (1.0, 3600.0, 86400.0, 2592000.0, 31536000.0)
IMAGES, PROGRAMMINGS = 1000, 5
SAMPLES, BATCH, NOISE, RATE = 256, 64, 0.05, 1e-3
_CLOSE = 0.05


def theirs(model: nn.Module, *, perfect: bool = False) -> nn.Module:
    """A copy of the model on AIHWKit's tiles."""
    config = InferenceRPUConfig()
    config.noise_model = PCMLikeNoiseModel(g_max=25.0)
    config.drift_compensation = GlobalDriftCompensation()
    config.forward.is_perfect = perfect
    config.modifier.type = WeightModifierType.ADD_NORMAL
    config.modifier.std_dev = NOISE
    return convert_to_analog(copy.deepcopy(model), config).eval()


def ours(model: nn.Module, *, perfect: bool = False) -> nn.Module:
    """A copy of the model on Pulsora's tiles."""
    forward = pl.IOParameters(is_perfect=perfect)
    config = pl.InferenceConfig(
        noise_model=pl.noise_models.PCMLike(), compensation="global", forward=forward,
        modifier="add_normal", modifier_std=NOISE,
    )  # fmt: skip
    return pl.convert_to_analog(model, config, seed=1, threads=torch.get_num_threads()).eval()


def require_same_errors(size: int) -> None:
    """Ends the program unless errors of programming and of training reads are of one size."""
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(size, size, bias=False))
    unit = torch.eye(size)
    found = []
    for make, program in ((theirs, _program_theirs), (ours, _program_ours)):
        model = make(plain, perfect=True)
        # AIHWKit modifies weights after a step, for the reads until the next one.
        step_of(model, optimizer_of(model, 0.0), unit)()
        trained = model(unit).t()
        with torch.no_grad():
            program(model.eval(), 0)
            programmed = model(unit).t()
        found.append(
            [
                float((seen - plain[0].weight).detach().square().mean().sqrt())
                for seen in (trained, programmed)
            ]
        )
    for what, one, other in zip(("of training reads", "of programming"), *found, strict=True):
        if abs(other / one - 1.0) > _CLOSE:
            raise SystemExit(f"errors {what} differ: AIHWKit {one:.4g}, here {other:.4g}")


def _program_theirs(model: nn.Module, _number: int) -> None:
    model.program_analog_weights()
    model.drift_analog_weights(0.0)


def _program_ours(model: nn.Module, number: int) -> None:
    pl.drift(pl.program(model, number), 0.0)


def step_of(
    model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor
) -> Callable[[], None]:
    """A step of hardware-aware training, with gradients of the weights alone."""
    model.train()

    def step() -> None:
        with torch.enable_grad():
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

    return step


def optimizer_of(model: nn.Module, rate: float) -> torch.optim.Optimizer:
    """Gradient descent, by AIHWKit's optimiser for its tiles."""
    if not any(isinstance(each, AnalogLayerBase) for each in model.modules()):
        return torch.optim.SGD(model.parameters(), lr=rate)
    optimizer = AnalogSGD(model.parameters(), lr=rate)
    optimizer.regroup_param_groups(model)
    return optimizer


def steps(model: nn.Module, x: torch.Tensor) -> tuple[Callable[[], None], Callable[[], None]]:
    """Steps of the model with AIHWKit, and with Pulsora."""
    a, b = theirs(model), ours(model)
    return step_of(a, optimizer_of(a, RATE), x), step_of(b, optimizer_of(b, RATE), x)


def cases(size: int) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """Returns the calls that are timed, by the name of the row: AIHWKit's, and Pulsora's."""
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(size, size, bias=False))
    a, b = theirs(plain), ours(plain)
    numbers = itertools.count(1)

    def further(drift: Callable[[float], object]) -> Callable[[], object]:
        return lambda: drift(10.0 + next(numbers))

    def programmed() -> None:
        a.program_analog_weights()
        a.drift_analog_weights(3600.0)

    net = lenet((28, 28), 10).eval()
    c, d = theirs(net), ours(net)
    x, y = torch.randn(IMAGES, 784), torch.randint(10, (IMAGES,))

    def evaluated() -> None:
        for _ in range(PROGRAMMINGS):
            c.program_analog_weights()
            for moment in TIMES:
                c.drift_analog_weights(moment)
                c(x)

    return {
        f"{size} x {size}: program, and drift to one time": (
            programmed,
            lambda: pl.drift(pl.program(b, next(numbers)), 3600.0),
        ),
        "each further time": (further(a.drift_analog_weights), further(lambda t: pl.drift(b, t))),
        f"LeNet-5, {IMAGES} images, {PROGRAMMINGS} x {len(TIMES)}": (
            evaluated,
            lambda: pl.inference.evaluate(d, [(x, y)], times=TIMES, programmings=PROGRAMMINGS),
        ),
        f"hardware-aware step, {size} x {size}, {SAMPLES} samples": steps(
            plain, torch.randn(SAMPLES, size)
        ),
        f"hardware-aware step, LeNet-5, {BATCH} images": steps(net, torch.randn(BATCH, 784)),
    }


def main() -> None:
    """Measures all rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    require_same_errors(given.size)
    lines = ["| row | AIHWKit ms | ms | ratio |", "|---|---|---|---|"]
    with torch.no_grad():
        for name, both in cases(given.size).items():
            least = [float("inf")] * 2
            for _, (i, call) in itertools.product(range(given.rounds), enumerate(both)):
                begin = time.perf_counter()
                call()
                least[i] = min(least[i], 1e3 * (time.perf_counter() - begin))
            lines.append(
                f"| {name} | {least[0]:.1f} | {least[1]:.1f} | {least[0] / least[1]:.1f} |"
            )
    print("\n".join(lines))
    if given.out:
        given.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
