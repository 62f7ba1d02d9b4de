"""Several points of programmed arrays in one pass of a model: each is a part of the batch."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch

from pulsora import _core
from pulsora.inference.programming import held_layers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor, nn

    from pulsora.nn.tiles.held_weights import HeldWeights

__all__ = [
    "called",
    "folded",
    "pieces",
    "program_points",
    "reads_slices",
    "size_of_a_pass",
    "why_one_by_one",
]

_BYTES_ON_CPU = 16 << 20  # of all outputs of a pass; larger arrays are new memory in every layer
_ROWS_ON_CPU = 512  # of a pass at most
_PROBED = 4  # samples of the probe
_MEET = (
    "{} does not treat the samples of a batch apart, so that the model is read one realisation at "
    "a time; call eval() of batch norms, or put the batch first"
)
_REFUSES = (
    "{} refuses batches of another size ({}), so that the model is read one realisation at a time; "
    "a model that takes batches of any size is evaluated faster"
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


def folded(x: Any, count: int) -> Any:  # noqa: ANN401 - any structure of tensors
    """Returns a batch `count` times one after another, along the first dimension of its tensors."""
    return _mapped(x, lambda tensor: tensor.repeat(count, *[1] * (tensor.ndim - 1)))


def called(model: nn.Module, x: Any) -> Any:  # noqa: ANN401 - what the model gives
    """Returns the model's output for a batch; names of a mapping are arguments."""
    return model(**x) if isinstance(x, dict) else model(x)


def why_one_by_one(model: nn.Module, x: Any) -> str | None:  # noqa: ANN401
    """Returns why points are read one by one, or None if the model can be folded.

    Two programmings of a few samples are read one by one and folded. A model that treats samples
    apart gives the same outputs, to rounding. Layers are named as in `named_modules`.
    """
    layers = held_layers(model)
    few = _rows(x, 0, _PROBED)
    apart = []
    for number in (0, 1):
        program_points(layers, [(number, 0.0)], 0)
        outputs, refused = _recorded(model, few)
        if refused is not None:
            return refused
        apart.append(outputs)
    program_points(layers, [(0, 0.0), (1, 0.0)], 0)
    together, refused = _recorded(model, folded(few, 2))
    if refused is not None:
        return refused
    last = (found[-1][1] for found in (together, *apart))  # the model's own outputs
    if len({len(found) for found in (together, *apart)}) == 1 and not _differs(*last):
        return None
    # Outputs of one call are compared in the order of the calls.
    first, second = apart
    for (name, both), (_, one), (_, other) in zip(together, first, second, strict=False):
        if _differs(both, one, other):
            return _MEET.format(name)
    return _MEET.format("the model")


