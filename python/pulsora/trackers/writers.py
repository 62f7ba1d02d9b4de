"""Writers of records to trackers. Their packages are optional, and imported when a run begins."""

from __future__ import annotations

import importlib
import os
import re
from typing import TYPE_CHECKING, Any, Protocol

from pulsora._internal.files import replace_file
from pulsora.records.files import FILE, scalars, to_lines
from pulsora.records.flat import flat

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pulsora.records.files import Record

__all__ = ["NAMES", "JsonLines", "MLflow", "TensorBoard", "Tracker", "WandB", "trackers_of"]

_MOST_METRICS = 1000  # of one call of MLflow
_MOST_TEXT = 500  # characters of a parameter of MLflow


class Tracker(Protocol):
    """A receiver of the records of one run (`pulsora.records.files`)."""

    def begin(self, run: Record) -> None:
        """Takes the line that describes the run."""

    def epoch(self, record: Record) -> None:
        """Takes the line of an epoch."""

    def end(self, *, failed: bool = False) -> None:
        """Ends the run."""


def _package(name: str, package: str) -> Any:  # noqa: ANN401 - a module that may be missing
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"this tracker needs {package} ({error}); install it with pip install {package}"
        ) from error


class JsonLines:
    """Writes records.jsonl, which `pulsora report` reads, into a folder.

    Args:
        folder: The folder; it is made if there is none.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lines: list[Record] = []

    def begin(self, run: Record) -> None:
        """Begins the file anew."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lines = [run]
        self._write()

    def epoch(self, record: Record) -> None:
        """Adds a line."""
        self._lines.append(record)
        self._write()

    def end(self, *, failed: bool = False) -> None:
        """Does nothing: every line is on the disk."""

    def _write(self) -> None:
        replace_file(self._folder / FILE, to_lines(self._lines))


