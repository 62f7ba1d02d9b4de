"""Training a small fully connected network, digital or on analog tiles, with an exact resume.

What `pulsora train` and `pulsora demo` do, for use from Python:

    history = Run(Experiment(algorithm="lrtt", rank=8)).train()
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import torch
from torch import nn

from pulsora import data as datasets
from pulsora import presets
from pulsora.config import LRTTConfig, TileConfig
from pulsora.nn import AnalogLinear, AnalogModule
from pulsora.optim import AnalogSGD

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pulsora.data import Dataset

__all__ = ["Algorithm", "Experiment", "Run", "accuracy", "mlp", "pulse_report"]

Algorithm: TypeAlias = Literal["digital", "pulsed", "lrtt"]
Metrics: TypeAlias = dict[str, float]

_CHECKPOINT = "checkpoint.pt"
_METRICS = "metrics.json"


@dataclass(frozen=True)
class Experiment:
    """Everything that settles a run.

    Attributes:
        data: 'digits', or a folder of IDX files.
        hidden: Sizes of the hidden layers. These are analog; the output layer is digital.
        epochs: Passes over the training set.
        batch: Images per mini-batch.
        lr: Learning rate of plain SGD, for all layers.
        algorithm: 'digital': floating point; 'pulsed': pulsed SGD on one full array;
            'lrtt': a pulsed low-rank adapter.
        device_preset: Name of the device, see `pulsora.presets.names()`.
        rank: Rank of the adapter (lrtt).
        transfer_every: Samples per transfer of the adapter (lrtt).
        seed: Seed of everything.
        tile: A complete tile configuration as `TileConfig.to_dict()` writes it; replaces
            algorithm, device_preset, rank and transfer_every.

    Raises:
        ValueError: for a value out of range.
    """

    data: str = "digits"
    hidden: tuple[int, ...] = (64,)
    epochs: int = 10
    batch: int = 32
    lr: float = 0.1
    algorithm: Algorithm = "lrtt"
    device_preset: str = "Idealized"
    rank: int = 8
    transfer_every: int = 100
    seed: int = 0
    tile: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        for name, low in (("epochs", 1), ("batch", 1), ("rank", 1), ("transfer_every", 0)):
            if getattr(self, name) < low:
                raise ValueError(f"{name} = {getattr(self, name)}: choose a number from {low} up")
        if not self.hidden or min(self.hidden) < 1:
            raise ValueError(
                f"hidden = {list(self.hidden)}: give sizes of hidden layers, from 1 up"
            )
        if not 0.0 < self.lr < float("inf"):
            raise ValueError(f"lr = {self.lr}: choose a positive number")
        if self.seed < 0:
            raise ValueError(f"seed = {self.seed}: choose a number from 0 up")
        if self.algorithm not in get_args(Algorithm):
            raise ValueError(
                f"algorithm = '{self.algorithm}': choose one of {', '.join(get_args(Algorithm))}"
            )
        presets.device(self.device_preset)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Experiment:
        """The experiment that a table of attributes describes; ValueError for unknown names."""
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise ValueError(f"unknown setting {unknown}; there are {', '.join(known)}")
        return cls(**values)

    def tile_config(self) -> TileConfig | None:
        """The configuration of the tiles; None where there are none."""
        if self.tile is not None:
            return TileConfig.from_dict(self.tile)
        if self.algorithm == "digital":
            return None
        if self.algorithm == "pulsed":
            return presets.single(self.device_preset)
        return presets.lrtt(self.device_preset, self.rank, transfer_every=self.transfer_every)


def mlp(
    sizes: tuple[int, ...], config: TileConfig | None, *, seed: int, threads: int | None = None
) -> nn.Sequential:
    """A network with sigmoids between its layers; all but the last analog unless config is None.

    Initial weights are uniform within +-1/sqrt(inputs) and the same whatever the configuration.
    """
    layers: list[nn.Module] = []
    *hidden, last = itertools.pairwise(sizes)
    for number, (inputs, outputs) in enumerate(hidden):
        torch.manual_seed(seed * 1000 + number)
        digital = nn.Linear(inputs, outputs)
        if config is None:
            layers += [digital, nn.Sigmoid()]
            continue
        analog = AnalogLinear(
            inputs, outputs, config=config, seed=seed, tile_id=1000 * number, threads=threads
        )
        analog.set_weights(digital.weight, digital.bias)
        layers += [analog, nn.Sigmoid()]
    torch.manual_seed(seed * 1000 + len(hidden))
    return nn.Sequential(*layers, nn.Linear(*last))


@torch.no_grad()
def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """Share of images that the model classifies rightly."""
    model.eval()
    right: int = sum(
        int((model(part).argmax(dim=1) == labels).sum())
        for part, labels in zip(torch.split(x, 1024), torch.split(y, 1024), strict=True)
    )
    model.train()
    return right / len(x)


def pulse_report(model: nn.Module) -> Metrics:
    """What the analog layers of a model have counted so far, added up over their tiles.

    Returns:
        Nothing without analog layers. Else cells (of all arrays), pulses (coincidences) and
        pulses_per_cell; with adapters that have transferred also transfers, gain (delivered over
        intended change, 1 at best) and undelivered (share that clipped trains could not carry),
        both averaged over tiles.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, AnalogModule)]
    if not layers:
        return {}
    tables = [table for layer in layers for table in layer.statistics()]
    cells = sum(_cells(tile.d_size, tile.x_size, layer) for layer in layers for tile in layer.tiles)
    pulses = sum(table["pulses"] for table in tables)
    report = {"cells": cells, "pulses": pulses, "pulses_per_cell": pulses / cells}
    moved = [table["transfer"] for table in tables if table.get("transfers", 0) > 0]
    if moved:
        report["transfers"] = sum(table["transfers"] for table in moved)
        for name in ("gain", "undelivered"):
            report[name] = sum(table[name] for table in moved) / len(moved)
    return {name: float(value) for name, value in report.items()}


