"""AnalogParameter: the entry in `model.parameters()` for weights stored in tiles."""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING, Any, SupportsIndex

import torch

from pulsora.nn.autograd.factored_gradient import AnalogGradient
from pulsora.nn.tiles.factor_pairs import Pair

if TYPE_CHECKING:
    from torch import Tensor
    from typing_extensions import Self

    from pulsora.nn.tiles.tile_array import TileArray

__all__ = ["AnalogParameter"]

_PASSES_KEPT = 8  # backward passes, for a parameter without an optimiser of pulsora.optim


class AnalogParameter(torch.nn.Parameter):
    """The entry in `model.parameters()` for weights that are stored in tiles.

    It has the shape, type and device of the weights, but no values: torch's operations on it raise
    a RuntimeError. Its `.grad` is an `AnalogGradient`, which an optimiser of `pulsora.optim` turns
    into pulses.

    Attributes:
        array: The tiles.
        is_trained: Whether an optimiser of `pulsora.optim` has the parameter. Until then, only the
            gradients of a few backward passes are kept.
    """

    array: TileArray
    is_trained: bool

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
        parameter.is_trained = False
        parameter.register_post_accumulate_grad_hook(_count_pass)  # type: ignore[no-untyped-call]
        parameter.requires_grad_(requires_grad)
        return parameter

    __torch_function__ = (
        torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # noqa: SLF001
    )

    def gradient(self, x: Tensor, d: Tensor, gate: Tensor | None = None) -> AnalogGradient:
        """Returns the gradient with the factors x [m, in_features] and d [m, out_features].

        `gate` [m, rank] is the gate of the read, if the read was gated.
        """
        pairs = (Pair.of(x.detach(), d.detach(), gate),)
        return AnalogGradient(
            pairs, self.shape, self.device, is_fixed=self.array.facts.reuses_reads
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
        raise RuntimeError(_message("an assignment to .data"))

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
        raise RuntimeError(_message(func.overloadpacket.__name__))

    def __deepcopy__(self, memo: dict[int, Any]) -> AnalogParameter:
        if id(self) not in memo:
            array = copy.deepcopy(self.array, memo)
            memo[id(self)] = AnalogParameter(array, self.requires_grad)
        copied: AnalogParameter = memo[id(self)]
        return copied

    def __reduce_ex__(self, _protocol: SupportsIndex) -> tuple[Any, ...]:
        return AnalogParameter, (self.array, self.requires_grad)

    def __repr__(self) -> str:  # type: ignore[override]
        return f"AnalogParameter(shape={list(self.shape)}, tiles={len(self.array)})"


def _message(operation: str) -> str:
    return (
        "the weights of an analog layer are in tiles, where operations of torch do not reach "
        f"({operation} was tried). Train them by an optimiser of pulsora.optim (AnalogSGD, or "
        "AnalogOptimizer around one of torch), write them by layer.set_weights(weight, bias), and "
        "average those of pulsora.convert_to_digital(model). DistributedDataParallel takes models "
        "that pulsora.distributed.prepare(model) has prepared; DataParallel and FSDP are not "
        "available for analog layers" + (_STATES if operation in _COPIES else "")
    )


_COPIES = {"_to_copy", "copy_", "zeros_like"}
"""What tools try that save, load or move a model parameter by parameter."""

_STATES = (
    ". Save model.state_dict() and optimizer.state_dict(), and load them by load_state_dict(): "
    "accelerate's functions for large models and torch.distributed.checkpoint.state_dict go from "
    "parameter to parameter"
)


def _count_pass(parameter: Tensor) -> None:
    """Counts backward passes, and drops gradients of a layer that no optimiser trains."""
    gradient = parameter.grad
    if not isinstance(gradient, AnalogGradient) or not isinstance(parameter, AnalogParameter):
        return
    gradient.passes += 1
    if parameter.is_trained or gradient.passes <= _PASSES_KEPT:
        return
    gradient.drop()
    if gradient.passes == _PASSES_KEPT + 1:
        warnings.warn(
            f"{gradient.passes} backward passes have gone through {parameter}, which no optimiser "
            "of pulsora.optim has taken up; their gradients are not kept. Make an AnalogSGD or "
            "AnalogOptimizer with all parameters of the model, or freeze the layer by "
            "layer.analog_weight.requires_grad_(False)",
            stacklevel=2,
        )