class TensorBoard:
    """Writes event files: all numbers, and a histogram of each array.

    Args:
        folder: The folder for `tensorboard --logdir`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: Any = None
        _package("tensorboard", "tensorboard")

    def begin(self, run: Record) -> None:
        """Begins an event file, which replaces what earlier ones in the folder say."""
        module = _package("torch.utils.tensorboard", "tensorboard")
        self._writer = module.SummaryWriter(str(self._folder), purge_step=1)
        settings = flat(run["settings"]).items()
        text = "".join(f"    {name} = {value}\n" for name, value in settings)
        self._writer.add_text("settings", text)

    def epoch(self, record: Record) -> None:
        """Writes numbers and histograms, with the epoch as their step."""
        step = record["epoch"]
        for name, value in scalars(record).items():
            self._writer.add_scalar(name, value, step)
        for name, one in _distributions(record):
            if one["low"] is not None:
                self._add_histogram(name, one, step)
        self._writer.flush()

    def end(self, *, failed: bool = False) -> None:  # noqa: ARG002 - files have no such mark
        """Closes the event file."""
        self._writer.close()

    def _add_histogram(self, name: str, one: Record, step: int) -> None:
        counts = one["counts"]
        total, width = sum(counts), (one["high"] - one["low"]) / len(counts)
        self._writer.add_histogram_raw(
            name,
            min=one["low"],
            max=one["high"],
            num=total,
            sum=total * one["mean"],
            sum_squares=total * (one["std"] ** 2 + one["mean"] ** 2),
            bucket_limits=[one["low"] + width * (bin_ + 1) for bin_ in range(len(counts))],
            bucket_counts=counts,
            global_step=step,
        )


def _distributions(record: Record) -> Iterator[tuple[str, Record]]:
    for tile in record["tiles"]:
        for name, array in tile["arrays"].items():
            yield f"{tile['layer']}/{tile['tile']}/{name}", array["distribution"]
    for parameter in record["parameters"]:
        yield parameter["name"], parameter["distribution"]


class MLflow:
    """Logs parameters and metrics to MLflow.

    Args:
        uri: Where MLflow keeps runs, such as "sqlite:///mlflow.db", "file:mlruns" or a server's
            address; MLflow's default, MLFLOW_TRACKING_URI, if it is None.
        experiment: Name of the experiment.
    """

    def __init__(self, uri: str | None = None, experiment: str = "pulsora") -> None:
        self._client = _package("mlflow", "mlflow-skinny").MlflowClient(tracking_uri=uri)
        self._experiment = experiment
        self.run_id = ""

    def begin(self, run: Record) -> None:
        """Creates a run with the settings as parameters."""
        known = self._client.get_experiment_by_name(self._experiment)
        identifier = (
            self._client.create_experiment(self._experiment)
            if known is None
            else known.experiment_id
        )
        made = self._client.create_run(identifier, run_name=run["name"])
        self.run_id = made.info.run_id
        for name, value in flat(run["settings"]).items():
            self._client.log_param(self.run_id, _allowed(name), value[:_MOST_TEXT])

    def epoch(self, record: Record) -> None:
        """Logs all numbers, with the epoch as their step."""
        entities = _package("mlflow.entities", "mlflow-skinny")
        metrics = [
            entities.Metric(_allowed(name), value, 0, record["epoch"])
            for name, value in scalars(record).items()
        ]
        for first in range(0, len(metrics), _MOST_METRICS):
            self._client.log_batch(self.run_id, metrics=metrics[first : first + _MOST_METRICS])

    def end(self, *, failed: bool = False) -> None:
        """Marks the run as finished or failed."""
        self._client.set_terminated(self.run_id, "FAILED" if failed else "FINISHED")


def _allowed(name: str) -> str:
    """The name with the characters that MLflow takes."""
    return re.sub(r"[^\w\-. /]", "_", name)


class WandB:
    """Logs settings and numbers to Weights & Biases.

    Args:
        project: Name of the project.
        options: Further arguments of `wandb.init`, such as mode="offline" or dir.
    """

    def __init__(self, project: str = "pulsora", **options: Any) -> None:
        self._wandb = _package("wandb", "wandb")
        self._options = {"project": project, **options}
        self._run: Any = None

    def begin(self, run: Record) -> None:
        """Begins a run with the settings as its configuration."""
        given = {"name": run["name"], "config": run["settings"], **self._options}
        self._run = self._wandb.init(**given)

    def epoch(self, record: Record) -> None:
        """Logs all numbers, with the epoch as their step."""
        self._run.log(scalars(record), step=record["epoch"])

    def end(self, *, failed: bool = False) -> None:
        """Ends the run."""
        self._run.finish(exit_code=int(failed))


NAMES = ("tensorboard", "mlflow", "wandb")
"""Trackers that the command line knows."""


def trackers_of(names: Sequence[str], folder: Path) -> list[Tracker]:
    """Makes the trackers of a run by their names.

    Args:
        names: Some of `NAMES`.
        folder: The folder of the run. It gets TensorBoard's event files (tensorboard), MLflow's
            database (mlflow.db) unless MLFLOW_TRACKING_URI is set, and the files of Weights &
            Biases (wandb).

    Raises:
        ValueError: for a name that is unknown or given twice.
        ImportError: if a package is missing.
    """
    for number, name in enumerate(names):
        if name not in NAMES or name in names[:number]:
            raise ValueError(
                f"track must be some of {', '.join(NAMES)}, each once (got '{','.join(names)}')"
            )
    database = f"sqlite:///{(folder / 'mlflow.db').resolve()}"
    uri = None if os.environ.get("MLFLOW_TRACKING_URI") else database
    makers: dict[str, Any] = {
        "tensorboard": lambda: TensorBoard(folder / "tensorboard"),
        "mlflow": lambda: MLflow(uri),
        "wandb": lambda: WandB(dir=str(folder)),
    }
    return [makers[name]() for name in names]
