"""The evaluation of a model over programmings and times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from pulsora.inference.programming import drift, held_layers, program
from pulsora.inference.report import InferenceReport
from pulsora.inference.times import seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from torch import Tensor, nn

__all__ = ["evaluate"]

YEAR = ("1 s", "1 h", "1 day", "1 month", "1 year")
"""Times of an evaluation by default."""


@torch.no_grad()
def evaluate(
    model: nn.Module,
    batches: Iterable[tuple[Any, Tensor]],
    *,
    metric: Literal["accuracy"] | Callable[[Any, Tensor], Tensor] = "accuracy",
    times: Sequence[float | str] = YEAR,
    programmings: int | Sequence[int] = 5,
    progress: Callable[[int, int], None] | None = None,
) -> InferenceReport:
    """Evaluates a model for each programming at each time after it.

    The result is that of the loop `program(model, p)`, `drift(model, t)`, reading all batches; it
    does not depend on the order of the times or on earlier calls. Two models of one architecture
    and one seed are compared under the same noise: `report - other`. Afterwards the model is
    programmed as the last programming at the last time; `unprogram` returns to its weights.

    Args:
        model: A model in eval() with layers of InferenceConfig.
        batches: Pairs (input, target) that can be gone through repeatedly, such as a list or a
            DataLoader without shuffling. Targets are on the device of the outputs.
        metric: "accuracy", the share of samples whose largest output is the target's class; or a
            function of outputs and targets that gives one number for each sample, whose mean is
            taken.
        times: Seconds since the end of programming, or texts such as "1 day".
        programmings: Number of programmings, which are numbered from 0, or their numbers.
        progress: Called after each evaluation with the number of evaluations so far and in all.

    Returns:
        The metric for each time and programming, with mean and deviation, table, plot and file.

    Raises:
        ValueError: If the model has no layer of InferenceConfig or is in training mode, if there
            are no samples, times or programmings, or if the metric gives no number per sample.
        ConfigError: For a time for which a noise model has no numbers, before anything changes.
        InputError: If a weight is not finite.
    """
    layers = held_layers(model)
    if model.training:
        raise ValueError("the model is in training mode, and would draw other noise; call eval()")
    if isinstance(metric, str) and metric != "accuracy":
        raise ValueError(f"metric = {metric!r}: write 'accuracy', or give a function")
    after = [seconds(time) for time in times]
    numbers = list(range(programmings)) if isinstance(programmings, int) else list(programmings)
    if not after or not numbers:
        raise ValueError("give at least one time and one programming")
    for time in after:
        for held, _ in layers:
            held.require_time(time)
    values = np.empty((len(after), len(numbers)))
    done = 0
    for column, number in enumerate(numbers):
        program(model, number)
        for row, time in enumerate(after):
            drift(model, time)
            values[row, column] = _measured(model, batches, metric)
            done += 1
            if progress is not None:
                progress(done, values.size)
    name = metric if isinstance(metric, str) else getattr(metric, "__name__", "metric")
    return InferenceReport(tuple(after), tuple(numbers), values, name)


def _measured(
    model: nn.Module,
    batches: Iterable[tuple[Any, Tensor]],
    metric: str | Callable[[Any, Tensor], Tensor],
) -> float:
    """Returns the mean of the metric over all samples."""
    total = 0.0
    samples = 0
    for x, wanted in batches:
        y = model(x)
        found = (y.argmax(-1) == wanted).float() if isinstance(metric, str) else metric(y, wanted)
        if not isinstance(found, torch.Tensor) or found.ndim == 0:
            raise ValueError(
                f"the metric gave {type(found).__name__} of no dimension; it must give a tensor "
                "with one number for each sample (a loss: reduction='none')"
            )
        total += found.double().sum().item()
        samples += found.numel()
    if samples == 0:
        raise ValueError(
            "batches gave no sample; give a list or a DataLoader, which can be gone through again"
        )
    return total / samples
