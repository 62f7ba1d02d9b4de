"""Read-only copies of weights: differentiable, but no place to write to and no layer to call."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, ClassVar, SupportsIndex
from weakref import WeakSet

import numpy as np
import torch
from torch._compile import _disable_dynamo
from torch.nn import functional
from torch.utils._pytree import tree_flatten, tree_map

from pulsora.nn.autograd.differentiation import differentiable_once, require_no_transform

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from pulsora.nn.autograd.analog_parameter import AnalogParameter
    from pulsora.nn.tiles.tile_array import TileArray

__all__ = ["BaseWeight", "WeightCopy", "base_weight", "weight_copy"]


def base_weight(weight: Tensor) -> BaseWeight:
    """Returns a read-only view of the weight of an adapted layer's base."""
    with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001
        return weight.as_subclass(BaseWeight)


def weight_copy(parameter: AnalogParameter, scaling: Tensor | None, columns: int) -> WeightCopy:
    """Returns the weights [out_features, columns] that a perfect read would see.

    The copy is differentiable in the weights in the tiles and in `scaling`, the factors on outputs.
    """
    require_no_transform(parameter.array)
    copied: Tensor = _read(parameter, columns)
    if scaling is not None:
        copied = copied * scaling.float()[:, None]
    made = copied.as_subclass(WeightCopy)
    made.array = parameter.array
    return made


class _PerfectRead(torch.autograd.Function):
    """The weights in tiles. Backward gives them each column of the gradient as one sample.

    The samples are (x, d) with x = 1 in the sample's own column, in each group.
    """

    @staticmethod
    def forward(ctx: Any, parameter: AnalogParameter, columns: int) -> Tensor:  # noqa: ANN401
        ctx.parameter = parameter
        return parameter.array.get_weights()[:, :columns].contiguous()

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        parameter: AnalogParameter = ctx.parameter
        array = parameter.array
        if array.facts.reuses_reads:
            raise RuntimeError(
                "a loss contains the weight of an analog layer whose tiles reuse reads for their "
                "update (projection = 'reuse'), but this gradient was not read from tiles; choose "
                "projection = 'analog' or 'exact', or leave the term out by layer.weight.detach()"
            )
        d = array.process_group.summed(array, gradient.float().T.contiguous())
        x = torch.eye(len(d), array.shape[1], device=d.device).repeat(1, array.groups)
        return parameter.gradient(x, d), None


def _read(parameter: AnalogParameter, columns: int) -> Tensor:
    apply: Any = _PerfectRead.apply
    if torch.compiler.is_compiling():
        apply = torch.compiler.disable(apply)  # type: ignore[no-untyped-call]
    read: Tensor = apply(parameter, columns)
    return read


class WeightCopy(torch.Tensor):
    """A copy of the weights of an analog layer, for reading and for terms of a loss.

    The copy is differentiable: a penalty on it reaches the tiles. Writes to the copy would not
    reach the tiles, and layer functions of torch (`linear`, fused encoders) would lack their noise,
    so that both are RuntimeErrors. Its product with a tensor that has a gradient is made without
    the noise, with one warning for each layer. `clone()` gives a plain tensor.
    """

    array: TileArray | None = None
    """The tiles that were copied; None after `detach()`, which asks for a perfect read."""

    part: str = ""
    """Torch's name of the matrix in a recurrent layer, without "weight_"."""

    @property
    def of_products(self) -> str:
        """The end of the error about a product."""
        return (
            "was given a copy of an analog layer's weights, so the tiles would not be read, noise "
            "and converters included; call the layer itself, or keep the layer digital: "
            "convert_to_analog(model, config, exclude=[its name]). A perfect product is x @ "
            f"{self._name()}.T"
        )

    @property
    def of_writes(self) -> str:
        """The error about a write."""
        name, owner, call = self._name(), "layer", "layer.set_weights(w, bias)"
        if self.part:
            owner = f"layer.{self.part}"
            call = f"layer.set_weights(layer.get_weights() | {{'weight_{self.part}': w}})"
        return (
            f"{name} of an analog layer is a copy; what is written to it does not reach the tiles. "
            f"Fill a tensor of your own, as in w = torch.nn.init.xavier_uniform_({name}.clone()), "
            f"and call {call}; freeze weights by {owner}.analog_weight.requires_grad_(False)"
        )

    def _name(self) -> str:
        return f"layer.weight_{self.part}" if self.part else "layer.weight"

    _conversions: ClassVar[frozenset[str]] = frozenset()  # whose results are copies of this kind

    @classmethod
    @_disable_dynamo  # imports the compiler only when called
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        _types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        settings = kwargs or {}
        name = getattr(func, "__name__", "").partition(".")[0]
        if func in _PRODUCTS:
            raise RuntimeError(f"{name} {_copies((args, settings))[0].of_products}")
        if (_is_write(name) and _copies((*args[:1], settings.get("tensor")))) or _copies(
            settings.get("out")
        ):
            raise RuntimeError(_copies((args, settings))[0].of_writes)
        ours = _copies((args, settings))
        with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001
            if name in _MATRIX_PRODUCTS:
                cls._check_product(name, ours, (args, settings))
            if name in _VALUES:
                args = tree_map(_plain, args)
            result = func(*args, **settings)
            storages = {leaf.untyped_storage().data_ptr() for leaf in ours}

            def marked(value: object) -> object:
                if isinstance(value, np.ndarray):
                    value.flags.writeable = False
                elif isinstance(value, torch.Tensor) and value.layout == torch.strided:
                    is_view = value.numel() > 0 and value.untyped_storage().data_ptr() in storages
                    if not is_view and name not in cls._conversions:
                        return value.as_subclass(torch.Tensor)
                    view = value.as_subclass(cls)
                    view.array = None if name == "detach" else ours[0].array
                    view.part = ours[0].part
                    return view
                return value

            return tree_map(marked, result)

    @classmethod
    def _check_product(cls, name: str, copies: list[WeightCopy], arguments: object) -> None:
        """Warns, once for each layer, of a product with a tensor that has a gradient."""
        array = copies[0].array
        if array is None or array in _warned or not torch.is_grad_enabled():
            return
        if any(factor.requires_grad for factor in _others(arguments)):
            _warned.add(array)
            warnings.warn(
                f"{name} multiplies by a copy of an analog layer's weights: a perfect read, "
                "without the noise and the converters of the tiles, although gradients reach them. "
                "Call the layer to read them, or keep it digital (exclude of convert_to_analog). "
                "If a perfect read is meant, multiply by layer.get_weights()[0] or "
                "layer.weight.detach(), without a gradient of the tiles, or ignore this warning",
                stacklevel=5,  # past the wrappers of _disable_dynamo
            )

    def __deepcopy__(self, _memo: object) -> torch.Tensor:
        return self.detach().clone()

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:  # noqa: ANN401
        with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001
            plain: Any = _plain(self)
            return plain.__reduce_ex__(protocol)


