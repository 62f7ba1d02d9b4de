"""Read-only copies of weights, which refuse writes and products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
import torch
from torch.nn import functional
from torch.utils._pytree import tree_flatten, tree_map

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BaseWeight", "WeightCopy"]


class WeightCopy(torch.Tensor):
    """A copy of the weights of an analog layer, for reading.

    Writes to the copy would not reach the tiles, and products with it would lack their noise.
    Writing to it, and passing it to a layer function of torch (`linear`, fused encoders), are
    RuntimeErrors. `clone()` gives a plain tensor.
    """

    of_products = (
        "was given a copy of an analog layer's weights, so the tiles would not be read, noise and "
        "converters included; call the layer itself. A perfect product is x @ layer.weight.T"
    )
    of_writes = (
        "layer.weight of an analog layer is a copy; what is written to it does not reach the "
        "tiles. Fill a tensor of your own, as in w = "
        "torch.nn.init.xavier_uniform_(layer.weight.clone()), and call layer.set_weights(w, bias); "
        "freeze weights by layer.analog_weight.requires_grad_(False)"
    )

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        _types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        settings = kwargs or {}
        name = getattr(func, "__name__", "")
        if func in _PRODUCTS:
            raise RuntimeError(f"{name} {cls.of_products}")
        if (_is_write(name) and _copies((*args[:1], settings.get("tensor")))) or _copies(
            settings.get("out")
        ):
            raise RuntimeError(cls.of_writes)
        with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001
            result = func(*args, **settings)
            ours = {leaf.untyped_storage().data_ptr() for leaf in _copies((args, settings))}

            def marked(value: object) -> object:
                if isinstance(value, np.ndarray):
                    value.flags.writeable = False
                elif isinstance(value, torch.Tensor) and value.layout == torch.strided:
                    is_view = value.numel() > 0 and value.untyped_storage().data_ptr() in ours
                    return value.as_subclass(cls if is_view else torch.Tensor)
                return value

            return tree_map(marked, result)

    def __deepcopy__(self, _memo: object) -> torch.Tensor:
        return self.clone()

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:  # noqa: ANN401
        with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001
            return self.as_subclass(torch.Tensor).__reduce_ex__(  # type: ignore[no-untyped-call]
                protocol
            )


class BaseWeight(WeightCopy):
    """Read-only view of the base's weight in an adapted layer; products with it are errors too."""

    of_products = (
        "was given the weight of the base of an adapted layer, so the adapter would be left out; "
        "call the layer itself"
    )
    of_writes = (
        "layer.weight of an adapted layer is a view of its base's, for reading; write to "
        "layer.base.weight, or to the adapter by layer.set_factors(a, b)"
    )


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


def _copies(value: object) -> list[WeightCopy]:
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, WeightCopy)]


def _is_write(name: str) -> bool:
    if name.startswith("__"):
        return name in {"__set__", "__setitem__"} or name in _IN_PLACE
    return name.endswith("_")


_IN_PLACE = {f"__i{name}__" for name in (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift",
    "rshift", "matmul",
)}  # fmt: skip
