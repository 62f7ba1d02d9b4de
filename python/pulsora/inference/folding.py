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
    "first_mixing_layer",
    "folded",
    "points_of_a_pass",
    "program_points",
    "reads_slices",
]

_ROWS_ON_CPU = 512  # of a folded batch; larger arrays would be new memory in every layer
_PROBED = 4  # samples of the probe


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


def first_mixing_layer(model: nn.Module, x: Any) -> str | None:  # noqa: ANN401
    """Returns the layer in which samples of a batch meet, or None if the model can be folded.

    Two programmings of a few samples are read one by one and folded. A model that treats samples
    apart gives the same outputs, to rounding. The layer is named as in `named_modules`.
    """
    layers = held_layers(model)
    few = _mapped(x, lambda tensor: tensor[:_PROBED])
    apart = []
    for number in (0, 1):
        program_points(layers, [(number, 0.0)], 0)
        apart.append(_recorded(model, few)[0])
    program_points(layers, [(0, 0.0), (1, 0.0)], 0)
    together, refused = _recorded(model, folded(few, 2))
    if refused is not None:
        return refused
    # Outputs of one call are compared in the order of the calls; the last one is the model's.
    differing = [
        name
        for (name, both), (_, one), (_, other) in zip(together, *apart, strict=False)
        if _differs(both, one, other)
    ]
    last = (found[-1][1] for found in (together, *apart))
    if len({len(found) for found in (together, *apart)}) == 1 and not _differs(*last):
        return None
    return differing[0] if differing else "the model"


def points_of_a_pass(model: nn.Module, x: Any, memory: float) -> int:  # noqa: ANN401
    """Returns how many points fit into a pass over a batch, with this share of the free memory."""
    layers = held_layers(model)
    device = layers[0][1].device
    config: Any = layers[0][0].array.config
    numbers = 1 + (config.read_window > 0.0)
    if reads_slices(config):
        numbers *= -(-(config.weight_bits - 1) // config.slice_bits)
    weights = sum(4 * weight.numel() * numbers for _, weight in layers)
    few, _ = _recorded(model, _mapped(x, lambda tensor: tensor[:1]))
    outputs = 8 * sum(output.numel() for _, output in few)
    rows = max((tensor.shape[0] for tensor in _tensors(x) if tensor.ndim), default=1)
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
    else:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    count = int(memory * free / (weights + rows * outputs + 1))
    if device.type == "cpu":
        count = min(count, _ROWS_ON_CPU // max(rows, 1))
    return max(1, count)


def _recorded(
    model: nn.Module,
    x: Any,  # noqa: ANN401
) -> tuple[list[tuple[str, Tensor]], str | None]:
    """Returns the outputs of all modules, and the name of one that refused its input, if any."""
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
        return outputs, running[-1]
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
