"""The file of a training: everything that is needed to go on to the bit."""

from __future__ import annotations

import copy
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pulsora._internal.checks import reading
from pulsora._internal.files import replace_file
from pulsora._internal.torch_files import read_checkpoint, short_line

if TYPE_CHECKING:
    from os import PathLike

    from pulsora.forecast.trainer import HybridTrainer

__all__ = ["load", "save"]

_CONTENT = {"trainer", "model", "optimizer", "scheduler", "random"}


def save(trainer: HybridTrainer, path: str | PathLike[str]) -> None:
    """See HybridTrainer.save."""
    whole = _states(trainer) | {
        "random": [torch.get_rng_state(), *torch.cuda.get_rng_state_all()],
        "kinds": _kinds(trainer),
    }
    data = io.BytesIO()
    torch.save(whole, data)
    replace_file(path, data.getvalue())


def load(trainer: HybridTrainer, path: str | PathLike[str]) -> None:
    """See HybridTrainer.load."""
    with reading("path", Path(path), "give a file of HybridTrainer.save"):
        data = Path(path).read_bytes()
    try:
        saved = read_checkpoint(data, _CONTENT, {"kinds"})
    except Exception as error:  # noqa: BLE001 - there is no end to what damaged files raise
        raise ValueError(
            f"{path} is no file of HybridTrainer.save, or is damaged ({short_line(error)})"
        ) from None
    if (saved["scheduler"] is None) != (trainer.scheduler is None):
        raise ValueError(
            f"{path} was saved {'without' if trainer.scheduler else 'with'} a scheduler"
        )
    theirs, ours = saved.get("kinds", _kinds(trainer)), _kinds(trainer)  # older files have none
    if theirs != ours:
        raise ValueError(
            f"{path} was saved with {' and '.join(theirs)}; this training has {' and '.join(ours)}"
        )
    before = _states(trainer)
    before["model"] = copy.deepcopy(before["model"])  # whose tensors are those of the model
    try:
        _take(trainer, saved)
    except (RuntimeError, KeyError, TypeError, AttributeError, ValueError) as error:
        _take(trainer, before)
        raise ValueError(f"{path} does not fit this training ({short_line(error)})") from None
    torch.set_rng_state(saved["random"][0])
    if torch.cuda.is_available() and len(saved["random"]) - 1 == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(saved["random"][1:])


def _states(trainer: HybridTrainer) -> dict[str, Any]:
    return {
        "trainer": trainer.state_dict(),
        "model": trainer.model.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "scheduler": None if trainer.scheduler is None else trainer.scheduler.state_dict(),
    }


def _take(trainer: HybridTrainer, states: dict[str, Any]) -> None:
    """Goes on from what _states() gave."""
    trainer.load_state_dict(states["trainer"])
    trainer.model.load_state_dict(states["model"])
    trainer.optimizer.load_state_dict(states["optimizer"])
    if trainer.scheduler is not None:
        trainer.scheduler.load_state_dict(states["scheduler"])


def _kinds(trainer: HybridTrainer) -> list[str]:
    """What optimiser and scheduler are, whose states do not tell."""
    given = [trainer.optimizer, *([] if trainer.scheduler is None else [trainer.scheduler])]
    return [type(each).__name__ for each in given]
