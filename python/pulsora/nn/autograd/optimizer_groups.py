"""Groups of parameters of optimisers: learning rates, and settings that pulses do not follow."""

from __future__ import annotations

import functools
import inspect
import math
from typing import TYPE_CHECKING, Any

import torch

from pulsora.nn.autograd.analog_parameter import AnalogParameter

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from torch import Tensor

__all__ = [
    "has_analog",
    "has_digital",
    "ignored",
    "learning_rate",
    "parted",
    "rate",
    "shares_lr",
    "signature",
]

# Arguments that act on analog layers too, or make no difference to the rule of the update.
_NEUTRAL = {"params", "lr", "maximize", "foreach", "fused", "capturable", "differentiable"}


def rate(value: float | Tensor | None) -> float | None:
    """Returns a checked `analog_lr`.

    Raises:
        ValueError: for numbers that no learning rate can be.
    """
    if value is None:
        return None
    lr = float(value)
    if not (math.isfinite(lr) and lr >= 0.0):
        raise ValueError(f"analog_lr = {value}: give a finite number, 0 or larger")
    return lr


def learning_rate(group: Mapping[str, Any]) -> float:
    """Returns the lr of a group; ValueError if it is not finite."""
    lr = float(group["lr"])
    if not math.isfinite(lr):
        raise ValueError(f"lr is {lr}; it must be a finite number")
    return lr


def signature(kind: type[torch.optim.Optimizer]) -> inspect.Signature:
    """Returns the arguments of an optimiser of torch, `analog_lr` and `in_backward`."""
    of_torch = inspect.signature(kind)
    others = list(of_torch.parameters.values())
    last = [each for each in others if each.kind is each.VAR_KEYWORD]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        for name, default in (("analog_lr", None), ("in_backward", False))
    ]
    return of_torch.replace(
        parameters=[*(each for each in others if each not in last), *added, *last]
    )


def has_analog(group: Mapping[str, Any]) -> bool:
    """Whether a group of an optimiser has analog parameters."""
    return any(isinstance(each, AnalogParameter) for each in group["params"])


def has_digital(group: Mapping[str, Any]) -> bool:
    """Whether a group of an optimiser has parameters that torch itself updates."""
    return not all(isinstance(each, AnalogParameter) for each in group["params"])


def parted(group: Mapping[str, Any], analog_lr: float | None) -> list[dict[str, Any]]:
    """Parts a group into its digital and its analog parameters, if there is an lr for the latter.

    Args:
        group: As for `add_param_group`; its own `analog_lr` comes first.
        analog_lr: The optimiser's lr for analog parameters; None to leave groups whole.

    Raises:
        ValueError: for a bad `analog_lr`.
    """
    whole = dict(group)
    analog_lr = rate(whole.pop("analog_lr", analog_lr))
    given = whole.get("params")
    if isinstance(given, torch.Tensor):
        given = [given]
    if analog_lr is None or given is None or isinstance(given, set):  # torch refuses sets
        return [whole]
    entries = list(given)
    analog = [each for each in entries if _is_analog(each)]
    digital = [each for each in entries if not _is_analog(each)]
    if not analog:
        return [{**whole, "params": entries}]
    if not digital:
        return [{"lr": analog_lr, **whole, "params": analog}]  # an lr of the group itself stays
    return [{**whole, "params": digital}, {**whole, "params": analog, "lr": analog_lr}]


def _is_analog(entry: object) -> bool:
    """Whether an entry of a group, a parameter or (name, parameter), is analog."""
    value = entry[1] if isinstance(entry, tuple) and len(entry) == 2 else entry
    return isinstance(value, AnalogParameter)


def shares_lr(kind: type[torch.optim.Optimizer], group: Mapping[str, Any], *, has_lr: bool) -> bool:
    """Whether analog parameters of a group have got the lr of an adaptive optimiser.

    `has_lr` tells whether the user gave the group an lr of its own; a group of analog parameters
    alone then has an lr that was chosen for pulses.
    """
    if issubclass(kind, torch.optim.SGD | torch.optim.ASGD) or not has_analog(group):
        return False
    return not has_lr or not all(isinstance(each, AnalogParameter) for each in group["params"])


def ignored(
    kind: type[torch.optim.Optimizer], groups: Iterable[Mapping[str, Any]], told: Container[str]
) -> dict[str, Any]:
    """Returns the settings that analog layers ignore, by name.

    Args:
        kind: The optimiser of torch for the digital parameters.
        groups: Groups of the optimiser.
        told: Names of settings to leave out.
    """
    defaults = _defaults(kind)  # type: ignore[arg-type]  # a class is hashable
    found: dict[str, Any] = {}
    for group in groups:
        changed = {
            name: group[name]
            for name, default in defaults.items()
            if group.get(name, default) != default and name not in told
        }
        if changed and has_analog(group):
            found = changed | found
    return found


@functools.cache
def _defaults(kind: type[torch.optim.Optimizer]) -> dict[str, Any]:
    """Returns the settings of an optimiser that pulses do not follow, with their defaults."""
    arguments = inspect.signature(kind).parameters
    return {name: each.default for name, each in arguments.items() if name not in _NEUTRAL}
