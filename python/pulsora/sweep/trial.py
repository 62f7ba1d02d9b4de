"""One trial of a sweep: a run in a folder of its own, and its outcome."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from pulsora._internal.files import replace_file
from pulsora.sweep.settings import Sweep
from pulsora.sweep.study import open_study, trial_of
from pulsora.training.experiment import CHECKPOINT
from pulsora.training.run import Run

__all__ = ["Job", "Outcome", "prepare_worker", "run_trial"]

_OUTCOME = "outcome.json"


@dataclass(frozen=True)
class Job:
    """A trial that is to be run.

    Attributes:
        table: The settings of the sweep, as its file has them.
        folder: The folder of the sweep.
        number: Number of the trial, from 0.
        chosen: The chosen settings.
        device: Where the model is trained.
        threads: CPU threads.
    """

    table: dict[str, Any]
    folder: str
    number: int
    chosen: dict[str, Any]
    device: str
    threads: int


@dataclass(frozen=True)
class Outcome:
    """The end of a trial.

    Attributes:
        state: 'complete', 'pruned' or 'failed'.
        value: The objective after the last epoch of a complete trial.
        epochs: Number of epochs.
        reason: The error of a failed trial.
        warnings: Warnings of the run.
    """

    state: str
    value: float | None
    epochs: int
    reason: str = ""
    warnings: tuple[str, ...] = ()


class _Pruned(Exception):  # noqa: N818 - no error
    """Ends a run early."""


def prepare_worker() -> None:
    """Makes a process end together with the one that started it, which alone heeds Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:

        def watch() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()


def run_trial(job: Job) -> Outcome:
    """Runs a trial, from its checkpoint if there is one.

    The outcome is kept in the folder of the trial. If it is there, nothing is run.
    """
    folder = Path(job.folder) / f"trial-{job.number:04d}"
    kept = folder / _OUTCOME
    if kept.is_file():
        saved = json.loads(kept.read_text())
        return Outcome(**{**saved, "warnings": tuple(saved["warnings"])})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = _train(job, folder)
    said = dict.fromkeys(str(one.message) for one in caught)
    made = Outcome(**{**asdict(made), "warnings": tuple(said)})
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(kept, f"{json.dumps(asdict(made), indent=1)}\n".encode())
    return made


def _train(job: Job, folder: Path) -> Outcome:
    sweep = Sweep.from_dict(job.table)
    torch.set_num_threads(job.threads)
    trial = trial_of(open_study(sweep, Path(job.folder)), job.number) if sweep.pruning else None
    run: Run | None = None

    def report() -> None:
        """Reports epochs that were not; raises _Pruned if the trial is to end."""
        if trial is None or run is None:
            return
        reported = trial.study.trials[job.number].intermediate_values
        for epoch, metrics in enumerate(run.history, 1):
            if epoch not in reported:
                trial.report(_objective(metrics, sweep), epoch)
        if run.history and trial.should_prune():
            raise _Pruned

    try:
        run = Run(
            sweep.experiment(job.chosen),
            folder,
            resume=(folder / CHECKPOINT).is_file(),
            threads=job.threads,
            device=job.device,
        )
        report()
        history = run.train(on_epoch=lambda _: report())
        return Outcome("complete", _objective(history[-1], sweep), len(history))
    except _Pruned:
        return Outcome("pruned", None, 0 if run is None else len(run.history))
    except (ValueError, MemoryError) as error:
        return Outcome("failed", None, 0 if run is None else len(run.history), str(error))


def _objective(metrics: dict[str, float], sweep: Sweep) -> float:
    if sweep.objective not in metrics:
        raise ValueError(f"objective = '{sweep.objective}': an epoch has {', '.join(metrics)}")
    return metrics[sweep.objective]
