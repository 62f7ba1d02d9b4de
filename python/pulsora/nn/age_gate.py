"""A gate that selects an adapter by the age of the array beside it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from pulsora._core import ConfigError
from pulsora._internal.times import listed, seconds
from pulsora.nn.gates import TaskGate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor, nn

__all__ = ["AgeGate", "age_gates", "select_ages"]


class AgeGate(TaskGate):
    """A gate that selects the adapter of the age that is nearest in ln(t + 1 s).

    A bank of adapters is a pool with one adapter for each age of a drifting array.
    `pulsora.inference.select_age(model, time)` sets the age. States hold which adapter is selected.

    Args:
        ages: Seconds since the end of programming, or texts such as "1 day" (`seconds`), ascending;
            one for each adapter of the pool.

    Raises:
        ValueError: For ages that do not ascend, and for none.
        ConfigError: For an age that is no time, as `seconds` says.
    """

    ages: Tensor

    def __init__(self, ages: Sequence[float | str]) -> None:
        given = listed("ages", ages)
        try:
            values = [seconds(age) for age in given]
        except ConfigError as error:
            raise ConfigError(f"ages = {given}: {error}") from None
        if not values or sorted(set(values)) != values:
            raise ValueError(f"ages = {given}: give times in ascending order")
        super().__init__(len(values))
        self.register_buffer("ages", torch.tensor(values, dtype=torch.float64))

    def nearest(self, time: float) -> int:
        """Returns the number of the adapter whose age is nearest to a time in s."""
        logs = torch.log1p(self.ages.double().cpu())
        return int((logs - math.log1p(time)).abs().argmin())

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.task.ndim == 0:
            destination[f"{prefix}task"] = self.task.detach().clone()

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        ours = dict(state_dict)
        chosen = ours.pop(f"{prefix}task", None)  # not in states of earlier versions
        super()._load_from_state_dict(ours, prefix, *args)
        error_msgs: list[str] = args[-1]
        if chosen is None:
            return
        try:
            self.select(chosen)
        except (TypeError, ValueError) as error:
            error_msgs.append(f"{prefix}task: {error}")

    def extra_repr(self) -> str:
        """Returns the text between the brackets of `print(gate)`."""
        return ", ".join(f"{age:g} s" for age in self.ages.tolist())


def age_gates(model: nn.Module) -> list[AgeGate]:
    """Returns the gates of a model that select by age."""
    return [gate for gate in model.modules() if isinstance(gate, AgeGate)]


def select_ages(gates: Sequence[AgeGate], times: Sequence[float], rows: int) -> None:
    """Selects an age for each part of a batch: `rows` entries for each of the times."""
    for gate in gates:
        tasks = torch.tensor([gate.nearest(time) for time in times])
        gate.select(tasks.repeat_interleave(rows) if len(times) > 1 else int(tasks[0]))
