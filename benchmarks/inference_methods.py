"""Methods of inference_table.py: trainings before and after an array is programmed."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import nn

import pulsora as pl
from inference_networks import loss
from pulsora.optim import AnalogSGD

if TYPE_CHECKING:
    from collections.abc import Callable

    from inference_networks import Batches, Data, Task

RANK = 8
RATES = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0)
"""The grid of learning rates."""
GRID = RATES[2:6]
"""Learning rates of AdamW that are tried first."""
PULSED_GRID = RATES[5:9]
"""Learning rates of pulsed adapters that are tried first."""
NOISE = {"none": {}, "model": {"modifier": "noise_model"}} | {
    f"{std}": {"modifier": "add_normal", "modifier_std": std} for std in (0.02, 0.05, 0.1)
}


@functools.cache
def fitted_memory() -> Any:  # noqa: ANN401
    """A model fitted to readings of PCMLike made here: 8 targets, 50 cells each, up to 4 months."""
    truth, times = pl.noise_models.PCMLike(), (20.0, 3e2, 4e3, 6e4, 9e5, 1e7)
    targets = np.repeat(np.linspace(3.125, 25.0, 8), 50)
    tile = pl.Tile(1, 400, pl.InferenceConfig(noise_model=truth, compensation="none"), seed=9)
    tile.weights = (targets / 25.0)[None, :]
    tile.programming.program()
    readings: dict[str, list[Any]] = {"cell": [], "target": [], "time": [], "conductance": []}
    for time in times:
        tile.programming.drift(time)
        readings["cell"] += range(400)
        readings["target"] += targets.tolist()
        readings["time"] += [time] * 400
        readings["conductance"] += tile.programming.conductances()[0, :, 0].tolist()
    return pl.fit.retention(readings).noise_model


MEMORIES: dict[str, Callable[[], Any]] = {
    "PCMLike": lambda: pl.noise_models.PCMLike(g_max=25.0),
    "Hermes": pl.noise_models.Hermes,
    "ReRamCMO": pl.noise_models.ReRamCMO,
    "fitted": fitted_memory,
}
SINGLE = ("ReRamCMO",)
"""Memories that have one device for each weight; the others have pairs."""


def chip(memory: str, compensation: str = "global", **settings: Any) -> Any:  # noqa: ANN401
    """The configuration of all arrays: converters of 8 bits, output noise 0.04."""
    forward = pl.IOParameters(inp_res=1 / 254, out_res=1 / 254, out_noise=0.04)
    single = {"cell": "single"} if memory in SINGLE else {}
    return pl.InferenceConfig(
        noise_model=MEMORIES[memory](), compensation=compensation, forward=forward,
        **single, **settings,
    )  # fmt: skip


class Trained(NamedTuple):
    """A model to be evaluated, and what its training took.

    Attributes:
        model: The model, in eval().
        parameters: Numbers that were trained after the digital training.
        steps: Steps of an optimiser after it.
        readapted: Scores [times, chips] of a model that was trained on each chip; None for others.
        pulses: Pulses of adapters in arrays, for each chip.
        prepare: What `evaluate` calls at each programming and time.
    """

    model: nn.Module
    parameters: int = 0
    steps: int = 0
    readapted: list[list[float]] | None = None
    pulses: int = 0
    prepare: Callable[[nn.Module], object] | None = None


class Study:
    """A trained network, its memory and its data, which all methods take."""

    def __init__(
        self, task: Task, data: Data, net: nn.Module, memory: str, seed: int, sizes: dict[str, Any]
    ) -> None:
        self.task, self.data, self.net, self.memory, self.seed = task, data, net, memory, seed
        self.sizes = sizes
        self.test: Batches = data.test

    def analog(self, compensation: str = "global", **settings: Any) -> nn.Module:
        """The digital network on programmed arrays, one tile a layer."""
        return pl.convert_to_analog(
            self.net, chip(self.memory, compensation, **settings), seed=self.seed,
            max_input_size=0, max_output_size=0,
        )  # fmt: skip

    def adapted(self, mode: str, **options: Any) -> nn.Module:
        """The network with adapters on its linear layers; convolutions are analog and frozen."""
        config = options.pop("base_config")
        linear = [n for n, layer in self.net.named_modules() if isinstance(layer, nn.Linear)]
        base: nn.Module = self.net
        if any(isinstance(layer, nn.Conv2d) for layer in self.net.modules()):
            base = pl.convert_to_analog(
                self.net, config, exclude=linear, seed=self.seed,
                max_input_size=0, max_output_size=0,
            )  # fmt: skip
        return pl.peft.add_adapters(
            base, mode, rank=RANK, base_config=config, seed=self.seed + 50,
            max_input_size=0, max_output_size=0, **options,
        )  # fmt: skip

    def train(self, model: nn.Module, lr: float, epochs: int) -> Trained:
        """Trains what is trainable by AdamW at a rate that falls to 0 by a cosine."""
        some = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(some, lr=lr)
        batches = [b for e in range(epochs) for b in self.data.epoch(self.seed, 100 + e)]
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, len(batches))
        model.train()
        for x, y in batches:
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
            schedule.step()
        return Trained(model.eval(), sum(p.numel() for p in some), len(batches))

    def on_each_chip(self, make: Callable[[], tuple[nn.Module, Any]]) -> Trained:
        """Trains adapters on each of some chips as it ages, and scores them there."""
        times, steps = self.sizes["times"], self.sizes["steps"]
        scores, pulses = [], 0
        for number in self.sizes["chips"]:
            model, optimizer = make()
            found = pl.inference.readapt(
                model, optimizer, loss, self.data.epoch(self.seed, 200 + number), times,
                steps=steps, test=self.test, metric=self.task.metric, programming=number,
            )  # fmt: skip
            scores.append(found.after)
            pulses += sum(found.pulses)
        count = sum(p.numel() for p in _adapters(model))
        rows = [list(row) for row in zip(*scores, strict=True)]
        return Trained(model, count, steps * len(times), rows, pulses // len(scores))


def _adapters(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


def plain(compensation: str) -> Callable[[Study, float], Trained]:
    """The digital network as it is."""
    return lambda study, _: Trained(study.analog(compensation).eval())


def affine(study: Study, _: float) -> Trained:
    """A gain and an offset of each output, fitted at each programming and time."""
    batches = study.data.epoch(study.seed, 300)[:8]
    return Trained(
        study.analog("none").eval(), prepare=lambda m: pl.inference.fit_affine(m, batches)
    )


def batch_norm(study: Study, _: float) -> Trained:
    """Statistics of batch norms, measured anew at each programming and time."""
    batches = study.data.epoch(study.seed, 300)[:8]
    return Trained(
        study.analog("global").eval(), prepare=lambda m: pl.inference.adapt_batch_norm(m, batches)
    )


def column_reference(study: Study, _: float) -> Trained:
    """Single devices that are read against a column of such devices, which age as they do."""
    return Trained(study.analog("global", cell_reference="column").eval())


def aware(noise: str) -> Callable[[Study, float], Trained]:
    """All weights trained on, under noise; "none" is the control."""

    def method(study: Study, lr: float) -> Trained:
        clip = {} if noise == "none" else {"clip": "gaussian", "clip_sigma": 2.5}
        model = study.analog(**NOISE[noise], **clip)
        return study.train(model, lr, study.sizes["epochs"])

    return method


def lora_any_chip(study: Study, lr: float) -> Trained:
    """Adapters of torch that are trained once, under the noise model at random times."""
    config = chip(study.memory, **NOISE["model"])
    model = study.adapted("analog_base_digital_adapter", base_config=config)
    return study.train(model, lr, study.sizes["epochs"])


def lora_this_chip(study: Study, lr: float) -> Trained:
    """Adapters of torch that are trained for any chip, and then on each chip at each time."""
    state = lora_any_chip(study, lr).model.state_dict()

    def make() -> tuple[nn.Module, Any]:
        config = chip(study.memory, **NOISE["model"])
        model = study.adapted("analog_base_digital_adapter", base_config=config)
        model.load_state_dict(state)
        return model, torch.optim.AdamW(_adapters(model), lr=lr)

    return study.on_each_chip(make)


def pulsed_this_chip(
    cells: str, retention: Callable[[], Any] | None = None
) -> Callable[[Study, float], Trained]:
    """Adapters in arrays, trained by pulses on each chip at each time, which may drift as well."""

    def method(study: Study, lr: float) -> Trained:
        def make() -> tuple[nn.Module, Any]:
            device = getattr(pl.presets, cells)()
            model = study.adapted(
                "analog_base", base_config=chip(study.memory), adapter_span="layer",
                config=pl.SingleConfig(device=device, retention=retention and retention()),
            )  # fmt: skip
            return model, AnalogSGD(_adapters(model), lr=lr)

        return study.on_each_chip(make)

    return method


def bank(study: Study, lr: float) -> Trained:
    """An adapter of torch for each age, each trained on other chips than those of the test."""
    ages = [float(seconds) for seconds in study.sizes["ages"]]
    model = study.adapted(
        "analog_base_digital_adapter", base_config=chip(study.memory), adapters=len(ages),
        gate=lambda *_: pl.nn.AgeGate(ages),
    )  # fmt: skip
    some = _adapters(model)
    optimizer = torch.optim.AdamW(some, lr=lr)
    batches = [b for e in range(study.sizes["epochs"]) for b in study.data.epoch(study.seed, e)]
    model.train()
    for step, (x, y) in enumerate(batches):
        age = ages[step % len(ages)]
        pl.drift(pl.program(model, 10_000 + step), age)
        pl.inference.select_age(model, age)
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    return Trained(model.eval(), sum(p.numel() for p in some), len(batches))


METHODS: dict[str, tuple[Callable[[Study, float], Trained], tuple[float, ...]]] = {
    "plain, no compensation": (plain("none"), ()),
    "plain, global": (plain("global"), ()),
    "plain, per output": (plain("per_output"), ()),
    "plain, affine": (affine, ()),
    "plain, batch norm": (batch_norm, ()),
    "plain, column reference": (column_reference, ()),
    "trained on without noise": (aware("none"), GRID),
    "HWA, normal 0.02": (aware("0.02"), GRID),
    "HWA, normal 0.05": (aware("0.05"), GRID),
    "HWA, normal 0.1": (aware("0.1"), GRID),
    "HWA, noise model": (aware("model"), GRID),
    "LoRA for any chip": (lora_any_chip, GRID),
    "LoRA on this chip": (lora_this_chip, GRID),
    "LoRA, a bank by age": (bank, GRID),
    "pulsed 6T1C on this chip": (pulsed_this_chip("SixT1C"), PULSED_GRID),
    "pulsed EcRam on this chip": (pulsed_this_chip("EcRam"), PULSED_GRID),
    "pulsed 6T1C, drifting, on this chip": (
        pulsed_this_chip("SixT1C", pl.noise_models.Exponential),
        PULSED_GRID,
    ),
}
"""A method and the learning rates that are tried first for it."""


def further_rate(scores: dict[float, float]) -> float | None:
    """The rate to try after those with these scores (more is better).

    None, unless the best rate is the smallest or the largest of them.
    """
    best = max(scores, key=lambda lr: scores[lr] if np.isfinite(scores[lr]) else -np.inf)
    at = RATES.index(best)
    beside = {best == min(scores): at - 1, best == max(scores): at + 1}.get(True, -1)
    return RATES[beside] if 0 <= beside < len(RATES) else None


def fits(network: str, memory: str, method: str) -> bool:
    """Whether a method exists for a network on a memory.

    Only the ResNet has batch norms, and only single devices have a reference.
    """
    if method == "plain, batch norm":
        return network == "resnet"
    return method != "plain, column reference" or memory in SINGLE