def _cells(d_size: int, x_size: int, layer: AnalogModule) -> int:
    rank = layer.config.rank if isinstance(layer.config, LRTTConfig) else 0
    return d_size * x_size + rank * (d_size + x_size)


class Run:
    """One run of an experiment: a model, its optimiser, and how far they have come.

    Args:
        experiment: What to run.
        out: Folder for metrics.json and checkpoint.pt, written after every epoch; None writes
            nothing.
        resume: Continue from the checkpoint in `out`. It must be one of the same experiment,
            the number of epochs apart.
        threads: CPU threads; None takes all that the process may run on.
        data: The data set, where it is loaded already.

    Raises:
        ValueError: if the data cannot be loaded, or there is nothing to resume.
    """

    def __init__(
        self,
        experiment: Experiment,
        out: Path | None = None,
        *,
        resume: bool = False,
        threads: int | None = None,
        data: Dataset | None = None,
    ) -> None:
        self.experiment = experiment
        self.out = out
        self.data = datasets.load(experiment.data) if data is None else data
        sizes = (self.data.features, *experiment.hidden, self.data.classes)
        self.model = mlp(sizes, experiment.tile_config(), seed=experiment.seed, threads=threads)
        self.optimizer = AnalogSGD(self.model.parameters(), lr=experiment.lr)
        self.history: list[Metrics] = []
        if resume:
            self._load()

    @property
    def batches(self) -> int:
        """Mini-batches per epoch; images that do not fill one are left out."""
        return len(self.data.train_x) // self.experiment.batch

    def train(
        self,
        on_batch: Callable[[float], None] | None = None,
        on_epoch: Callable[[Metrics], None] | None = None,
    ) -> list[Metrics]:
        """Trains up to the last epoch.

        Args:
            on_batch: Called after every mini-batch with its loss.
            on_epoch: Called after every epoch with its metrics.

        Returns:
            One table per epoch: epoch (from 1), loss, accuracy (on the test set), seconds, and
            what `pulse_report` counts.

        Raises:
            ValueError: if training diverges.
        """
        test_x, test_y = torch.from_numpy(self.data.test_x), torch.from_numpy(self.data.test_y)
        while len(self.history) < self.experiment.epochs:
            start = time.perf_counter()
            loss = self._epoch(len(self.history), on_batch)
            seconds = time.perf_counter() - start
            metrics = {
                "epoch": float(len(self.history) + 1),
                "loss": loss,
                "accuracy": accuracy(self.model, test_x, test_y),
                "seconds": seconds,
                **pulse_report(self.model),
            }
            self.history.append(metrics)
            self._save()
            if on_epoch:
                on_epoch(metrics)
        return self.history

    def _epoch(self, epoch: int, on_batch: Callable[[float], None] | None) -> float:
        total = 0.0
        settings = self.experiment
        for x, y in datasets.batches(self.data, settings.batch, settings.seed, epoch):
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(torch.from_numpy(x)), torch.from_numpy(y))
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            value = loss.item()
            total += value
            if on_batch:
                on_batch(value)
        return total / self.batches

    def _identity(self) -> str:
        """What a checkpoint must agree on."""
        values = dataclasses.asdict(self.experiment)
        del values["epochs"]
        return json.dumps(values, sort_keys=True)

    def _save(self) -> None:
        if self.out is None:
            return
        self.out.mkdir(parents=True, exist_ok=True)
        report = {"experiment": dataclasses.asdict(self.experiment), "epochs": self.history}
        (self.out / _METRICS).write_text(json.dumps(report, indent=1) + "\n")
        unfinished = self.out / f"{_CHECKPOINT}.part"
        torch.save(
            {
                "experiment": self._identity(),
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "history": self.history,
            },
            unfinished,
        )
        unfinished.replace(self.out / _CHECKPOINT)

    def _load(self) -> None:
        path = (self.out or Path()) / _CHECKPOINT
        if self.out is None or not path.is_file():
            raise ValueError(f"resume: there is no {path}; start without --resume")
        saved = torch.load(path, weights_only=True)
        if saved["experiment"] != self._identity():
            raise ValueError(
                f"resume: {path} is of another experiment ({saved['experiment']}); "
                "repeat its settings, or choose another folder"
            )
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.history = saved["history"]
