"""The model of a saved run, on arrays that are programmed once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pulsora._internal.torch_files import short_line
from pulsora.config import InferenceConfig
from pulsora.convert import convert_to_digital
from pulsora.inference import calibrate
from pulsora.training.experiment import CHECKPOINT, Experiment
from pulsora.training.models import network, on_tiles
from pulsora.training.run import checkpoint_of

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from pulsora.training.data import Dataset

__all__ = [
    "digital_model",
    "inference_config",
    "programmable_model",
    "saved_experiment",
    "trained_model",
]

_CALIBRATION = 10  # parts of the training set that give input ranges
_PART = 256


def saved_experiment(run: Path) -> Experiment:
    """The experiment of a run in a folder.

    Raises:
        ValueError: if there is no checkpoint, or a damaged one.
    """
    return Experiment.from_dict(_saved(run)["experiment"] | {"epochs": 1})


def digital_model(
    run: Path, experiment: Experiment, data: Dataset, *, threads: int | None = None
) -> nn.Module:
    """The network of a run with its trained weights, in torch's layers.

    Weights of arrays that were trained by pulses are what a perfect read of them would see.
    Arguments and errors are those of `trained_model`.
    """
    return convert_to_digital(trained_model(run, experiment, data, threads=threads))


def trained_model(
    run: Path, experiment: Experiment, data: Dataset, *, threads: int | None = None
) -> nn.Module:
    """The network of a run as it was trained, in eval().

    Args:
        run: Folder of the run.
        experiment: Its experiment.
        data: Its data set.
        threads: CPU threads of tiles.

    Raises:
        ValueError: if the checkpoint is damaged.
    """
    model = network(
        experiment.model, data, experiment.tile_config(),
        hidden=experiment.hidden, seed=experiment.seed, threads=threads,
    )  # fmt: skip
    try:
        model.load_state_dict(_saved(run)["model"])
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"run: {run / CHECKPOINT} does not fit its model ({short_line(error)}); train it anew"
        ) from None
    return model.eval()


def inference_config(experiment: Experiment, **changes: Any) -> InferenceConfig:
    """The programmed arrays of a run: those that it was trained for, else with defaults.

    Args:
        experiment: The experiment. One without `InferenceConfig` gets PCMLike devices and global
            drift compensation.
        **changes: Settings that differ.
    """
    config = experiment.tile_config()
    if not isinstance(config, InferenceConfig):
        return InferenceConfig(**({"compensation": "global"} | changes))
    return config.replace(**changes)


def programmable_model(
    digital: nn.Module,
    config: InferenceConfig,
    data: Dataset,
    *,
    seed: int,
    threads: int | None = None,
    device: str = "cpu",
) -> nn.Module:
    """The network with all layers but the output layer and tables on arrays of `config`, in eval().

    Arrays with input ranges are calibrated on parts of the training set.

    Args:
        digital: The network in torch's layers.
        config: The arrays.
        data: The data set of the training.
        seed: Seed of the arrays.
        threads: CPU threads of tiles.
        device: Where reads are made.
    """
    model = on_tiles(digital, config, seed=seed, threads=threads).to(device).eval()
    if config.forward.noise_management == "input_range":
        parts = torch.split(torch.from_numpy(data.train_x[: _CALIBRATION * _PART]), _PART)
        calibrate(model, [part.to(device) for part in parts])
    return model


def _saved(run: Path) -> dict[str, Any]:
    path = run / CHECKPOINT
    if not path.is_file():
        raise ValueError(f"run: there is no {path}; name a folder of 'pulsora train'")
    return checkpoint_of("run", path, "train it anew")
