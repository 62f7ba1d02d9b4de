"""Running a sweep: groups of trials, in this process or in several."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import multiprocessing
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from optuna.trial import TrialState

from pulsora._internal.checks import require_at_least, require_folder
from pulsora._internal.files import replace_file
from pulsora.sweep.settings import Sweep
from pulsora.sweep.study import choose, open_study
from pulsora.sweep.trial import Job, prepare_worker, run_trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from pulsora.sweep.trial import Outcome

__all__ = ["run_sweep", "table_of"]

_SETTINGS, _STUDY, _LOCK, _TABLE = "sweep.json", "study.db", "sweep.lock", "trials.csv"
_STATES = {"pruned": TrialState.PRUNED, "failed": TrialState.FAIL}


def run_sweep(
    table: Mapping[str, Any],
    folder: Path,
    *,
    resume: bool = False,
    processes: int = 1,
    threads: int = 1,
    device: str = "cpu",
    on_trial: Callable[[int, dict[str, Any], Outcome], None] | None = None,
) -> Any:  # noqa: ANN401 - a study of Optuna
    """Runs all trials of a sweep that have not ended, and returns its study.

    Args:
        table: Settings, as `Sweep.from_dict` takes them.
        folder: Folder for the study (study.db), the settings (sweep.json), a table (trials.csv) and
            the folder of each trial, which `pulsora report` reads.
        resume: Continue the sweep in the folder. Its settings must be the same but for a larger
            number of trials.
        processes: Trials that run at the same time.
        threads: CPU threads of each trial.
        device: Where models are trained.
        on_trial: Called after each trial with its number, settings and outcome, in their order.

    Raises:
        ValueError: for bad settings, more processes than trials that are chosen together, a sweep
            in the folder that is not resumed, one of other settings, and one that is running.
        OSError: if nothing can be written to the folder.
    """
    sweep = Sweep.from_dict(table)
    require_at_least("processes", processes, 1)
    if sweep.has_history and processes > sweep.parallel:
        raise ValueError(
            f"processes = {processes}: the settings choose {sweep.parallel} trials together "
            "(parallel), so that more have nothing to do; raise parallel, or lower processes"
        )
    _require_beginning(table, folder, resume=resume)
    require_folder("out", folder)
    with _lock(folder):
        replace_file(folder / _SETTINGS, f"{json.dumps(dict(table), indent=1)}\n".encode())
        study = open_study(sweep, folder)
        group = sweep.parallel if sweep.has_history else max(sweep.parallel, processes)
        with _runner(processes) as run:
            while (numbers := _next_group(study, group, sweep.total)) is not None:
                chosen = {number: choose(study, sweep, number) for number in numbers}
                jobs = [
                    Job(dict(table), str(folder), number, chosen[number], device, threads)
                    for number in numbers
                    if not study.trials[number].state.is_finished()
                ]
                for job, outcome in zip(jobs, list(run(jobs)), strict=True):
                    _tell(study, job.number, outcome)
                    if on_trial is not None:
                        on_trial(job.number, job.chosen, outcome)
                replace_file(folder / _TABLE, _csv(study, sweep))
    return study


def _next_group(study: Any, group: int, total: int) -> range | None:  # noqa: ANN401
    """Numbers of the first group with a trial that has not ended; None at the end."""
    states = [trial.state.is_finished() for trial in study.trials]
    first = states.index(False) if False in states else len(states)
    if first >= total:
        return None
    begin = first - first % group
    return range(begin, min(begin + group, total))


@contextmanager
def _runner(processes: int) -> Iterator[Callable[[list[Job]], Iterator[Outcome]]]:
    """A function that runs trials, here or in processes, and gives outcomes in their order."""
    if processes == 1:
        yield lambda jobs: map(run_trial, jobs)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, prepare_worker) as pool:  # whose end stops its processes
        yield lambda jobs: pool.imap(run_trial, jobs)


def _tell(study: Any, number: int, outcome: Outcome) -> None:  # noqa: ANN401
    """Ends a trial in the study."""
    trial = study.trials[number]
    storage, identifier = study._storage, trial._trial_id  # noqa: SLF001 - as Trial does
    storage.set_trial_user_attr(identifier, "epochs", outcome.epochs)
    if outcome.reason:
        storage.set_trial_user_attr(identifier, "reason", outcome.reason)
    study.tell(number, outcome.value, state=_STATES.get(outcome.state))


def _require_beginning(table: Mapping[str, Any], folder: Path, *, resume: bool) -> None:
    """Raises ValueError unless a sweep can begin, or resume, in a folder."""
    held = (folder / _STUDY).is_file()
    if held and not resume:
        raise ValueError(
            f"out = {folder} holds a sweep: continue it (--resume, resume=True), or choose another "
            "folder"
        )
    if not held and resume:
        raise ValueError(f"resume: there is no sweep in {folder}; start without --resume")
    if not held:
        return
    path = folder / _SETTINGS
    try:
        there = json.loads(path.read_text())
        made = Sweep.from_dict(there)
    except (OSError, ValueError) as error:
        raise ValueError(f"resume: {path} is damaged ({error}); choose another folder") from None
    here = json.loads(json.dumps(dict(table)))
    names = sorted({*here, *there} - {"trials"})
    differing = [name for name in names if here.get(name) != there.get(name)]
    if differing:
        raise ValueError(
            f"resume: the sweep in {folder} has other settings ({', '.join(differing)}); repeat "
            "them, or choose another folder"
        )
    if Sweep.from_dict(here).total < made.total:
        raise ValueError(f"trials must be at least {made.total}, as the sweep in {folder} has it")


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Keeps other processes away from a sweep; the lock ends with the process."""
    with (folder / _LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(
                f"out = {folder}: another process runs this sweep; wait for it, or choose another "
                "folder"
            ) from None
        yield


def table_of(study: Any, sweep: Sweep) -> list[dict[str, Any]]:  # noqa: ANN401
    """A row for each trial that ended: trial, state, objective, epochs, settings, and reason."""
    rows = []
    for trial in study.trials:
        if trial.state.is_finished():
            values = {name: trial.params.get(name, "") for name in sweep.search}
            rows.append(
                {
                    "trial": trial.number,
                    "state": {"FAIL": "failed"}.get(trial.state.name, trial.state.name.lower()),
                    sweep.objective: trial.value if trial.state == TrialState.COMPLETE else None,
                    "epochs": trial.user_attrs.get("epochs", 0),
                    **values,
                    "reason": trial.user_attrs.get("reason", ""),
                }
            )
    return rows


def _csv(study: Any, sweep: Sweep) -> bytes:  # noqa: ANN401
    rows = table_of(study, sweep)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()
