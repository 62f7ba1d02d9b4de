"""Places of the tensors of a digital model in the model that it was converted to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pulsora.convert.choice import COPY_OF
from pulsora.nn import AnalogConvNd, AnalogLinear, AnalogModule, AnalogRNNBase, GatedAdapter
from pulsora.nn.rule_linear import RuleLinear

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

__all__ = ["Place", "digital_places"]


@dataclass(eq=False)
class Place:
    """A tensor of the digital model, and what takes its values.

    Attributes:
        names: The names in the digital model; several of a tensor that is shared.
        shape: The shape in the digital model.
        layers: Layers whose tiles take the values; none for a parameter or buffer of torch.
        tensor: The parameter or buffer; None for tiles.
        is_bias: Whether the values are a bias in cells, which is written with the weight.
        is_transposed: Whether the digital weight is [in_features, out_features].
        is_needed: Whether a state of the digital model has the tensor.
        is_buffer: Whether it is a buffer.
        instead: Names of a table of which the layer has a copy, for files that hold it alone.
    """

    names: list[str]
    shape: tuple[int, ...]
    layers: list[AnalogModule] = field(default_factory=list)
    tensor: Tensor | None = None
    is_bias: bool = False
    is_transposed: bool = False
    is_needed: bool = True
    is_buffer: bool = False
    instead: list[str] = field(default_factory=list)


def digital_places(model: nn.Module) -> list[Place]:
    """Returns the tensors of the digital model in the order of the layers.

    Adapters, gates, and parameters that analog layers have beside weight and bias are not in a
    digital model.

    Raises:
        TypeError: for a layer whose rule in Python has the weights.
    """
    found: dict[object, Place] = {}
    copies: list[tuple[Place, nn.Module]] = []
    tables: dict[nn.Module, str] = {}
    for prefix, module in _digital_modules(model, "", set()):
        if isinstance(module, RuleLinear):
            raise TypeError(
                f"layer '{prefix}' is a RuleLinear, whose weights are not loaded from files; write "
                "them by set_weights(weight, bias)"
            )
        tables.setdefault(module, prefix)
        start = f"{prefix}." if prefix else ""
        for key, place in _own_places(module, start):
            known = found.setdefault(key, place)
            if known is not place:
                known.names += [name for name in place.names if name not in known.names]
                known.layers += [
                    layer
                    for layer in place.layers
                    if all(layer.tiles is not other.tiles for other in known.layers)
                ]
            tied = vars(module).get(COPY_OF, ()) if place.layers else ()
            copies += [(known, table) for table in tied]
    for place, table in copies:
        place.instead = [f"{tables[table]}.weight"] if table in tables else []
    return list(found.values())


def _digital_modules(
    module: nn.Module, prefix: str, above: set[nn.Module]
) -> Iterator[tuple[str, nn.Module]]:
    """Yields the modules of the digital model, with the names that they have there."""
    if isinstance(module, GatedAdapter):
        yield from _digital_modules(module.base, prefix, above)
        return
    yield prefix, module
    if isinstance(module, AnalogRNNBase | AnalogModule):
        return  # parts of a layer that is one in the digital model
    for name, child in module._modules.items():  # noqa: SLF001 - shared modules too
        if child is not None and child not in above:
            inside = f"{prefix}.{name}" if prefix else name
            yield from _digital_modules(child, inside, above | {module})


def _own_places(module: nn.Module, start: str) -> Iterator[tuple[object, Place]]:
    """Yields the tensors of a module itself, with keys that are equal for shared ones."""
    if isinstance(module, AnalogRNNBase):
        for part in module._parts:  # noqa: SLF001 - of this package
            layer = module.get_submodule(part)
            if isinstance(layer, AnalogModule):
                yield from _in_cells(layer, f"{start}weight_{part}", f"{start}bias_{part}")
    elif isinstance(module, AnalogModule):
        yield from _in_cells(module, f"{start}weight", f"{start}bias")
    digital = {
        name: tensor
        for name, tensor in module._parameters.items()  # noqa: SLF001
        if not isinstance(module, AnalogModule) or name == "bias"
    }
    for name, tensor in digital.items():
        if tensor is not None:
            yield tensor, Place([f"{start}{name}"], tuple(tensor.shape), tensor=tensor)
    for name, buffer in module._buffers.items():  # noqa: SLF001
        if buffer is not None:
            is_saved = name not in module._non_persistent_buffers_set  # noqa: SLF001
            place = Place([f"{start}{name}"], tuple(buffer.shape), tensor=buffer, is_buffer=True)
            place.is_needed = is_saved or buffer.is_meta
            yield buffer, place


def _in_cells(layer: AnalogModule, weight: str, bias: str) -> Iterator[tuple[object, Place]]:
    """Yields the tensors that are in the tiles of a layer."""
    rows, columns = layer.tiles.shape
    shape: tuple[int, ...] = (rows, columns - layer.analog_bias)
    is_transposed = isinstance(layer, AnalogLinear) and layer.digital_class is not None
    if isinstance(layer, AnalogConvNd):
        shape = (rows, layer.in_channels // layer.groups, *layer.kernel_size)
    place = Place([weight], shape[::-1] if is_transposed else shape, [layer])
    place.is_transposed = is_transposed
    yield layer.carrier, place
    if layer.analog_bias:
        yield (layer.carrier, "bias"), Place([bias], (rows,), [layer], is_bias=True)
