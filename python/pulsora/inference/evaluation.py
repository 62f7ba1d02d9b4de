"""The evaluation of a model over programmings and times."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from pulsora import _core
from pulsora._internal.batches import of_samples, pair_of, require_pairs
from pulsora._internal.checks import is_whole, require_share
from pulsora._internal.progress import Shown
from pulsora._internal.times import listed, seconds
from pulsora.inference.folding import called, program_points, size_of_a_pass, why_one_by_one
from pulsora.inference.programming import (
    drifting_parts,
    measured_number,
    program_others,
    require_age,
    same_point_on_error,
    set_age,
)
from pulsora.inference.report import InferenceReport
from pulsora.inference.structures import folded, parts, pieces, row_count
from pulsora.nn.age_gate import age_gates, select_ages
from pulsora.nn.base import AnalogModule
from pulsora.nn.tiles.held_weights import HeldWeights
from pulsora.nn.tiles.layer_names import described

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor, nn

__all__ = ["evaluate"]

YEAR = ("1 s", "1 h", "1 day", "1 month", "1 year")
"""Times of an evaluation by default."""


_OF_THE_CALLER = 4  # frames from a warning to the caller of evaluate(), behind torch's no_grad
_MOST_CHIPS = 2**32
_MOST_PROGRAMMINGS = 2**47


@torch.no_grad()
def evaluate(
    model: nn.Module,
    batches: Iterable[tuple[Any, Tensor]],
    *,
    metric: Literal["accuracy"] | Callable[[Any, Tensor], Tensor] = "accuracy",
    times: Sequence[float | str] = YEAR,
    programmings: int | Sequence[int] = 5,
    chips: int = 1,
    memory: float = 0.5,
    prepare: Callable[[nn.Module], object] | None = None,
    progress: bool | Callable[[int, int], None] = False,
) -> InferenceReport:
    """Evaluates a model for each programming at each time after it.

    The result is that of the loop `program(model, p)`, `drift(model, t)`, reading all batches; it
    does not depend on the order of the times or on earlier calls. Two models of one architecture
    and one seed are compared under the same noise: `report - other`. Afterwards the model is
    programmed as the last programming at the last time; `unprogram` returns to its weights. After
    an error, layers are programmed as they were before.

    Many programmings and times ride in one pass: a batch of m samples is read as R m samples, of
    which each layer reads every m with other realised weights. The model must treat the samples of
    a batch apart, take batches of any size, and give outputs with the samples first, which a small
    batch is tried for. A model that does not is read one realisation at a time, and a warning says
    why. Large batches are read in pieces on a CPU, where that changes neither outputs nor metric.

    Measured conductances (`load_conductances`) are one programming, which stays: programmings=1.

    Pulsed arrays with a `retention=` are read at each time after their last pulse, with the number
    of the programming as that of the reading (`redraw`). A model may have such arrays alone. Models
    with pulsed arrays are read one realisation at a time.

    Args:
        model: A model in eval() with layers of InferenceConfig, or arrays with a retention.
        batches: Pairs (input, target) that can be gone through repeatedly, such as a list or a
            DataLoader without shuffling. Targets are on the device of the outputs. An input that
            is a dict gives the names of the model's arguments.
        metric: "accuracy", the share of samples whose largest output (or `logits`) is the target's
            class; or a function of outputs and targets that gives one number for each sample, or as
            many for each one after another (such as one for each token), whose mean is taken.
        times: Seconds since the end of programming, or texts such as "1 day".
        programmings: Number of programmings of a chip, which are numbered from 0, or their numbers.
        chips: Number of chips, each with stuck devices, spreads of its converters and programming
            errors of its own.
        memory: Share of the free memory for the realised weights and the outputs of a pass.
        prepare: Called with the model at each programming and time before its reads, such as
            `lambda m: pulsora.inference.fit_affine(m, batches)` or `adapt_batch_norm`; realisations
            are then read one at a time. What it changes besides the arrays stays changed.
        progress: Whether a line on stderr shows how far the evaluation is; or a function that is
            called with the number of evaluations so far and in all.

    Returns:
        The metric for each time, chip and programming, with mean and deviation, table, plot and
        file.

    Raises:
        TypeError: Unless batches are pairs that can be gone through again and again; for outputs
            that are no tensor and have no `logits`, with the metric "accuracy".
        ValueError: If the model has no layer of InferenceConfig and no array with a retention, or
            is in training mode, for a bad setting, if there are no samples, times or programmings,
            if there are several chips without a programmed layer, or if the targets have another
            shape than the classes, or the metric gives no number per sample, complex numbers, or
            NaN.
        ConfigError: For a time for which a noise model has no numbers, before anything changes.
        InputError: If a weight is not finite.
    """
    layers, arrays = drifting_parts(model)
    _require(model, metric, chips, memory, prepare)
    require_pairs(batches)
    if chips > 1 and not layers:
        raise ValueError(f"chips = {chips}, but no layer is programmed; leave it at 1")
    after = [seconds(time) for time in listed("times", times)]
    numbers = _of_measured(layers, _numbers(programmings), chips)
    if not after or not numbers:
        raise ValueError(
            f"times = {times!r}, programmings = {programmings!r}: give at least one time and one "
            "programming"
        )
    for held, _ in layers:
        held.require_time(max(after))
    for time in after:
        require_age(arrays, time)
    apart = prepare is not None or bool(arrays) or _reads_pulsed_arrays(model)
    gates = age_gates(model)
    shown = Shown(progress, chips * len(numbers) * len(after), "evaluations")
    values = np.empty((len(after), chips * len(numbers)))
    with same_point_on_error(layers, arrays, gates) as before:
        count, samples = (1, None) if apart else _pass_size(model, batches, metric, memory)
        before.restore_measured()
        for chip in range(chips):
            points = [(number, time) for number in numbers for time in after]
            found: list[float] = []
            for start in range(0, len(points), count):
                group = points[start : start + count]
                program_points(layers, group, chip)
                set_age(arrays, group[-1][1], group[-1][0])
                if prepare is not None:
                    select_ages(gates, [group[0][1]], 1)
                    prepare(model)
                found += _measured(model, batches, metric, [time for _, time in group], samples)
                if chip == start == 0:
                    _warn_of_unread(layers)
                _require_numbers(found[start:], group, chip)
                shown.add(len(group))
            columns = slice(chip * len(numbers), (chip + 1) * len(numbers))
            values[:, columns] = np.array(found).reshape(len(numbers), len(after)).T
    if layers:
        program_others(layers, numbers[-1], chips - 1)
        HeldWeights.drift(layers, after[-1], 0)
    select_ages(gates, after[-1:], 1)
    name = metric if isinstance(metric, str) else getattr(metric, "__name__", "metric")
    of_chips = tuple(chip for chip in range(chips) for _ in numbers)
    return InferenceReport(tuple(after), tuple(numbers * chips), values, name, of_chips)


def _require(
    model: nn.Module, metric: object, chips: object, memory: object, prepare: object
) -> None:
    """Raises ValueError for a model and settings that cannot be evaluated."""
    if model.training:
        raise ValueError("the model is in training mode, and would draw other noise; call eval()")
    if metric != "accuracy" and not callable(metric):
        raise ValueError(f"metric = {metric!r}: write 'accuracy', or give a function")
    if prepare is not None and not callable(prepare):
        raise ValueError(f"prepare = {prepare!r}: give a function of the model, or None")
    if not is_whole(chips) or not 1 <= chips <= _MOST_CHIPS:
        raise ValueError(f"chips = {chips!r}: give at least one chip, as a whole number")
    require_share("memory", memory)


def _reads_pulsed_arrays(model: nn.Module) -> bool:
    """Whether reads of arrays that pulses train have noise, which the number of a row chooses."""
    configs: list[Any] = [
        layer.config
        for layer in model.modules()
        if isinstance(layer, AnalogModule) and not isinstance(layer.held, HeldWeights)
    ]
    return not all(config.forward.is_perfect for config in configs)


def _numbers(programmings: object) -> list[int]:
    """Returns the numbers of the programmings."""
    if is_whole(programmings) and programmings >= 0:
        return list(range(programmings))
    if isinstance(programmings, torch.Tensor | np.ndarray):
        return _numbers(programmings.tolist())
    if isinstance(programmings, str) or not isinstance(programmings, Iterable):
        raise ValueError(  # noqa: TRY004 - as for other numbers
            f"programmings = {programmings!r}: give a whole number, or a list of numbers"
        )
    numbers = list(programmings)
    for number in numbers:
        if not is_whole(number) or not 0 <= number < _MOST_PROGRAMMINGS:
            raise _core.ConfigError(
                f"programmings has {number!r}: give whole numbers from 0 to 2^47 - 1"
            )
    return [int(number) for number in numbers]


def _of_measured(
    layers: list[tuple[HeldWeights, nn.Parameter]], numbers: list[int], chips: int
) -> list[int]:
    """Returns the numbers of the programmings, of which measured conductances are one.

    Raises:
        ValueError: If there are others besides measured ones.
    """
    measured = measured_number(layers)
    if measured is None:
        return numbers
    if chips > 1 or numbers not in ([0], [measured]):
        raise ValueError(
            f"conductances were measured (load_conductances), as programming {measured} of one "
            "chip; write programmings=1 and chips=1, or simulate others after "
            "pulsora.inference.unprogram(model)"
        )
    return [measured]


def _pass_size(
    model: nn.Module,
    batches: Iterable[tuple[Any, Tensor]],
    metric: str | Callable[[Any, Tensor], Tensor],
    memory: float,
) -> tuple[int, int | None]:
    """Returns the numbers of points and of samples of a pass, None for all of a batch.

    Models in which samples meet have one point and all samples.
    """
    first = next(iter(batches), None)
    if first is None:
        raise ValueError(
            "batches gave no sample; give a list or a DataLoader, which can be gone through again"
        )
    pair = pair_of(first)
    reason = why_one_by_one(model, pair[0])
    if reason is None:
        return size_of_a_pass(model, pair, metric, memory)
    warnings.warn(reason, stacklevel=_OF_THE_CALLER)
    return 1, None


def _measured(
    model: nn.Module,
    batches: Iterable[tuple[Any, Tensor]],
    metric: str | Callable[[Any, Tensor], Tensor],
    times: list[float],
    samples: int | None,
) -> list[float]:
    """Returns the mean of the metric over all samples, at each of the points of a pass."""
    count = len(times)
    gates = age_gates(model)
    totals: Tensor | None = None
    seen = 0
    for batch in batches:
        pair = pair_of(batch)
        for x, wanted in [pair] if samples is None else pieces(*pair, samples):
            select_ages(gates, times, row_count(x))
            cut = parts(called(model, folded(x, count)), count)
            found = [of_samples(metric, part, wanted) for part in cut]
            sums = torch.stack([each.double().sum() for each in found])
            totals = sums if totals is None else totals + sums
            seen += found[0].numel()
    if totals is None or seen == 0:
        raise ValueError(
            "batches gave no sample; give a list or a DataLoader, which can be gone through again"
        )
    return [total / seen for total in totals.tolist()]


def _warn_of_unread(layers: list[tuple[HeldWeights, nn.Parameter]]) -> None:
    """Warns of programmed layers that no batch has read."""
    unread = [
        described(held.array)
        for held, _ in layers
        if not any(tile.evaluated for tile in held.array)
    ]
    if unread:
        warnings.warn(
            f"the model did not read {', '.join(unread)}, so that noise and drift there have no "
            "effect; look whether it takes their weights without calling them",
            stacklevel=_OF_THE_CALLER,
        )


def _require_numbers(found: list[float], points: list[tuple[int, float]], chip: int) -> None:
    """Raises ValueError if a mean of the metric is NaN."""
    for value, (number, time) in zip(found, points, strict=True):
        if math.isnan(value):
            raise ValueError(
                f"the metric gave nan for programming {number} of chip {chip} at {time:g} s; leave "
                "out samples for which it has no value, or look at the outputs after "
                f"pulsora.program(model, {number}, chip={chip}) and "
                f"pulsora.drift(model, {time:g})"
            )
