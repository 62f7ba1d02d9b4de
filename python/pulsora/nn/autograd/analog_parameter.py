"""AnalogParameter: the entry in `model.parameters()` for weights stored in tiles."""

from __future__ import annotations

import copy
import warnings
import weakref
from typing import TYPE_CHECKING, Any, SupportsIndex

import torch

from pulsora.nn.autograd.factored_gradient import AnalogGradient
from pulsora.nn.tiles.checkpointing import is_checkpointed
from pulsora.nn.tiles.factor_pairs import Factors, Pair
from pulsora.nn.tiles.first_transfer import warn_of_early_save
from pulsora.nn.tiles.layer_names import described
from pulsora.nn.tiles.patches import Patches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor
    from typing_extensions import Self

    from pulsora.nn.tiles.tile_array import TileArray

__all__ = ["AnalogParameter", "analog_arrays"]

# Backward passes whose gradients are kept:
_PASSES_KEPT = 8  # for a parameter without an optimiser of pulsora.optim
_MOST_PASSES = 10_000  # for one with an optimiser that makes no step
_MANY_PASSES = 1_000  # before a warning
_MANY_BYTES = 1 << 30
_PASSES_BETWEEN_CHECKS = 100

_MOST_PATCHES = 1 << 27
"""Bytes of patches that a read of a convolution keeps until the step. Of more, and of all reads
after a backward pass whose step is still to come, it keeps the images, and the step takes the
patches again."""


class AnalogParameter(torch.nn.Parameter):
    """The entry in `model.parameters()` for weights that are stored in tiles.

    It has the shape, type and device of the weights, but no values: torch's operations on it raise
    a RuntimeError. Its `.grad` is an `AnalogGradient`, which an optimiser of `pulsora.optim` turns
    into pulses.

    Attributes:
        array: The tiles.
        optimizers: The optimisers of `pulsora.optim` that have the parameter.
        used_by: The optimiser whose step used up the gradient, since the last backward pass.
    """

    array: TileArray
    optimizers: weakref.WeakSet[torch.optim.Optimizer]
    used_by: weakref.ref[torch.optim.Optimizer] | None

    @staticmethod
    def __new__(cls: type[Self], array: TileArray, requires_grad: bool = True) -> Self:
        """Makes a tensor without memory, of the array's shape and device."""
        parameter: Self = torch.Tensor._make_wrapper_subclass(  # noqa: SLF001 - documented by torch
            cls,
            torch.Size(array.shape),
            dtype=torch.float32,
            device=array.device,
            requires_grad=True,
        )
        parameter.array = array
        parameter.optimizers = weakref.WeakSet()
        parameter.used_by = None
        parameter.register_post_accumulate_grad_hook(_count_pass)  # type: ignore[no-untyped-call]
        parameter.requires_grad_(requires_grad)
        return parameter

    __torch_function__ = (
        torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # noqa: SLF001
    )

    def keeps_images(self, patches: Patches) -> bool:
        """Whether images of a convolution are kept for the step, instead of their patches."""
        size = patches.numel()
        if self.array.process_group.gathers or 2 * patches.images.numel() > size:
            return False  # several processes send rows, which are patches
        if patches.images.is_cuda and torch.cuda.is_current_stream_capturing():
            return False  # a recorded step allocates no memory for patches
        if is_checkpointed():  # whose runs have to keep the same
            return True
        gradient = self.grad
        accumulates = isinstance(gradient, AnalogGradient) and bool(gradient.factors.pairs)
        is_trained = self.requires_grad and torch.is_grad_enabled()
        return is_trained and (accumulates or 4 * size > _MOST_PATCHES)

    def gradient(
        self, x: Tensor | Patches, d: Tensor, gate: Tensor | None = None
    ) -> AnalogGradient:
        """Returns the gradient with the factors x [m, in_features] and d [m, out_features].

        x may be images, whose patches are its rows. `gate` [m, rank] is the gate of the read, if
        the read was gated.
        """
        pair = Pair.of(x if isinstance(x, Patches) else x.detach(), d.detach(), gate)
        factors = Factors((pair,), is_fixed=self.array.facts.reuses_reads)
        return AnalogGradient(factors, self.shape, self.device)

    @property
    def is_trained(self) -> bool:
        """Whether an optimiser of `pulsora.optim` that exists has the parameter in a group."""
        return any(
            each is self
            for optimizer in self.optimizers
            for group in optimizer.param_groups
            for each in group["params"]
        )

    def move(self, device: torch.device) -> None:
        """Moves the tiles, and a gradient that is still to be used by a step.

        Raises:
            DeviceError: if tiles cannot be there; nothing has changed then.
        """
        gradient = self.grad
        moved = gradient.moved(device) if isinstance(gradient, AnalogGradient) else None
        self.array.move(device)
        self.grad = None
        torch.Tensor.data.__set__(self, AnalogParameter(self.array))  # type: ignore[attr-defined]
        self.grad = moved

    @property
    def data(self) -> Tensor:
        """Another AnalogParameter of the same tiles, without values too."""
        return self.detach()

    @data.setter
    def data(self, _value: Tensor) -> None:
        raise RuntimeError(_message("an assignment to .data", self))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override] # no class method in torch
        cls,
        func: Any,  # noqa: ANN401 - torch gives no type
        _types: object,
        args: tuple[Any, ...] = (),
        _kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        if func in {torch.ops.aten.detach.default, torch.ops.aten.alias.default}:
            return AnalogParameter(args[0].array, requires_grad=False)
        raise RuntimeError(_message(func.overloadpacket.__name__, _first_of(args)))

    def __deepcopy__(self, memo: dict[int, Any]) -> AnalogParameter:
        if id(self) not in memo:
            array = copy.deepcopy(self.array, memo)
            memo[id(self)] = AnalogParameter(array, self.requires_grad)
        copied: AnalogParameter = memo[id(self)]
        return copied

    def __reduce_ex__(self, _protocol: SupportsIndex) -> tuple[Any, ...]:
        warn_of_early_save(self.array, stacklevel=2)
        return AnalogParameter, (self.array, self.requires_grad)

    @property
    def described(self) -> str:
        """The name of the layer if it is known, its type and its sizes."""
        return described(self.array)

    def __repr__(self) -> str:  # type: ignore[override]
        return f"AnalogParameter(shape={list(self.shape)}, tiles={len(self.array)})"


