"""Adapters on an array that drifts: trained again on the chip, and banks of them by age."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pulsora._internal.batches import of_samples, pair_of, require_pairs
from pulsora._internal.checks import is_whole
from pulsora._internal.text_tables import aligned
from pulsora._internal.times import described, listed, seconds
from pulsora.convert.arrays import arrays_of
from pulsora.inference.folding import called
from pulsora.inference.programming import (
    drifting_parts,
    measured_number,
    program_others,
    require_age,
    set_age,
)
from pulsora.nn.age_gate import age_gates, select_ages
from pulsora.nn.gated_adapter import GatedAdapter
from pulsora.nn.tiles.held_weights import HeldWeights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from torch import Tensor, nn

__all__ = ["Readaptation", "readapt", "select_age"]

_PASSES = 3  # over A and B in a step: forward, gradients of A and B, gradient of the input


@dataclass(frozen=True)
class Readaptation:
    """A training of adapters on a drifting chip, one entry for each time.

    Attributes:
        times: Seconds since the end of programming.
        before: The metric before the training at each time.
        after: The metric after it.
        steps: Steps of the optimiser at each time.
        samples: Samples of training at each time.
        multiplications: Digital multiplications by adapters in tensors, at each time.
        pulses: Pulses on adapters in arrays, at each time.
    """

    times: tuple[float, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]
    steps: tuple[int, ...]
    samples: tuple[int, ...]
    multiplications: tuple[int, ...]
    pulses: tuple[int, ...]

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [
            ("time", "before", "after", "steps", "samples", "multiplications", "pulses")
        ]
        for row in zip(
            self.times, self.before, self.after, self.steps, self.samples, self.multiplications,
            self.pulses, strict=True,
        ):  # fmt: skip
            time, before, after, *counts = row
            rows.append((described(time), f"{before:.4f}", f"{after:.4f}", *map(str, counts)))
        return aligned(rows)


def select_age(model: nn.Module, time: float | str) -> None:
    """Lets each `AgeGate` of a model select the adapter whose age is nearest to a time.

    Args:
        model: A model with adapters whose gates are `pulsora.nn.AgeGate`.
        time: Seconds since the end of programming, or a text such as "1 day".

    Raises:
        ValueError: If the model has no such gate.
        ConfigError: For a bad time.
    """
    gates = age_gates(model)
    if not gates:
        raise ValueError(
            "the model has no AgeGate; add adapters with adapters=len(ages) and a function "
            "gate=lambda name, layer: pulsora.nn.AgeGate(ages)"
        )
    select_ages(gates, [seconds(time)], 1)


def readapt(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Callable[[Any, Tensor], Tensor],
    batches: Iterable[tuple[Any, Tensor]],
    times: Sequence[float | str],
    *,
    steps: int = 150,
    test: Iterable[tuple[Any, Tensor]] | None = None,
    metric: Callable[[Any, Tensor], Tensor] | None = None,
    programming: int = 0,
    chip: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Readaptation:
    """Trains adapters on one chip at each time, going on from the adapters of the time before.

    The base is programmed once, drifts to each time, and is never written: its weights must be
    frozen. Conductances that were measured (`load_conductances`) stay, as their own programming.
    Gates by age (`pulsora.nn.AgeGate`) select the adapter of each time, so that a bank is trained
    adapter by adapter. Pulsed arrays with a `retention=` age by the time that passes
    between the times, each from its last pulse on; a model may have such arrays alone, such as
    those of LRTTConfig. Afterwards the model is in eval() at the last time; after an error in the
    loss or the metric, it is at the time and has the adapters it had reached.

    Args:
        model: A model of `pulsora.peft.add_adapters` with `base_config=InferenceConfig(...)`, or
            one whose pulsed arrays have a retention.
        optimizer: An optimiser of the adapters, of torch or of `pulsora.optim`.
        loss: The loss of outputs and targets.
        batches: Pairs (input, target) of training; they are gone through again and again.
        times: Seconds since the end of programming, or texts such as "1 day", ascending.
        steps: Steps at each time.
        test: Pairs for the metric; by default `batches`.
        metric: A function of outputs and targets that gives one number for each sample; by default
            whether the largest output is the target's class.
        programming: Number of the programming.
        chip: Number of the chip.
        progress: Called after each step with the number of steps so far and in all.

    Raises:
        TypeError: For a loss, metric or optimizer that is none, for batches that are no pairs, and
            unless what the metric is taken of can be gone through again and again.
        ValueError: If there are no times or steps, if times descend, if the model has no layer of
            InferenceConfig and no array with a retention, if a layer of InferenceConfig has a
            weight that is not frozen, or if the metric gives no real number per sample.
        ConfigError: For a time for which a noise model has no numbers; nothing has changed then.
    """
    after = [seconds(time) for time in listed("times", times)]
    if not after or not is_whole(steps) or steps < 1:
        raise ValueError(
            f"times = {times!r}, steps = {steps!r}: give one of each at least, steps as a whole "
            "number"
        )
    if sorted(after) != after:
        raise ValueError(f"times = {times!r}: a chip grows older; give ascending times")
    _require_functions(optimizer, loss, metric)
    layers, arrays = drifting_parts(model)
    require_pairs(batches if test is None else test)
    for held, weight in layers:
        _require_frozen(held, weight)
        for time in after:
            held.require_time(time)
    require_age(arrays, after[-1])
    account = _Account(model)
    endless = _endless(batches)
    if layers:
        measured_number(layers)
        program_others(layers, programming, chip)
    rows: list[tuple[Any, ...]] = []
    for number, time in enumerate(after):
        HeldWeights.drift(layers, time, 0)
        set_age(arrays, time - (0.0, *after)[number], from_now=True)
        if age_gates(model):
            select_age(model, time)
        before = _mean(model, batches if test is None else test, metric)
        account.start()
        model.train()
        with account:
            for step in range(steps):
                x, wanted = next(endless)
                optimizer.zero_grad()
                loss(called(model, x), wanted).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                account.samples += len(wanted)
                if progress is not None:
                    progress(number * steps + step + 1, len(after) * steps)
        found = _mean(model, batches if test is None else test, metric)
        rows.append((time, before, found, steps, *account.counts()))
    return Readaptation(*zip(*rows, strict=True))


def _require_functions(optimizer: object, loss: object, metric: object) -> None:
    """Raises TypeError unless a training can call these."""
    if isinstance(optimizer, type):
        raise TypeError(
            f"optimizer is the class {optimizer.__name__}; give an optimiser, such as "
            f"{optimizer.__name__}(model.parameters(), lr=0.01)"
        )
    if not callable(getattr(optimizer, "step", None)):
        raise TypeError(
            f"optimizer is of type {type(optimizer).__name__}; give one of torch or pulsora.optim"
        )
    if not callable(loss):
        raise TypeError(f"loss = {loss!r}: give a function of outputs and targets")
    if metric is not None and not callable(metric):
        raise TypeError(f"metric = {metric!r}: give a function of outputs and targets, or None")


def _require_frozen(held: HeldWeights, weight: nn.Parameter) -> None:
    if weight.requires_grad:
        raise ValueError(
            f"the weight of layer {held.array.name or held.array.layer_type} would be trained, "
            "and the chip holds what was programmed; freeze it by requires_grad_(False)"
        )


def _endless(batches: Iterable[tuple[Any, Tensor]]) -> Iterator[tuple[Any, Tensor]]:
    for _ in itertools.count():
        any_batch = False
        for batch in batches:
            any_batch = True
            yield pair_of(batch)
        if not any_batch:
            raise ValueError(
                "batches gave no sample; give a list or a DataLoader, which can be gone through "
                "again"
            )


@torch.no_grad()
def _mean(
    model: nn.Module,
    batches: Iterable[tuple[Any, Tensor]],
    metric: Callable[[Any, Tensor], Tensor] | None,
) -> float:
    """Returns the mean of a metric over all samples, in eval()."""
    model.eval()
    total, samples = 0.0, 0
    for x, wanted in map(pair_of, batches):
        y = called(model, x)
        found = of_samples(metric, y, wanted)
        total += float(found.double().sum())
        samples += found.numel()
    if samples == 0:
        raise ValueError("batches gave no sample; give a list, which can be gone through again")
    return total / samples


class _Account:
    """Counts what a training costs: samples, digital multiplications, pulses."""

    def __init__(self, model: nn.Module) -> None:
        self._adapters = [each for each in model.modules() if isinstance(each, GatedAdapter)]
        self._arrays = arrays_of(model)
        self.start()

    def start(self) -> None:
        """Begins to count anew."""
        self.samples = 0
        self._multiplications = 0
        self._pulses = self._all_pulses()

    def counts(self) -> tuple[int, int, int]:
        """Returns samples, multiplications and pulses since the start."""
        return self.samples, self._multiplications, self._all_pulses() - self._pulses

    def _all_pulses(self) -> int:
        return sum(int(tile.statistics()["pulses"]) for array in self._arrays for tile in array)

    def __enter__(self) -> None:
        def count(adapter: nn.Module, inputs: tuple[Tensor, ...], _: object) -> None:
            if isinstance(adapter, GatedAdapter) and "a" in adapter._parameters:  # noqa: SLF001
                rows = inputs[0].numel() // adapter.in_features
                each = adapter.components * (adapter.in_features + adapter.out_features)
                self._multiplications += _PASSES * rows * each

        self._hooks = [each.register_forward_hook(count) for each in self._adapters]

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()
