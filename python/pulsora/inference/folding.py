"""Several points of programmed arrays in one pass of a model: each is a part of the batch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from pulsora import _core
from pulsora._internal.batches import of_samples
from pulsora.inference.programming import held_layers
from pulsora.inference.structures import folded, row_count, rows, tensors, whole_entry
from pulsora.nn.age_gate import age_gates, select_ages

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    from pulsora.nn.tiles.held_weights import HeldWeights

__all__ = ["called", "program_points", "reads_slices", "size_of_a_pass", "why_one_by_one"]

_BYTES_ON_CPU = 16 << 20  # of all outputs of a pass; larger arrays are new memory in every layer
_ROWS_ON_CPU = 512  # of a pass at most
_PROBED = 4  # samples of the probe
_SLOWLY = "so that the model is read one realisation at a time; "
_MEET = (
    "{} does not treat the samples of a batch apart, "
    + _SLOWLY
    + "call eval() of batch norms, or put the batch first"
)
_REFUSES = (
    "{} refuses batches of another size ({}), "
    + _SLOWLY
    + "a model that takes batches of any size is evaluated faster"
)
_WHOLE = (
    "{} in the model's output does not have the samples of a batch in its first dimension, "
    + _SLOWLY
    + "leave it out of the output, if the metric does not need it"
)


def reads_slices(config: Any) -> bool:  # noqa: ANN401 - InferenceConfig
    """Whether a programmed array is read slice by slice, each by converters of its own."""
    return bool(config.cell == "slices" and config.slice_converters == "apart")


def program_points(
    layers: list[tuple[HeldWeights, nn.Parameter]], points: list[tuple[int, float]], chip: int
) -> None:
    """Programs all layers as at these points: numbers of programmings and times."""
    for held, weight in layers:
        held.program_many(weight, points, chip)


def called(model: nn.Module, x: Any) -> Any:  # noqa: ANN401 - what the model gives
    """Returns the model's output for a batch; names of a mapping are arguments."""
    return model(**x) if isinstance(x, Mapping) else model(x)


def why_one_by_one(model: nn.Module, x: Any) -> str | None:  # noqa: ANN401
    """Returns why points are read one by one, or None if the model can be folded.

    Two programmings of a few samples are read one by one and folded. A model that treats samples
    apart gives the same outputs, to rounding. Layers are named as in `named_modules`.

    Raises:
        Exception: The model's own, if it takes neither a few samples nor the whole batch.
    """
    layers, gates = held_layers(model), age_gates(model)
    few = rows(x, 0, _PROBED)
    select_ages(gates, [0.0], 1)
    apart = []
    for number in (0, 1):
        program_points(layers, [(number, 0.0)], 0)
        apart.append(_read(model, few))
        if apart[-1].refused is not None:
            called(model, folded(x, 1))  # whose error is the model's own
            return apart[-1].refused
    program_points(layers, [(0, 0.0), (1, 0.0)], 0)
    select_ages(gates, [0.0, 0.0], row_count(few))
    together = _read(model, folded(few, 2))
    return together.refused or _why_not_folded(together, apart[0], apart[1], row_count(few))


def _why_not_folded(
    together: _Reading, first: _Reading, second: _Reading, count: int
) -> str | None:
    """Returns how a batch of two points differs from those of both, of `count` samples, or None."""
    if whole := whole_entry(first.output):
        return _WHOLE.format(whole)
    outputs = [tensors(found.output) for found in (together, first, second)]
    if len({len(found) for found in outputs}) != 1:
        return _MEET.format("the model")
    groups = list(zip(*outputs, strict=True))
    for both, one, other in groups:
        if not _are_rows(both, one, other):
            return _WHOLE.format(f"a tensor of shape {list(one.shape)} for {count} samples")
    if not any(_differs(*group) for group in groups):
        return None
    # Outputs of one call are compared in the order of the calls.
    of_modules = zip(together.modules, first.modules, second.modules, strict=False)
    for (name, both), (_, one), (_, other) in of_modules:
        is_same = both.shape == one.shape and torch.equal(both, one)  # of no sample, as positions
        if not is_same and _differs(both, one, other):
            return _MEET.format(name)
    return _MEET.format("the model")


