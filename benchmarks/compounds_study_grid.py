"""Algorithms, cells and learning rates of compounds_study.py."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch

import pulsora as pl
from pulsora import optim, presets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import nn

    from pulsora.config import TileConfig

    Optimizer = Callable[[Iterable[nn.Parameter], float, str], torch.optim.Optimizer]

Setting: TypeAlias = dict[str, Any]
"""Settings of a run by name: algorithm, cells, network, epochs, images, lr, seed."""

CELLS = ("Idealized", "EcRam", "ReRamSB", "ReRamES")
TUNING_RUNS = 6
"""Learning rates that are tried for each algorithm and cell, with one seed."""
SEEDS = (1, 2, 3)


def _sgd(parameters: Iterable[nn.Parameter], lr: float, _device: str) -> torch.optim.Optimizer:
    return optim.AnalogSGD(parameters, lr=lr)


def _adamw(parameters: Iterable[nn.Parameter], lr: float, device: str) -> torch.optim.Optimizer:
    # Capturable optimisers take part in recorded steps.
    return optim.AnalogOptimizer(
        torch.optim.AdamW, parameters, lr=lr, analog_lr=lr, capturable=device != "cpu"
    )


class Algorithm(NamedTuple):
    """An algorithm of the study.

    Attributes:
        config: The configuration of tiles by the name of their cells; None for floating point.
        start: The learning rate around which rates are tried, in factors of two.
        digital_bytes: Bytes of digital memory per cell of a layer, without optimiser states.
        optimizer: Makes the optimiser of a network.
        lacks: Cells that the algorithm cannot have.
    """

    config: Callable[[str], TileConfig] | None
    start: float
    digital_bytes: float
    optimizer: Optimizer = _sgd
    lacks: tuple[str, ...] = ()


def _preset(algorithm: str, **knob: Any) -> Callable[[str], TileConfig]:
    return lambda cells: getattr(presets, f"{cells}{algorithm}")(**knob)


# The first layer has 784 columns and 128 rows: reads of rows return to a line six times as often.
_ROWS = {"transfer_columns": False}
# One column a mini-batch, the default of v1, would read all columns once in an epoch.
_SAMPLES = {"units_in_mbatch": False}


def _accumulated(cells: str) -> TileConfig:
    return pl.LRTTConfig(visible=presets.device(cells), ab_update="accumulated")


def _merged(cells: str) -> TileConfig:
    return presets.single(presets.device(cells, noise_merge="batch"))


MERGED = "plain pulses, merged noise"
ALGORITHMS = {
    "floating point": Algorithm(None, 0.1, 4.0),
    "plain pulses": Algorithm(presets.single, 0.1, 0.0),
    MERGED: Algorithm(_merged, 0.1, 0.0, lacks=("ReRamES",)),
    "LRTT": Algorithm(lambda cells: pl.LRTTConfig(visible=presets.device(cells)), 0.1, 0.0),
    # Rank 16, 784 x 128: accumulators of the shapes of A and B.
    "LRTT, accumulated": Algorithm(_accumulated, 0.1, 0.6),
    "TTv1": Algorithm(_preset("TikiTaka", **_SAMPLES), 0.1, 0.0),
    "TTv2": Algorithm(_preset("TTv2", **_ROWS), 0.1, 4.0),
    "c-TTv2": Algorithm(_preset("ChoppedTTv2", **_ROWS), 0.1, 4.0),
    "AGAD": Algorithm(_preset("AGAD", **_ROWS), 0.1, 12.0),
    "mixed precision, SGD": Algorithm(_preset("MixedPrecision"), 0.1, 8.0),
    "mixed precision, AdamW": Algorithm(_preset("MixedPrecision"), 1e-3, 8.0, _adamw),
}
"""The algorithms by name, each with the settings of its preset."""
STUDIED = tuple(name for name in ALGORITHMS if name != MERGED)
"""The algorithms that are compared; merged noise is a shortcut of the simulator."""


def key_of(chosen: Setting) -> str:
    """The text by which runs are told apart."""
    return json.dumps(chosen, sort_keys=True)


def pairs(algorithms: Iterable[str], cells: Iterable[str]) -> list[tuple[str, str]]:
    """Algorithms with their cells; floating point has none."""
    return [
        (name, cell)
        for name in algorithms
        for cell in ([""] if ALGORITHMS[name].config is None else cells)
        if cell not in ALGORITHMS[name].lacks
    ]


def first_rates(algorithm: str) -> list[float]:
    """The rates that are tried first, in factors of two around the start."""
    start = ALGORITHMS[algorithm].start
    return [start * 2.0**k for k in (-1, 0, 1, 2)]


def next_rate(found: dict[float, float]) -> float:
    """The rate to try after these, given the accuracy at each.

    While the best rate is at an edge, the next one lies beyond it. Otherwise it lies between the
    best rate and its better neighbour.
    """
    rates = sorted(found)
    at = rates.index(max(rates, key=lambda rate: found[rate]))
    if at == 0:
        return rates[0] / 2.0
    if at == len(rates) - 1:
        return rates[-1] * 2.0
    neighbour = max(rates[at - 1], rates[at + 1], key=lambda rate: found[rate])
    return float(f"{(rates[at] * neighbour) ** 0.5:.4g}")
