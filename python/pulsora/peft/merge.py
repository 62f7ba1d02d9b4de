"""Models with their adapters merged into the weights."""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from pulsora.convert.copies import copied
from pulsora.convert.hooks import in_place_of, separate_hooks
from pulsora.convert.layers import digital
from pulsora.convert.model import convert_to_digital, replaced
from pulsora.convert.outputs import perfect_reads
from pulsora.nn import AnalogLinear, GatedAdapter
from pulsora.peft.attach import tied_layers
from pulsora.peft.changes import adapted, gate_codes, matrix, own_factors, tile_weights
from pulsora.peft.outputs import gated_by, random_rows, require_equal_outputs

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["merge_adapters"]


def merge_adapters(model: nn.Module, *, adapter: int | None = None) -> nn.Module:
    """Returns a digital copy of a model with adapters merged into the weights, W + alpha A B.

    The copy has layers of torch (and the Conv1D of transformers) with the names of the model
    without adapters, so that its `state_dict()` fits that model. Hooks on forward and backward
    passes stay. A weight that was tied to another layer (a head to the table of embeddings) becomes
    separate, with a warning, because the other layer has no adapter.

    Each merged layer is compared with the adapted one on a few random rows, hooks of its base
    included.

    Args:
        model: A model with adapters. It is not changed.
        adapter: Number of an adapter of a pool; by default all, weighted by a constant or mixing
            gate.

    Raises:
        ValueError: for gates that depend on the input, and for layers whose outputs would change:
            bases that compute something else than x W^T + bias, or have hooks that change outputs.
    """
    whole = copied(model)
    tied = tied_layers(whole)
    made: dict[nn.Module, nn.Module] = {}
    for name, layer in adapted(whole):
        if not isinstance(layer, GatedAdapter):
            continue  # convert_to_digital takes the adapters in its tiles along
        if layer.base in tied:
            warnings.warn(
                f"the weight of '{name}' was that of another layer too; it is its own now, because "
                "the adapter is on this layer alone. Before a model of transformers is saved, set "
                "config.tie_word_embeddings = False",
                stacklevel=2,
            )
        made[layer] = _merged(name, layer, adapter)
    return convert_to_digital(replaced(whole, made))


@torch.no_grad()
def _merged(name: str, layer: GatedAdapter, adapter: int | None) -> nn.Module:
    """Returns the layer of torch that takes the place of an adapted layer."""
    codes = gate_codes(name, layer, adapter)
    bias: Tensor | None = None
    if layer.in_tiles:
        tiles: Any = layer.base
        ones = torch.ones(layer.components, device="cpu")
        weight, bias = tile_weights(tiles, ones if codes is None else codes)
        size = float(weight.norm())
    else:
        _require_weight(name, layer.base)
        a, b, alpha = own_factors(name, layer, adapter)
        plain, delta = matrix(layer.base), alpha * (a @ b)
        weight, size = plain + delta, float(plain.norm() + delta.norm())
    base = _twin(layer.base)
    own: Any = base.weight
    weight = weight.T if type(base).__name__ == "Conv1D" else weight
    base.weight = nn.Parameter(weight.to(own.device, own.dtype).contiguous(), own.requires_grad)
    if bias is not None:
        base.bias.copy_(bias)
    x = random_rows(layer)
    with (
        perfect_reads(layer),
        perfect_reads(base),
        gated_by(layer, codes if adapter is not None else None),
    ):
        require_equal_outputs(
            name, layer.forward, base, x, size,
            "merge_adapters takes bases that compute x W^T + bias, without hooks that change "
            f"outputs. The base is a {type(layer.base).__name__}; convert_to_digital leaves the "
            "adapter beside it",
        )  # fmt: skip
    return in_place_of(layer, base)


def _require_weight(name: str, base: nn.Module) -> None:
    """Raises ValueError if there is no weight that can be replaced by another."""
    weight = base._parameters.get("weight")  # noqa: SLF001 - of any module
    if isinstance(base, AnalogLinear) or (weight is not None and weight.is_floating_point()):
        return
    kind = "is computed" if weight is None else f"has type {weight.dtype}"
    raise ValueError(
        f"layer '{name}': the weight of its base, a {type(base).__name__}, {kind} (a "
        "parametrization or a quantised layer), so alpha A B cannot be added to it; merge_adapters "
        "takes bases with a weight of floating-point numbers"
    )


def _twin(base: nn.Module) -> Any:  # noqa: ANN401 - with a weight
    """Returns a layer of torch like the base, hooks included, whose weight can be replaced."""
    if isinstance(base, AnalogLinear):
        return in_place_of(base, digital(base))
    twin = copy.copy(base)  # another adapter may have the same base
    twin._parameters = dict(base._parameters)  # noqa: SLF001 - has no other way
    separate_hooks(twin)
    return twin
