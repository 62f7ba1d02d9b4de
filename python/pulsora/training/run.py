"""Training a network, digital or on analog tiles, with an exact resume.

The work of `pulsora train` and `pulsora demo`, for use from Python:

    history = Run(Experiment(algorithm="lrtt", rank=8)).train()
"""

from __future__ import annotations

import dataclasses
import io
import json
import time
import warnings
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import nn

from pulsora import _core
from pulsora._internal.checks import require_folder
from pulsora._internal.files import replace_file
from pulsora._internal.threads import chosen_threads
from pulsora._internal.torch_files import read_checkpoint, short_line
from pulsora.nn import AnalogModule
from pulsora.nn.tiles.first_transfer import saves_quietly, untransferred
from pulsora.nn.tiles.held_weights import HeldWeights
from pulsora.optim import AnalogSGD
from pulsora.records import files as record_files
from pulsora.records.collect import epoch_record
from pulsora.training import data as datasets
from pulsora.training.epochs import HybridEpochs, PlainEpochs
from pulsora.training.experiment import (
    ALGORITHMS,
    CHECKPOINT,
    TILE_DEFAULTS,
    require_beginning,
)
from pulsora.training.models import network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from pulsora.forecast.report import Report
    from pulsora.records.files import Record
    from pulsora.tile import Tile
    from pulsora.training.data import Dataset
    from pulsora.training.experiment import Experiment

__all__ = ["Metrics", "Run", "accuracy", "checkpoint_of", "pulse_report"]

Metrics: TypeAlias = dict[str, float]

_CONTENT = {"experiment", "model", "optimizer", "history"}
_MORE_CONTENT = {"trainer", "records"}  # of runs with predicted steps; missing in older files
_METRICS = "metrics.json"
_UNWRITTEN = {"model": "mlp", "amp": False, "hybrid": 0.0}
"""The kind of checkpoints that name none: they are older than the others."""


@torch.no_grad()
def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """Share of images, or of characters in pieces of text, that the model classifies rightly."""
    model.eval()
    right: int = sum(
        int((model(part).argmax(dim=-1) == labels).sum())
        for part, labels in zip(torch.split(x, 1024), torch.split(y, 1024), strict=True)
    )
    model.train()
    return right / y.numel()


def _require_recurrent_types(model: nn.Module, device: torch.device) -> None:
    """Raises ValueError if torch has no bfloat16 LSTM there; on a CPU the processor decides."""
    if not any(isinstance(layer, nn.RNNBase) for layer in model.modules()):
        return
    with torch.random.fork_rng(
        devices=[]
    ):  # first weights are drawn; the run's own random numbers stay as they are
        layer = nn.LSTM(2, 2).to(device)
    try:
        with torch.autocast(device.type, torch.bfloat16):
            layer(torch.zeros(2, 1, 2, device=device))
    except RuntimeError as error:
        raise ValueError(
            "amp: torch has no LSTM in bfloat16 for this processor; leave --amp (amp=True) out, "
            "or train on tiles or on a GPU"
        ) from error


def pulse_report(model: nn.Module) -> Metrics:
    """Counts of the analog layers of a model, added up over their tiles.

    Returns:
        Nothing without layers that are trained by pulses. Else cells (of all arrays), pulses
        (coincidences) and pulses_per_cell; with adapters that have transferred also transfers, gain
        (delivered over intended change, 1 at best) and undelivered (share that clipped pulse trains
        could not carry), both averaged over tiles.
    """
    layers = [
        layer
        for layer in model.modules()
        if isinstance(layer, AnalogModule) and not isinstance(layer.held, HeldWeights)
    ]
    if not layers:
        return {}
    tables = [table for layer in layers for table in layer.statistics()]
    cells = sum(_cells(tile) for layer in layers for tile in layer.tiles)
    pulses = sum(table["pulses"] for table in tables)
    report = {"cells": cells, "pulses": pulses, "pulses_per_cell": pulses / cells}
    moved = [table["transfer"] for table in tables if table.get("transfers", 0) > 0]
    if moved:
        report["transfers"] = sum(table["transfers"] for table in moved)
        for name in ("gain", "undelivered"):
            report[name] = sum(table[name] for table in moved) / len(moved)
    return {name: float(value) for name, value in report.items()}


def _warn_without_transfer(model: nn.Module) -> None:
    """Warns if adapters were trained, and not one of them was transferred."""
    tile = untransferred(
        layer.tiles for layer in model.modules() if isinstance(layer, AnalogModule)
    )
    if tile is None:
        return
    every = tile.config.transfer_every  # type: ignore[attr-defined]
    warnings.warn(
        f"transfer_every = {every}: there was no transfer in "
        f"{tile.counters['mini_batches']} mini-batches, so that the visible arrays have the "
        "weights of the beginning, and their device has no part in the result; train for longer, "
        "give a smaller transfer_every (0 for no transfers on purpose), or write the adapters into "
        "the visible arrays with pulsora.merge(model)",
        stacklevel=3,
    )


