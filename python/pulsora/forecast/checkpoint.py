"""Checkpoints of HybridTrainer; resuming from one is bit-exact."""

from __future__ import annotations

import copy
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from pulsora._internal.checks import reading
from pulsora._internal.files import replace_file
from pulsora._internal.torch_files import read_checkpoint, short_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

__all__ = ["Stateful", "load", "save"]

_CONTENT = {"trainer", "model", "optimizer", "scheduler", "random"}


class Stateful(Protocol):
    """Anything with a state_dict, as modules and optimisers of torch have."""

    def state_dict(self) -> dict[str, Any]:
        """The state."""

    def load_state_dict(self, state_dict: dict[str, Any], /) -> object:
        """Goes on from a state."""


def save(parts: Mapping[str, Stateful | None], path: str | PathLike[str]) -> None:
    """Writes trainer, model, optimizer and scheduler, by these names. See HybridTrainer.save."""
    whole = _states(parts) | {
        "random": [torch.get_rng_state(), *torch.cuda.get_rng_state_all()],
        "kinds": _kinds(parts),
    }
    data = io.BytesIO()
    torch.save(whole, data)
    replace_file(path, data.getvalue())


def load(parts: Mapping[str, Stateful | None], path: str | PathLike[str]) -> None:
    """Hands the states of a file to the parts that `save` takes. See HybridTrainer.load."""
    with reading("path", Path(path), "give a file of HybridTrainer.save"):
        data = Path(path).read_bytes()
    try:
        saved = read_checkpoint(data, _CONTENT, {"kinds"})
    except Exception as error:  # noqa: BLE001 - there is no end to what damaged files raise
        raise ValueError(
            f"{path} is no file of HybridTrainer.save, or is damaged ({short_line(error)})"
        ) from None
    if (saved["scheduler"] is None) != (parts["scheduler"] is None):
        raise ValueError(
            f"{path} was saved {'without' if parts['scheduler'] else 'with'} a scheduler"
        )
    theirs, ours = saved.get("kinds", _kinds(parts)), _kinds(parts)  # older files have none
    if theirs != ours:
        raise ValueError(
            f"{path} was saved with {' and '.join(theirs)}; this training has {' and '.join(ours)}"
        )
    before = _states(parts)
    before["model"] = copy.deepcopy(before["model"])  # a state's tensors are the model's own
    try:
        _take(parts, saved)
    except (RuntimeError, KeyError, TypeError, AttributeError, ValueError) as error:
        _take(parts, before)
        raise ValueError(f"{path} does not fit this training ({short_line(error)})") from None
    torch.set_rng_state(saved["random"][0])
    if torch.cuda.is_available() and len(saved["random"]) - 1 == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(saved["random"][1:])


def _states(parts: Mapping[str, Stateful | None]) -> dict[str, Any]:
    return {name: None if part is None else part.state_dict() for name, part in parts.items()}


def _take(parts: Mapping[str, Stateful | None], states: Mapping[str, Any]) -> None:
    for name, part in parts.items():
        if part is not None:
            part.load_state_dict(states[name])


def _kinds(parts: Mapping[str, Stateful | None]) -> list[str]:
    """Classes of optimizer and scheduler, which their states do not contain."""
    given = (parts["optimizer"], parts["scheduler"])
    return [type(each).__name__ for each in given if each is not None]
