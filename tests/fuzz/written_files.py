"""Files whose writing fails or is killed at any call: the old content or the new is there, whole.

Loading may refuse what is left, with a documented error.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

import pulsora as pl
from pulsora import state as states
from pulsora.forecast import HybridTrainer
from pulsora.peft.files import read_adapter
from pulsora.training.data import Dataset
from pulsora.training.experiment import Experiment
from pulsora.training.run import Run
from tests.fuzz import generators, models
from tests.fuzz.checks import bits, require
from tests.fuzz.failing import KILLED, FailingFiles

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fuzz.random_source import Draws

torch.set_num_threads(1)  # other threads do not survive a fork

POINTS = 6
"""Calls of one save that are made to fail, of all that it makes."""
REFUSALS = (OSError, ValueError)
"""Documented errors of what writes and reads files; a StateError is a ValueError."""


class Saved:
    """Something that is written to a folder: an old content, then a new one.

    Attributes:
        names: The files in the folder after a save.
    """

    names: tuple[str, ...]

    def save(self, folder: Path, content: int) -> None:
        """Writes content 0, the old one, or 1, the new one."""
        raise NotImplementedError

    def load(self, folder: Path) -> object:
        """Every bit that is in the folder, in a form that compares."""
        raise NotImplementedError


class SavedTile(Saved):
    """Files of tiles, by `Tile.save`."""

    names = ("tile",)

    def __init__(self, draws: Draws) -> None:
        self.tiles = [generators.tile(draws, generators.config(draws)) for _ in range(2)]

    def save(self, folder: Path, content: int) -> None:
        self.tiles[content].save(folder / "tile")

    def load(self, folder: Path) -> object:
        return bits(pl.Tile.load(folder / "tile", threads=1))


class SavedDevice(Saved):
    """Files of devices."""

    def __init__(self, draws: Draws) -> None:
        self.names = (draws.pick(("device.toml", "device.json")),)
        self.devices = [_device(draws) for _ in range(2)]

    def save(self, folder: Path, content: int) -> None:
        pl.devices.save(self.devices[content], folder / self.names[0])

    def load(self, folder: Path) -> object:
        return pl.devices.load(folder / self.names[0]).to_dict()


def _device(draws: Draws) -> pl.devices.Device:
    while True:
        with contextlib.suppress(pl.ConfigError):
            return pl.devices.Device.from_dict(
                generators.device_values(draws, generators.plausible)
            )


class SavedState(Saved):
    """Files of states that are no tiles."""

    names = ("state.safetensors",)

    def __init__(self, draws: Draws) -> None:
        self.states = [
            states.State({"x": draws.normal(draws.integer(0, 40))}, {"n": n}).signed()
            for n in range(2)
        ]

    def save(self, folder: Path, content: int) -> None:
        states.save(self.states[content], folder / self.names[0])

    def load(self, folder: Path) -> object:
        loaded = states.load(folder / self.names[0])
        return models.plain(loaded.tensors), loaded.values["n"]


class SavedAdapter(Saved):
    """Adapters in PEFT's files, of other ranks and factors alpha."""

    names = ("adapter_config.json", "adapter_model.safetensors")

    def __init__(self, draws: Draws) -> None:
        self.models = [
            nn.ModuleDict({
                name: pl.nn.AnalogLinear(
                    5, 4, seed=draws.integer(0, 99), threads=1, config=pl.LRTTConfig(
                        rank=draws.integer(1, 3), lora_alpha=draws.uniform(0.1, 2.0),
                        transfer_every=0,
                    ),
                )
                for name in draws.pick((("a", "b"), ("a",)))
            })
            for _ in range(2)
        ]  # fmt: skip
        for made in self.models:
            for layer in made.values():
                tile = layer.tiles.grid[0][0]
                tile.arrays["fast_a"] = draws.normal(*tile.arrays["fast_a"].shape, scale=0.1)

    def save(self, folder: Path, content: int) -> None:
        pl.peft.save_adapter(self.models[content], folder)

    def load(self, folder: Path) -> object:
        return models.plain(
            {
                name: (factors.a, factors.b, factors.alpha)
                for name, factors in read_adapter(folder).factors.items()
            }
        )


class SavedRun(Saved):
    """The files of a run, which trains one epoch or continues to two."""

    names = ("checkpoint.pt", "metrics.json", "records.jsonl")

    def __init__(self, draws: Draws) -> None:
        x, y = draws.normal(32, 6), np.arange(32) % 3
        self.data = Dataset("random", x, y, x, y, 3)
        self.settings: dict[str, Any] = {"hidden": (4,), "batch": 8, "rank": 2}
        self.settings["seed"] = draws.integer(0, 99)

    def _run(self, folder: Path, epochs: int) -> Run:
        resume = (folder / "checkpoint.pt").exists()
        experiment = Experiment(**self.settings, epochs=epochs)
        return Run(experiment, folder, threads=1, data=self.data, resume=resume)

    def save(self, folder: Path, content: int) -> None:
        self._run(folder, content + 1).train()

    def load(self, folder: Path) -> object:
        with contextlib.suppress(FileNotFoundError):
            json.loads((folder / "metrics.json").read_text())  # it can be read at any moment
        run = self._run(folder, 2)
        metrics = json.loads((folder / "metrics.json").read_text())["epochs"]
        require(metrics == run.history, "the metrics differ from the checkpoint")
        history = [{**epoch, "seconds": 0.0} for epoch in run.history]
        return history, models.plain(run.model.state_dict())


