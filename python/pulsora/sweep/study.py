"""Studies of Optuna whose choices do not depend on when and where they are made."""

# ruff: noqa: ANN401, ARG002 - methods have the parameters of another package, without types

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler

from pulsora.sweep.settings import Choice

if TYPE_CHECKING:
    from pathlib import Path

    from pulsora.sweep.settings import Range, Sweep

__all__ = ["choose", "open_study", "trial_of"]

_NAME = "pulsora"
_SECONDS = 120  # to wait for another process that writes


class SeededSampler(BaseSampler):  # type: ignore[misc] # without types
    """Draws each setting of each trial with a seed of its own.

    So a trial that was stopped between two settings goes on with the same values.
    """

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep

    def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
        """No settings are drawn together."""
        return {}

    def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
        """Nothing, as no settings are drawn together."""
        return {}

    def sample_independent(
        self,
        study: Any,
        trial: Any,
        param_name: str,
        param_distribution: Any,
    ) -> Any:
        """The value of a setting."""
        if self._sweep.sampler == "grid":
            return self._on_grid(trial.number, param_name)
        text = f"{self._sweep.seed}/{trial.number}/{param_name}"
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")
        kind = TPESampler if self._sweep.sampler == "tpe" else RandomSampler
        return kind(seed=seed).sample_independent(study, trial, param_name, param_distribution)

    def _on_grid(self, number: int, name: str) -> Any:
        """The value at a point of the grid; the last setting varies fastest."""
        for other, one in reversed(list(self._sweep.search.items())):
            stored = list(one.values) if isinstance(one, Choice) else []
            number, place = divmod(number, len(stored))
            if other == name:
                return stored[place]
        raise KeyError(name)


def open_study(sweep: Sweep, folder: Path) -> Any:
    """The study in a folder, study.db, which is made if there is none."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = optuna.storages.RDBStorage(
        f"sqlite:///{(folder / 'study.db').resolve()}",
        engine_kwargs={"connect_args": {"timeout": _SECONDS}},
    )
    pruner: Any = optuna.pruners.NopPruner()
    if sweep.pruning is not None:
        pruner = optuna.pruners.MedianPruner(
            n_startup_trials=sweep.pruning.startup_trials,
            n_warmup_steps=sweep.pruning.warmup_epochs,
        )
    return optuna.create_study(
        study_name=_NAME,
        storage=storage,
        sampler=SeededSampler(sweep),
        pruner=pruner,
        direction="maximize" if sweep.maximizes else "minimize",
        load_if_exists=True,
    )


def trial_of(study: Any, number: int) -> Any:
    """A trial that was begun, by its number."""
    return optuna.trial.Trial(study, study.trials[number]._trial_id)  # noqa: SLF001 - no other way


def choose(study: Any, sweep: Sweep, number: int) -> dict[str, Any]:
    """The settings of the trial with a number, which is begun if it was not."""
    trial = trial_of(study, number) if number < len(study.trials) else study.ask()
    return {
        name: one.value(trial._suggest(name, _distribution(one)))  # noqa: SLF001 - any distribution
        for name, one in sweep.search.items()
    }


def _distribution(one: Choice | Range) -> Any:
    if isinstance(one, Choice):
        return CategoricalDistribution(list(one.values))
    kind = IntDistribution if one.whole else FloatDistribution
    return kind(one.low, one.high, log=one.log)