def size_of_a_pass(
    model: nn.Module,
    pair: tuple[Any, Any],
    metric: str | Callable[[Any, Tensor], Tensor],
    memory: float,
) -> tuple[int, int | None]:
    """Returns how many points and samples of a batch go into a pass; None stands for all samples.

    The points fit into this share of the free memory. On a CPU batches are cut, if that changes no
    output and no number of the metric.
    """
    x, _ = pair
    layers = held_layers(model)
    config: Any = layers[0][0].array.config
    numbers = 1 + (config.read_window > 0.0)
    if reads_slices(config):
        numbers *= -(-(config.weight_bits - 1) // config.slice_bits)
    weights = sum(4 * weight.numel() * numbers for _, weight in layers)
    count = row_count(x)
    select_ages(age_gates(model), [0.0], 1)
    program_points(layers, [(0, 0.0)], 0)
    found = _read(model, rows(x, 0, _PROBED))
    few = [output for _, output in found.modules] + tensors(found.output)
    outputs = 4 * sum(output.numel() for output in few) // max(min(count, _PROBED), 1)
    if layers[0][1].device.type == "cuda":
        free = torch.cuda.mem_get_info(layers[0][1].device)[0]
        return max(1, int(memory * free / (weights + 2 * count * outputs + 1))), None
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    most = min(_ROWS_ON_CPU, _BYTES_ON_CPU // (outputs + 1))
    samples = None
    if count > most // 2 and _can_be_cut(model, pair, metric):
        count = samples = max(1, most // 2)  # two points or more, which are programmed together
    points = min(int(memory * free / (weights + 2 * count * outputs + 1)), most // max(count, 1))
    return max(1, points), samples


def _can_be_cut(
    model: nn.Module, pair: tuple[Any, Any], metric: str | Callable[[Any, Tensor], Tensor]
) -> bool:
    """Whether a batch in two pieces has the outputs and numbers of the whole one, noise included.

    It has not where a layer is read several times for a sample, as in a recurrent network: reads
    are counted, and the count chooses their noise. Nor has it where a batch of one sample is
    refused, as by `squeeze()`, or where the metric compares samples.
    """
    x, wanted = pair
    layers = held_layers(model)
    program_points(layers, [(0, 0.0)], 0)
    if _read(model, rows(x, 0, 1)).refused is not None:
        return False
    found = []
    for starts, size in (((0,), _PROBED), ((0, _PROBED // 2), _PROBED // 2)):
        program_points(layers, [(0, 0.0)], 0)
        found.append([(called(model, rows(x, i, i + size)), wanted[i : i + size]) for i in starts])
    if not _are_equal(*([tensors(y) for y, _ in each] for each in found)):
        return False
    if isinstance(metric, str):
        return True
    try:
        return _are_equal(*([[of_samples(metric, *one)] for one in each] for each in found))
    except Exception:  # noqa: BLE001 - the metric's own code, which may want all samples
        return False


def _are_equal(whole: list[list[Tensor]], cut: list[list[Tensor]]) -> bool:
    """Whether the tensors of pieces, one after another, are those of the whole batch."""
    if len({len(each) for each in (*whole, *cut)}) != 1:
        return False
    joined = [[torch.cat(each) for each in zip(*found, strict=True)] for found in (whole, cut)]
    return all(map(torch.equal, *joined))


class _Reading(NamedTuple):
    """Outputs of a model and of its modules for a batch."""

    modules: list[tuple[str, Tensor]]  # name and first tensor of the output of each module
    output: Any
    refused: str | None  # why it gave nothing


def _read(model: nn.Module, x: Any) -> _Reading:  # noqa: ANN401
    """Reads a batch, and notes the outputs of all modules.

    Raises:
        InputError: If inputs or weights are not finite.
    """
    modules: list[tuple[str, Tensor]] = []
    running = ["the model"]

    def enter(name: str) -> Callable[..., None]:
        return lambda *_: running.append(name)

    def leave(name: str) -> Callable[..., None]:
        def hook(_module: nn.Module, _inputs: object, output: object) -> None:
            running.pop()
            modules.extend((name, tensor.detach()) for tensor in tensors(output)[:1])

        return hook

    hooks = []
    for name, module in model.named_modules():
        hooks.append(module.register_forward_pre_hook(enter(name or "the model")))
        hooks.append(module.register_forward_hook(leave(name or "the model")))
    try:
        return _Reading(modules, called(model, x), None)
    except _core.InputError:
        if held_layers(model)[0][0].points == 1:
            raise  # of the inputs or weights themselves
        return _Reading(modules, None, _MEET.format(running[-1]))  # other rows for each point
    except Exception as error:  # noqa: BLE001 - the model's own code
        text = str(error).partition("\n")[0][:200]
        reason = _REFUSES.format(running[-1], f"{type(error).__name__}: {text}")
        return _Reading(modules, None, reason)
    finally:
        for hook in hooks:
            hook.remove()


def _are_rows(both: Tensor, one: Tensor, other: Tensor) -> bool:
    """Whether an output of two folded points has as many rows as both together."""
    shapes = {each.shape[1:] for each in (both, one, other)}
    return len(shapes) == 1 and len(both) == len(one) + len(other)


def _differs(both: Tensor, one: Tensor, other: Tensor) -> bool:
    """Whether an output of two folded points is not that of both."""
    if both.ndim == 0 or not _are_rows(both, one, other):
        return True
    apart = torch.cat([one, other]).double()
    error = (both.double() - apart).norm()
    between = (one.double() - other.double()).norm()
    return bool(error > 0.02 * between + 1e-4 * apart.norm())
