"""Options that several commands have, and the experiment that they describe."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from pulsora import _core
from pulsora._internal.files import read_settings
from pulsora._internal.threads import chosen_threads
from pulsora.training.experiment import ALGORITHMS, MODELS, TILE_DEFAULTS, Experiment

__all__ = [
    "Algorithm",
    "Compensation",
    "ConfigFile",
    "LearningRate",
    "Modifier",
    "ModifierStd",
    "NoiseModel",
    "Preset",
    "Rank",
    "Retention",
    "RetentionCompensation",
    "RetentionFast",
    "Seed",
    "Threads",
    "TransferEvery",
    "experiment_of",
    "setting",
    "setting_of_model",
    "threads_of",
]


_DEFAULTS = (
    {field.name: field.default for field in fields(Experiment)} | MODELS["mlp"] | TILE_DEFAULTS
)


def setting(name: str, text: str) -> Any:  # noqa: ANN401 - as typer.Option
    """An option that a settings file may hold as well; its default comes from `Experiment`."""
    return typer.Option(help=text, show_default=_shown(_DEFAULTS[name]))


def setting_of_model(name: str, text: str) -> Any:  # noqa: ANN401 - as typer.Option
    """An option like `setting`, whose default depends on the model."""
    defaults = {model: _shown(of[name]) for model, of in MODELS.items() if name in of}
    shown = ", ".join(f"{model} {default}" for model, default in defaults.items())
    return typer.Option(help=text, show_default=shown)


def _shown(default: object) -> str:
    if default is None:
        return "none"
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)


# None: not given; the settings file or the default decides.
ConfigFile = Annotated[
    Path | None,
    typer.Option(help="Settings as a TOML or JSON file; options override it.", show_default="none"),
]
Algorithm = Annotated[str | None, setting("algorithm", f"One of {', '.join(ALGORITHMS)}.")]
Preset = Annotated[
    str | None,
    setting(
        "device_preset",
        "A device preset or model, see 'pulsora info', or a file of 'pulsora fit --save'.",
    ),
]
Rank = Annotated[int | None, setting("rank", "Rank of the adapter.")]
TransferEvery = Annotated[
    int | None,
    setting("transfer_every", "Mini-batches per transfer of the adapter; 0 is never."),
]
NoiseModel = Annotated[
    str | None,
    setting("noise_model", "A noise model, see 'pulsora info', or a file with the table of one."),
]
Compensation = Annotated[
    str | None,
    setting("compensation", "Drift compensation: none, global, per_output or exact_reference."),
]
Retention = Annotated[
    str | None,
    setting("retention", "A noise model by which pulsed cells drift after training, or its file."),
]
RetentionFast = Annotated[
    str | None, setting("retention_fast", "The same for the arrays of the adapter.")
]
RetentionCompensation = Annotated[
    str | None,
    setting("retention_compensation", "Compensation of that drift: none, global or per_output."),
]
Modifier = Annotated[
    str | None,
    setting("modifier", "What training reads of hwa do to weights, such as noise_model or none."),
]
ModifierStd = Annotated[
    float | None, setting("modifier_std", "Noise of the modifier, over the largest weight.")
]
Seed = Annotated[int | None, setting("seed", "Seed of everything.")]
LearningRate = Annotated[float | None, setting("lr", "Learning rate.")]
Threads = Annotated[
    int | None,
    typer.Option(
        help="CPU threads of tiles and of torch.",
        show_default="OMP_NUM_THREADS, or all that there are",
    ),
]


def threads_of(threads: int | None) -> int:
    """Resolves the number of CPU threads, and sets it in torch.

    Raises:
        ConfigError: for a number out of range.
        ImportError: without torch.
    """
    import torch  # noqa: PLC0415 - optional

    chosen = chosen_threads(threads)
    _core.require_place("cpu", chosen)
    torch.set_num_threads(chosen)
    return chosen


def experiment_of(file: Path | None, **given: Any) -> Experiment:
    """The experiment described by a settings file and options; options override the file.

    Raises:
        ValueError: for a file without settings, and for unknown or contradictory settings.
        OSError: if the file cannot be read.
    """
    settings = {} if file is None else read_settings("config", file)
    return Experiment.from_dict(settings | {k: v for k, v in given.items() if v is not None})