def _cells(tile: Tile) -> int:
    """Cells of all arrays of a tile; without arrays, its number of weights."""
    return sum(array.size for array in tile.arrays.values()) or tile.d_size * tile.x_size


class Run:
    """One run of an experiment: a model, its optimiser, and their progress.

    Args:
        experiment: The settings.
        out: Folder for checkpoint.pt, metrics.json and records.jsonl, written after every epoch;
            None writes nothing.
        resume: Continue from the checkpoint in `out`. It must be of the same experiment, except for
            the number of epochs. Then metrics.json and records.jsonl are made to agree with it.
        overwrite: Begin anew where `out` has a checkpoint, which the first epoch's checkpoint
            replaces.
        threads: CPU threads of the tiles; by default as in `Tile`.
        device: Where the model is trained, 'cpu', 'cuda' or 'cuda:<number>'. A run may be resumed
            elsewhere.
        data: The data set, if it is loaded already.

    Raises:
        ValueError: if the data cannot be loaded or do not fit the model, if torch cannot do what
            amp asks for here, if there is nothing to resume, a damaged checkpoint, or more epochs
            than asked for, and if `out` has a run that is neither resumed nor overwritten.
        OSError: if nothing can be written to `out`.
        DeviceError: if the device cannot be used.
    """

    def __init__(
        self,
        experiment: Experiment,
        out: Path | None = None,
        *,
        resume: bool = False,
        overwrite: bool = False,
        threads: int | None = None,
        device: str = "cpu",
        data: Dataset | None = None,
    ) -> None:
        _core.require_place(device, chosen_threads(threads))
        require_beginning(out, resume=resume, overwrite=overwrite)
        self.experiment = experiment
        self.out = out
        self.data = datasets.load(experiment.data) if data is None else data
        datasets.require_batch(self.data, experiment.batch)
        self.device = torch.device(device)
        made = network(
            experiment.model, self.data, experiment.tile_config(),
            hidden=experiment.hidden, seed=experiment.seed, threads=threads,
        )  # fmt: skip
        self.model = made.to(self.device)
        if experiment.amp:
            _require_recurrent_types(self.model, self.device)
        self.optimizer = AnalogSGD(self.model.parameters(), lr=experiment.lr)
        self._epochs: PlainEpochs | HybridEpochs = (
            HybridEpochs if experiment.hybrid else PlainEpochs
        )(self.model, self.optimizer, experiment, self._batches, self.batches)
        self.history: list[Metrics] = []
        self.records: list[Record] = []  # as many; without arrays from checkpoints that have none
        self.saved = 0  # epochs in checkpoint.pt
        if resume and out is not None:
            self._load(out)
        if out is not None:
            require_folder("out", out)

    @property
    def batches(self) -> int:
        """Mini-batches per epoch; samples that do not fill one are left out."""
        return len(self.data.train_x) // self.experiment.batch

    @property
    def passes(self) -> int:
        """Backward passes from the beginning to the end."""
        return self._epochs.passes

    @property
    def passes_made(self) -> int:
        """Passes made so far, in whole epochs."""
        return min(len(self.history) * self.batches, self.passes)

    def report(self) -> Report | None:
        """Report on predicted steps; None in a run without them."""
        return self._epochs.report() if isinstance(self._epochs, HybridEpochs) else None

    def record_lines(self) -> list[Record]:
        """The lines of the file of records: the run, and each epoch so far."""
        settings = dataclasses.asdict(self.experiment)
        return [record_files.run_line(self.experiment.name, settings), *self.records]

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
            One table per epoch: epoch (from 1), loss, accuracy (on the test set), seconds, and what
            `pulse_report` counts. With predicted steps there are fewer epochs, and the last may be
            shorter.

        Raises:
            ValueError: if training diverges.
        """
        test_x, test_y = self._tensors(self.data.test_x, self.data.test_y)
        while self.passes_made < self.passes:
            start = time.perf_counter()
            loss = self._epochs.train(len(self.history), on_batch)
            seconds = time.perf_counter() - start
            metrics = {
                "epoch": float(len(self.history) + 1),
                "loss": loss,
                "accuracy": self._accuracy(test_x, test_y),
                "seconds": seconds,
                **pulse_report(self.model),
            }
            self.history.append(metrics)
            self.records.append(epoch_record(self.model, len(self.history), metrics))
            self._save()
            if on_epoch:
                on_epoch(metrics)
        _warn_without_transfer(self.model)
        return self.history

    def _accuracy(self, x: torch.Tensor, y: torch.Tensor) -> float:
        with warnings.catch_warnings():  # nothing is programmed in training
            warnings.filterwarnings("ignore", "a layer of InferenceConfig is evaluated")
            return accuracy(self.model, x, y)

    def _batches(self, epoch: int) -> Iterator[tuple[torch.Tensor, ...]]:
        settings = self.experiment
        for x, y in datasets.batches(self.data, settings.batch, settings.seed, epoch):
            yield self._tensors(x, y)

    def _tensors(self, *arrays: NDArray[Any]) -> tuple[torch.Tensor, ...]:
        return tuple(torch.from_numpy(array).to(self.device) for array in arrays)

    def _identity(self) -> str:
        """Settings that a checkpoint must agree on, with the length if steps are predicted."""
        values = dataclasses.asdict(self.experiment)
        if not self.experiment.hybrid:
            del values["epochs"]
        return json.dumps(values, sort_keys=True)

    def _require_same(self, path: Path, there: dict[str, Any]) -> None:
        """Raises ValueError unless a checkpoint is of this experiment."""
        here = json.loads(self._identity())
        differing = [
            f"{name} = {there.get(name)!r}, here {here.get(name)!r}"
            for name in sorted({*here, *there})
            if there.get(name) != here.get(name)
        ]
        if differing:
            raise ValueError(
                f"resume: {path} is of another experiment ({'; '.join(differing)}); "
                "repeat its settings, or choose another folder"
            )

    def _save(self) -> None:
        if self.out is None:
            return
        self.out.mkdir(parents=True, exist_ok=True)
        checkpoint = io.BytesIO()
        with saves_quietly():  # train() warns at its end
            model = self.model.state_dict()
        torch.save(
            {
                "experiment": self._identity(),
                "model": {name: value.cpu() for name, value in model.items()},
                "optimizer": self.optimizer.state_dict(),
                "history": self.history,
                "records": self.records,
                **self._epochs.state_dict(),
            },
            checkpoint,
        )
        replace_file(self.out / CHECKPOINT, checkpoint.getvalue())
        self.saved = len(self.history)
        self._save_metrics(self.out)

    def _save_metrics(self, out: Path) -> None:
        """Writes both files after the checkpoint, from which a resumed run restores them."""
        report = {"experiment": dataclasses.asdict(self.experiment), "epochs": self.history}
        replace_file(out / _METRICS, f"{json.dumps(report, indent=1)}\n".encode())
        replace_file(out / record_files.FILE, record_files.to_lines(self.record_lines()))

    def _load(self, out: Path) -> None:
        path = out / CHECKPOINT
        saved = checkpoint_of("resume", path, "begin anew with --overwrite (overwrite=True)")
        self._require_same(path, saved["experiment"])
        made = len(saved["history"])
        if made > self.experiment.epochs:
            raise ValueError(
                f"epochs must be at least {made} (got {self.experiment.epochs}): the run in "
                f"{out} already has {made} epochs"
            )
        try:
            self.model.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self._epochs.load_state_dict(saved)
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"resume: {path} does not fit this model ({short_line(error)})"
            ) from None
        self.history = saved["history"]
        self.records = saved.get("records", [])
        self.records += [
            record_files.epoch_line(number, metrics)
            for number, metrics in enumerate(self.history, 1)
        ][len(self.records) :]
        self.saved = made
        self._save_metrics(out)


def checkpoint_of(name: str, path: Path, remedy: str) -> dict[str, Any]:
    """The content of a checkpoint.

    Args:
        name: The parameter that asks for it, for messages.
        path: The file.
        remedy: What to do about a damaged file.

    Raises:
        ValueError: naming the file, if it is damaged or none.
    """
    data = path.read_bytes()
    try:
        saved = read_checkpoint(data, _CONTENT, _MORE_CONTENT)
        experiment = _UNWRITTEN | json.loads(saved["experiment"])
        if experiment["algorithm"] in ALGORITHMS:  # older checkpoints name unused settings too
            used = ("algorithm", *ALGORITHMS[experiment["algorithm"]].settings)
            experiment |= dict.fromkeys(set(TILE_DEFAULTS).difference(used))
        return saved | {"experiment": experiment}
    except Exception as error:  # noqa: BLE001 - there is no end to what damaged files raise
        raise ValueError(
            f"{name}: {path} is no checkpoint of a run, or is damaged ({short_line(error)}); "
            f"{remedy}"
        ) from None