def size_of_a_pass(
    model: nn.Module,
    x: Any,  # noqa: ANN401
    memory: float,
) -> tuple[int, int | None]:
    """Returns how many points and samples of a batch go into a pass; None stands for all samples.

    The points fit into this share of the free memory. On a CPU batches are cut, if that changes no
    output.
    """
    layers = held_layers(model)
    config: Any = layers[0][0].array.config
    numbers = 1 + (config.read_window > 0.0)
    if reads_slices(config):
        numbers *= -(-(config.weight_bits - 1) // config.slice_bits)
    weights = sum(4 * weight.numel() * numbers for _, weight in layers)
    rows = max((tensor.shape[0] for tensor in _tensors(x) if tensor.ndim), default=1)
    program_points(layers, [(0, 0.0)], 0)
    few, _ = _recorded(model, _rows(x, 0, _PROBED))
    outputs = 4 * sum(output.numel() for _, output in few) // max(min(rows, _PROBED), 1)
    if layers[0][1].device.type == "cuda":
        free = torch.cuda.mem_get_info(layers[0][1].device)[0]
        return max(1, int(memory * free / (weights + 2 * rows * outputs + 1))), None
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    most = min(_ROWS_ON_CPU, _BYTES_ON_CPU // (outputs + 1))
    samples = None
    if rows > most // 2 and _can_be_cut(model, x):
        rows = samples = max(1, most // 2)  # two points or more, which are programmed together
    count = min(int(memory * free / (weights + 2 * rows * outputs + 1)), most // max(rows, 1))
    return max(1, count), samples


def pieces(x: Any, wanted: Tensor, samples: int) -> list[tuple[Any, Tensor]]:  # noqa: ANN401
    """Cuts a batch and its targets into pieces of so many samples, if all tensors have as many."""
    sizes = {tensor.shape[:1] for tensor in (*_tensors(x), wanted)}
    if sizes != {wanted.shape[:1]} or not wanted.ndim:
        return [(x, wanted)]

    starts = range(0, len(wanted), samples)
    return [(_rows(x, i, i + samples), wanted[i : i + samples]) for i in starts]


def _can_be_cut(model: nn.Module, x: Any) -> bool:  # noqa: ANN401
    """Whether a batch in two pieces gives the outputs of the whole one, noise included.

    It does not where a layer is read several times for a sample, as in a recurrent network: reads
    are counted, and the count chooses their noise. Nor does it where a batch of one sample is
    refused, as by `squeeze()`.
    """
    layers = held_layers(model)
    program_points(layers, [(0, 0.0)], 0)
    if _recorded(model, _rows(x, 0, 1))[1] is not None:
        return False
    outputs = []
    for starts, size in (((0,), _PROBED), ((0, _PROBED // 2), _PROBED // 2)):
        program_points(layers, [(0, 0.0)], 0)
        found = [_tensors(called(model, _rows(x, i, i + size))) for i in starts]
        outputs.append([torch.cat(each) for each in zip(*found, strict=False)])
    whole, cut = outputs
    return len(whole) == len(cut) and all(map(torch.equal, whole, cut))


def _recorded(
    model: nn.Module,
    x: Any,  # noqa: ANN401
) -> tuple[list[tuple[str, Tensor]], str | None]:
    """Returns the outputs of all modules, and why the batch was refused, if it was.

    Raises:
        InputError: If inputs or weights are not finite.
    """
    outputs: list[tuple[str, Tensor]] = []
    running = ["the model"]

    def enter(name: str) -> Callable[..., None]:
        return lambda *_: running.append(name)

    def leave(name: str) -> Callable[..., None]:
        def hook(_module: nn.Module, _inputs: object, output: object) -> None:
            running.pop()
            outputs.extend((name, tensor.detach()) for tensor in _tensors(output)[:1])

        return hook

    hooks = []
    for name, module in model.named_modules():
        hooks.append(module.register_forward_pre_hook(enter(name or "the model")))
        hooks.append(module.register_forward_hook(leave(name or "the model")))
    try:
        outputs.extend(("the model", tensor) for tensor in _tensors(called(model, x))[:1])
    except _core.InputError:
        if held_layers(model)[0][0].points == 1:
            raise  # of the inputs or weights themselves
        return outputs, _MEET.format(running[-1])  # rows are not as many for each point
    except Exception as error:  # noqa: BLE001 - the model's own code
        text = str(error).partition("\n")[0][:200]
        return outputs, _REFUSES.format(running[-1], f"{type(error).__name__}: {text}")
    finally:
        for hook in hooks:
            hook.remove()
    return outputs, None


def _differs(both: Tensor, one: Tensor, other: Tensor) -> bool:
    """Whether an output of two folded points is not that of both."""
    if both.ndim == 0 or both.shape[0] != one.shape[0] + other.shape[0]:
        return True
    apart = torch.cat([one, other]).double()
    error = (both.double() - apart).norm()
    between = (one.double() - other.double()).norm()
    return bool(error > 0.02 * between + 1e-4 * apart.norm())


def _tensors(values: Any) -> list[Tensor]:  # noqa: ANN401
    """Returns the tensors of a structure, in order."""
    found: list[Tensor] = []
    _mapped(values, found.append)
    return found


def _rows(values: Any, start: int, stop: int) -> Any:  # noqa: ANN401
    """Returns a structure with some rows of each tensor."""
    return _mapped(values, lambda tensor: tensor[start:stop])


def _mapped(values: Any, change: Callable[[Tensor], Any]) -> Any:  # noqa: ANN401
    """Returns a structure with change(tensor) in place of each tensor."""
    if isinstance(values, torch.Tensor):
        return change(values)
    if isinstance(values, dict) or hasattr(values, "items"):
        given: Mapping[str, Any] = values
        return {name: _mapped(value, change) for name, value in given.items()}
    if isinstance(values, tuple | list):
        return type(values)([_mapped(value, change) for value in values])
    return values