class BaseWeight(WeightCopy):
    """Read-only view of the base's weight in an adapted layer; products with it are errors too."""

    of_products = (
        "was given the weight of the base of an adapted layer, so the adapter would be left out; "
        "call the layer itself, or add no adapter to it: add_adapters(model, exclude=[its name])"
    )
    of_writes = (
        "layer.weight of an adapted layer is a view of its base's, for reading; write to "
        "layer.base.weight, or to the adapter by layer.set_factors(a, b)"
    )
    _conversions = frozenset(
        ("bfloat16", "contiguous", "cpu", "cuda", "double", "float", "half", "to", "type_as")
    )

    @classmethod
    def _check_product(cls, name: str, copies: list[WeightCopy], arguments: object) -> None:
        """Raises RuntimeError for a product with another tensor."""
        del copies
        if _others(arguments):
            raise RuntimeError(f"{name} {cls.of_products}")


_warned: WeakSet[TileArray] = WeakSet()
_PRODUCTS = {
    functional.linear,
    functional.bilinear,
    functional.conv1d,
    functional.conv2d,
    functional.conv3d,
    functional.embedding,
    functional.multi_head_attention_forward,
}
# The fused paths of torch's own layers, whose names are private and may go.
_PRIVATE = ("_transformer_encoder_layer_fwd", "_native_multi_head_attention")
_PRODUCTS |= {getattr(torch, name) for name in _PRIVATE if hasattr(torch, name)}
_MATRIX_PRODUCTS = {
    *("matmul", "__matmul__", "__rmatmul__", "linalg_matmul", "mm", "bmm", "mv", "dot", "vdot"),
    *("addmm", "addmv", "addbmm", "baddbmm", "einsum", "tensordot", "inner", "linalg_vecdot"),
    *("chain_matmul", "linalg_multi_dot"),
}
# Operations that leave torch, for which torch asks that a tensor has no gradient.
_VALUES = {"numpy", "__array__", "__dlpack__", "tolist", "__format__"}
_VALUES |= {"__float__", "__int__", "__bool__", "__complex__", "__index__"}


def _copies(value: object) -> list[WeightCopy]:
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, WeightCopy)]


def _others(value: object) -> list[torch.Tensor]:
    """The tensors among arguments that are no copies of weights."""
    leaves = tree_flatten(value)[0]
    return [
        leaf
        for leaf in leaves
        if isinstance(leaf, torch.Tensor) and not isinstance(leaf, WeightCopy)
    ]


def _plain(value: object) -> object:
    if isinstance(value, WeightCopy):
        return value.detach().as_subclass(torch.Tensor)
    return value


def _is_write(name: str) -> bool:
    if name.startswith("__"):
        return name in {"__set__", "__setitem__"} or name in _IN_PLACE
    return name.endswith("_")


_IN_PLACE = {f"__i{name}__" for name in (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift",
    "rshift", "matmul",
)}  # fmt: skip