def analog_arrays(model: torch.nn.Module) -> Iterator[tuple[str, TileArray]]:
    """Yields the names of a model's analog layers, and their tiles."""
    for name, each in model.named_parameters(remove_duplicate=False):
        if isinstance(each, AnalogParameter):
            yield name.removesuffix("analog_weight").rstrip("."), each.array


def _first_of(args: tuple[Any, ...]) -> AnalogParameter | None:
    """The first AnalogParameter among the arguments of an operation, and in lists of them."""
    flat = (each for arg in args for each in (arg if isinstance(arg, (list, tuple)) else (arg,)))
    return next((each for each in flat if isinstance(each, AnalogParameter)), None)


def _message(operation: str, parameter: AnalogParameter | None) -> str:
    layer = "an analog layer" if parameter is None else parameter.described
    return (
        f"the weights of {layer} are in tiles, where operations of torch do not reach "
        f"({operation} was tried). Train them by an optimiser of pulsora.optim (AnalogSGD, or "
        "AnalogOptimizer around one of torch), write them by layer.set_weights(weight, bias), and "
        "average those of pulsora.convert_to_digital(model). DistributedDataParallel takes models "
        "that pulsora.distributed.prepare(model) has prepared; DataParallel and FSDP are not "
        "available for analog layers. The Trainer of transformers takes DataParallel where it sees "
        "several GPUs: set CUDA_VISIBLE_DEVICES to one of them, or start it with torchrun"
        + (_STATES if operation in _COPIES else "")
    )


_COPIES = {"_to_copy", "copy_", "zeros_like"}
"""What tools try that save, load or move a model parameter by parameter."""

_STATES = (
    ". Save model.state_dict() and optimizer.state_dict(), and load them by load_state_dict(): "
    "accelerate's functions for large models and torch.distributed.checkpoint.state_dict go from "
    "parameter to parameter"
)


def _count_pass(parameter: Tensor) -> None:
    """Counts backward passes, and limits how many of them are kept without a step."""
    gradient = parameter.grad
    if not isinstance(gradient, AnalogGradient) or not isinstance(parameter, AnalogParameter):
        return
    parameter.used_by = None
    factors = gradient.factors
    factors.passes += 1
    passes = factors.passes
    is_first = passes == _PASSES_KEPT + 1
    if factors.pairs is None or not (is_first or passes % _PASSES_BETWEEN_CHECKS == 0):
        return
    if not parameter.is_trained:
        factors.drop(
            f"this gradient of an analog layer is of more than {_PASSES_KEPT} backward passes, "
            "which are not kept for a layer without an optimiser; call zero_grad(), and give the "
            "layer to an optimiser of pulsora.optim before the first backward pass"
        )
        warnings.warn(
            f"{passes} backward passes have gone through {parameter.described}, which no optimiser "
            "of pulsora.optim has taken up; their gradients are not kept. Make an AnalogSGD or "
            "AnalogOptimizer with all parameters of the model, or freeze the layer by "
            "layer.analog_weight.requires_grad_(False)",
            stacklevel=2,
        )
    elif passes >= _MOST_PASSES:
        factors.drop(
            f"this gradient of an analog layer is of {passes} backward passes or more without a "
            "step, which are not kept; call step() or zero_grad() of the optimiser more often"
        )
    elif not factors.has_warned and (passes >= _MANY_PASSES or factors.bytes >= _MANY_BYTES):
        factors.has_warned = True
        warnings.warn(
            f"{passes} backward passes have gone through {parameter.described} without a step of "
            f"its optimiser; all their factors are kept ({factors.bytes / 1e6:.0f} MB). Call "
            "step() or zero_grad() more often, or freeze the layer by "
            "layer.analog_weight.requires_grad_(False)",
            stacklevel=2,
        )