class SavedTrainer(Saved):
    """Checkpoints of a HybridTrainer after some passes and after more."""

    names = ("trainer.pt",)

    def __init__(self, draws: Draws) -> None:
        self.seed = draws.integer(0, 99)
        x = torch.from_numpy(draws.normal(8, 5))
        self.trainers = [self._trainer() for _ in range(2)]
        for trainer, passes in zip(self.trainers, (5, 20), strict=True):
            trainer.train([x] * 8, passes=passes, progress=False)

    def _trainer(self) -> HybridTrainer:
        torch.manual_seed(self.seed)
        model = nn.Sequential(pl.nn.AnalogLinear(5, 4, seed=1, threads=1), nn.Linear(4, 2))
        optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.05)
        return HybridTrainer(model, optimizer, _squares, steps=100)

    def save(self, folder: Path, content: int) -> None:
        self.trainers[content].save(folder / self.names[0])

    def load(self, folder: Path) -> object:
        trainer = self._trainer()
        trainer.load(folder / self.names[0])
        return models.plain([trainer.state_dict(), trainer.model.state_dict()])


def _squares(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    squares: torch.Tensor = model(x).square().mean()
    return squares


SORTS: tuple[Callable[[Draws], Saved], ...] = (
    SavedTile, SavedDevice, SavedState, SavedAdapter, SavedAdapter, SavedRun, SavedTrainer,
)  # fmt: skip


def run(draws: Draws) -> None:
    saved = draws.pick(SORTS)(draws)
    draws.note(type(saved).__name__)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        wanted = [_undisturbed(saved, Path(folder, str(content)), content) for content in (0, 1)]
        # A first save imports modules, which may write files.
        _undisturbed(saved, Path(folder, "again"), 0)
        with FailingFiles(-1, 0) as counting:
            saved.save(Path(folder, "again"), 1)
        for point in range(POINTS):
            _disturbed(draws, saved, Path(folder, f"point {point}"), counting.made, wanted)


def _undisturbed(saved: Saved, folder: Path, content: int) -> object:
    """Content that is loaded after a save without faults."""
    folder.mkdir()
    for each in range(content + 1):
        saved.save(folder, each)
    require({path.name for path in folder.iterdir()} == {*saved.names}, "a save leaves other files")
    return saved.load(folder)


def _disturbed(draws: Draws, saved: Saved, folder: Path, calls: int, wanted: list[object]) -> None:
    folder.mkdir()
    has_old = draws.chance(0.8)
    if has_old:
        saved.save(folder, 0)
    number = draws.integer(0, calls - 1)
    error = draws.pick((errno.ENOSPC, errno.EIO, 0, 0))
    lasting = draws.chance(0.5)
    draws.note("call", number, "of", calls, os.strerror(error) if error else "killed", lasting)
    failing = FailingFiles(number, error, lasting=lasting)
    succeeded = (_fails if error else _killed)(saved, folder, failing)
    left = {path.name for path in folder.iterdir()} - {*saved.names}
    if error:
        require(not left, f"a save that failed leaves {left}")
    try:
        found = saved.load(folder)
    except REFUSALS as refusal:
        require(str(refusal), "a refusal without a word")
        require(not succeeded, f"what was saved is refused: {refusal}")
        require(not has_old or len(saved.names) > 1, f"the old file is lost: {refusal}")
    else:
        allowed = wanted[1:] if succeeded else wanted
        require(found in allowed, "the folder holds neither the old content nor the new")
    saved.save(folder, 1)
    require(saved.load(folder) == wanted[1], "a save after a fault differs")


def _fails(saved: Saved, folder: Path, failing: FailingFiles) -> bool:
    """Whether a save succeeds although a call fails."""
    try:
        with failing:
            saved.save(folder, 1)
    except REFUSALS as error:
        require(str(error), "a refusal without a word")
        return False
    return True


def _killed(saved: Saved, folder: Path, failing: FailingFiles) -> bool:
    """Whether a save succeeds in a process that a call ends."""
    child = os.fork()
    if child == 0:
        try:
            with failing:
                saved.save(folder, 1)
        finally:
            os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    require(status in {0, KILLED}, f"a save ends its process: {status}")
    return status == 0
