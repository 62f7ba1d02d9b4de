"""Changes of a layer's weights by its adapter: factors with their gates, and sums of tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pulsora.nn import AnalogLinear, ConstantGate, GatedAdapter, MixtureGate, TaskGate
from pulsora.nn.tiles.tile_factors import tile_factors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

    from pulsora.nn import AnalogModule

__all__ = [
    "NO_ADAPTERS",
    "adapted",
    "change_of_tiles",
    "gate_codes",
    "matrix",
    "own_factors",
    "tile_weights",
]

NO_ADAPTERS = torch.zeros(1, device="cpu")
"""Gates that leave adapters out."""


def adapted(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yields the layers with adapters, with their names in the model without adapters.

    Raises:
        ValueError: if the base of an adapter has another adapter.
    """
    inside: list[str] = []
    for name, layer in model.named_modules():
        if any(name.startswith(outer) for outer in inside):
            continue
        if isinstance(layer, GatedAdapter):
            if any(isinstance(part, GatedAdapter) for part in layer.base.modules()):
                raise ValueError(
                    f"layer '{name}' has an adapter in the base of its adapter, which no file and "
                    "no merged weight has; make a pool of both (adapters = 2)"
                )
            inside.append(f"{name}." if name else "")
            yield name, layer
        elif isinstance(layer, AnalogLinear) and all(tile.adapter for tile in layer.tiles):
            yield name, layer


def own_factors(
    name: str, layer: GatedAdapter, adapter: int | None
) -> tuple[Tensor, Tensor, float]:
    """Returns A with its gate, B, and alpha."""
    a, b = (factor.float().cpu() for factor in layer.factors())
    codes = gate_codes(name, layer, adapter)
    if codes is None:
        return a, b, layer.alpha
    is_used = codes != 0.0
    if adapter is not None and bool(is_used.any()):
        return a[:, is_used] * codes[is_used], b[is_used], layer.alpha
    return a * codes, b, layer.alpha


def gate_codes(name: str, layer: nn.Module, adapter: int | None) -> Tensor | None:
    """Returns the weights of the components in a file or a merged weight; None for 1."""
    if not isinstance(layer, GatedAdapter):
        return None
    if adapter is not None:
        if not 0 <= adapter < layer.adapters:
            raise ValueError(
                f"adapter = {adapter}: the pool of layer '{name}' has adapters 0 to "
                f"{layer.adapters - 1}"
            )
        chosen = torch.zeros(layer.components, device="cpu")
        chosen[adapter * layer.rank : (adapter + 1) * layer.rank] = 1.0
        return chosen
    gate = layer.gate
    if gate is None:
        return None
    if not isinstance(gate, ConstantGate | MixtureGate):
        remedy = "; choose one by adapter = its number" * isinstance(gate, TaskGate)
        raise ValueError(  # noqa: TRY004 - it may be any gate
            f"layer '{name}' has a {type(gate).__name__}, whose weights are not the same for every "
            f"input{remedy}"
        )
    codes = layer.codes(torch.zeros(1))
    return None if codes is None else codes.detach().float().cpu().expand(layer.components)


def change_of_tiles(tiles: AnalogModule, codes: Tensor | None = None) -> Tensor:
    """Returns alpha A B of all tiles, in units of the outputs; the last column may be the bias."""
    delta = torch.zeros(tiles.tiles.shape, device="cpu")
    if not getattr(tiles.config, "forward_inject", False):
        return delta
    for row, col, tile in tiles.tiles.parts():
        a, b, alpha = tile_factors(tile)
        delta[row, col] = alpha * (a if codes is None else a * codes) @ b
    for scale in (tiles.tiles.scales, tiles.out_scaling):
        delta = delta if scale is None else delta * scale.detach().float().cpu()[:, None]
    return delta


def tile_weights(tiles: AnalogModule, codes: Tensor) -> tuple[Tensor, Tensor | None]:
    """Returns weights and bias of a layer whose tiles have adapters with these gates, in float32.

    The numbers are what perfect reads give, in host memory; zeros as gates leave the adapters out.
    """
    weight, bias = tiles.get_weights()
    rest = change_of_tiles(tiles, codes) - change_of_tiles(tiles)
    weight = weight.float().cpu()
    bias = None if bias is None else bias.float().cpu()
    columns = weight.shape[1]
    if tiles.analog_bias and bias is not None:
        bias = bias + rest[:, columns]
    return weight + rest[:, :columns], bias


def matrix(layer: Any) -> Tensor:  # noqa: ANN401 - a fully connected layer
    """Returns the weight [out_features, in_features] of a layer, in host memory."""
    weight = layer.get_weights()[0] if isinstance(layer, AnalogLinear) else layer.weight
    own: Tensor = weight.detach().float().cpu()
    return own.T if type(layer).__name__ == "Conv1D" else own
