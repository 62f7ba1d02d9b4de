"""Adapters of a model as files that PEFT reads, and models with their adapters merged."""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from pulsora.convert.layers import digital
from pulsora.convert.model import convert_to_digital, replaced
from pulsora.nn import AnalogLinear, ConstantGate, GatedAdapter, MixtureGate, TaskGate
from pulsora.peft.attach import tied_layers
from pulsora.peft.files import LayerFactors, write_adapter
from pulsora.peft.report import AdapterReport, AdapterRow
from pulsora.peft.tiles import tile_factors

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from torch import Tensor

__all__ = ["merge_adapters", "save_adapter"]


def save_adapter(
    model: nn.Module,
    folder: str | os.PathLike[str],
    *,
    base: nn.Module | None = None,
    adapter: int | None = None,
    rank: int | None = None,
    base_model: str = "",
    task_type: str | None = None,
) -> AdapterReport:
    """Writes the adapters of a model as files that PEFT loads onto the model without adapters.

    A layer with one A and one B is written unchanged. If each tile of a layer has an adapter, or
    adapters have been transferred into the array, the file gets a truncated SVD of rank `rank`, the
    best approximation of alpha A B, or with `base` of W - W0 + alpha A B. The report says how much
    is lost.

    Args:
        model: A model with adapters, from `add_adapters` or `load_adapter`, or with
            `pulsora.nn.GatedAdapter` or LRTT layers of your own.
        folder: Folder of adapter_config.json and adapter_model.safetensors; it is made if missing.
        base: The model that the file will be loaded onto, with layers of the same names: the change
            of the arrays W from this model goes into the file. Needed after transfers.
        adapter: Number of an adapter of a pool; by default all, weighted by a constant or mixing
            gate.
        rank: The rank of approximations; by default the rank of the adapters in the tiles.
        base_model: Name of the base model for PEFT.
        task_type: PEFT's task type, such as 'CAUSAL_LM', with which PEFT chooses the wrapper of the
            model.

    Returns:
        For each layer, the rank, alpha, origin of the factors, and |A' B' - D| / |D| for the change
        D of its weight.

    Raises:
        ValueError: if the model has no adapters, a gate depends on the input, or transfers have
            been made and there is no `base`.
        OSError: if the folder cannot be written to.
    """
    layers: dict[str, LayerFactors] = {}
    rows = []
    for name, layer in _adapted(model):
        if not name:
            raise ValueError(
                f"model is a {type(layer).__name__} itself, but files of PEFT go by the names of "
                "layers in a model; put it into one, such as torch.nn.Sequential"
            )
        factors, how, error = _of_layer(name, layer, base, adapter, rank)
        layers[name] = factors
        inner = layer.base if isinstance(layer, GatedAdapter) else layer
        rows.append(
            AdapterRow(name, type(inner).__name__, len(factors.b), factors.alpha, how, error)
        )
    if not layers:
        raise ValueError("model has no adapters; add them by pulsora.peft.add_adapters")
    write_adapter(
        folder,
        layers,
        fan_in_fan_out=all(_is_transposed(layer) for _, layer in _adapted(model)),
        base_model=base_model,
        task_type=task_type,
    )
    return AdapterReport(rows)


def merge_adapters(model: nn.Module, *, adapter: int | None = None) -> nn.Module:
    """Returns a digital copy of a model with adapters merged into the weights, W + alpha A B.

    The copy has layers of torch (and the Conv1D of transformers) with the names of the model
    without adapters, so that its `state_dict()` fits that model. A weight that was tied to another
    layer (a head to the table of embeddings) becomes separate, with a warning, because the other
    layer has no adapter.

    Args:
        model: A model with adapters.
        adapter: Number of an adapter of a pool; by default all, weighted by a constant or mixing
            gate.

    Raises:
        ValueError: for gates that depend on the input.
    """
    copied = copy.deepcopy(model)
    made: dict[nn.Module, nn.Module] = {}
    tied = tied_layers(copied)
    for name, layer in copied.named_modules():
        if not isinstance(layer, GatedAdapter):
            continue
        if layer.in_tiles:
            tiles: Any = layer.base
            delta = _delta_of_tiles(tiles, _codes(name, layer, adapter))
            delta = delta + tiles.get_weights()[0].cpu() - _delta_of_tiles(tiles, None)
            plain, base = torch.zeros(()), digital(tiles)
        else:
            a, b, alpha = _own_factors(name, layer, adapter)
            base = digital(layer.base) if isinstance(layer.base, AnalogLinear) else layer.base
            plain, delta = _matrix(base), alpha * (a @ b).cpu()
        if base in tied:
            warnings.warn(
                f"the weight of '{name}' was that of another layer too; it is its own now, because "
                "the adapter is on this layer alone. Before a model of transformers is saved, set "
                "config.tie_word_embeddings = False",
                stacklevel=2,
            )
        weight: Any = base.weight
        whole = (plain + delta).T if type(base).__name__ == "Conv1D" else plain + delta
        base.weight = nn.Parameter(
            whole.to(weight.device, weight.dtype).contiguous(), weight.requires_grad
        )
        made[layer] = base.train(layer.training)
    return convert_to_digital(replaced(copied, made))


def _adapted(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yields the layers with adapters, with their names in the model without adapters."""
    inside: list[str] = []
    for name, layer in model.named_modules():
        if any(name.startswith(outer) for outer in inside):
            continue
        if isinstance(layer, GatedAdapter):
            inside.append(f"{name}." if name else "")
            yield name, layer
        elif isinstance(layer, AnalogLinear) and all(tile.adapter for tile in layer.tiles):
            yield name, layer


def _of_layer(
    name: str, layer: nn.Module, base: nn.Module | None, adapter: int | None, rank: int | None
) -> tuple[LayerFactors, str, float]:
    """Returns the factors for the file, their origin, and their error."""
    if isinstance(layer, GatedAdapter) and not layer.in_tiles:
        return LayerFactors(*_own_factors(name, layer, adapter)), "as they are", 0.0
    codes = _codes(name, layer, adapter) if isinstance(layer, GatedAdapter) else None
    tiles: Any = layer.base if isinstance(layer, GatedAdapter) else layer
    if not tiles.config.forward_inject:
        raise ValueError(
            f"layer '{name}' has forward_inject = False: its adapters have no part in what it "
            "computes"
        )
    transfers = sum(int(table["transfers"]) for table in tiles.statistics())
    if transfers and base is None:
        raise ValueError(
            f"layer '{name}' has had {transfers} transfers, so that its array holds a part of what "
            "was learned; pass base = the model that the file will be loaded onto"
        )
    if base is None and len(tiles.tiles) == 1 and rank is None:
        (tile,) = tiles.tiles
        a, b, alpha = tile_factors(tile)
        a = a if codes is None else a * codes
        a = a if tiles.tiles.scales is None else a * tiles.tiles.scales[:, None].cpu()
        return LayerFactors(a, b[:, : tiles.in_features], alpha), "as they are", 0.0
    change = _delta_of_tiles(tiles, codes)
    if base is not None:
        # W without adapters: `change` contains the gated adapters already.
        visible = tiles.get_weights()[0].cpu() - _delta_of_tiles(tiles, None)
        change = change + visible - _matrix(_layer_of(base, name))
    own = next(iter(tiles.tiles)).adapter.rank if rank is None else rank
    factors, error = _truncated(change, own)
    how = "SVD of " + ("W - W0 + alpha A B" if base is not None else f"{len(tiles.tiles)} tiles")
    return factors, how, error


def _truncated(change: Tensor, rank: int) -> tuple[LayerFactors, float]:
    """Returns the best factors of a rank, and their relative error."""
    if not 1 <= rank <= min(change.shape):
        raise ValueError(
            f"rank = {rank}: a matrix of shape {list(change.shape)} has ranks from 1 to "
            f"{min(change.shape)}"
        )
    u, s, v = torch.linalg.svd(change.double(), full_matrices=False)
    roots = s[:rank].sqrt()
    a, b = (u[:, :rank] * roots).float(), (roots[:, None] * v[:rank]).float()
    whole = float(s.norm())
    return LayerFactors(a, b, 1.0), float(s[rank:].norm()) / whole if whole > 0.0 else 0.0


def _own_factors(
    name: str, layer: GatedAdapter, adapter: int | None
) -> tuple[Tensor, Tensor, float]:
    """Returns A with its gate, B, and alpha."""
    a, b = (factor.float().cpu() for factor in layer.factors())
    codes = _codes(name, layer, adapter)
    if codes is None:
        return a, b, layer.alpha
    is_used = codes != 0.0
    if adapter is not None and bool(is_used.any()):
        return a[:, is_used] * codes[is_used], b[is_used], layer.alpha
    return a * codes, b, layer.alpha


def _codes(name: str, layer: GatedAdapter, adapter: int | None) -> Tensor | None:
    """Returns the weights of the components in a file or a merged weight; None for 1."""
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


def _delta_of_tiles(tiles: Any, codes: Tensor | None) -> Tensor:  # noqa: ANN401 - an AnalogLinear
    """Returns alpha A B of all tiles [out_features, in_features], in units of the outputs."""
    delta = torch.zeros(tiles.out_features, tiles.tiles.shape[1], device="cpu")
    for row, col, tile in tiles.tiles.parts():
        a, b, alpha = tile_factors(tile)
        delta[row, col] = alpha * (a if codes is None else a * codes) @ b
    if tiles.tiles.scales is not None:
        delta = delta * tiles.tiles.scales[:, None].cpu()
    return delta[:, : tiles.in_features]


def _layer_of(base: nn.Module, name: str) -> nn.Module:
    try:
        return base.get_submodule(name)
    except AttributeError:
        raise ValueError(f"base has no layer '{name}'; give the model without adapters") from None


def _matrix(layer: Any) -> Tensor:  # noqa: ANN401 - a fully connected layer
    """Returns the weight [out_features, in_features] of a layer, in host memory."""
    weight = layer.get_weights()[0] if isinstance(layer, AnalogLinear) else layer.weight
    matrix: Tensor = weight.detach().float().cpu()
    return matrix.T if type(layer).__name__ == "Conv1D" else matrix


def _is_transposed(layer: Any) -> bool:  # noqa: ANN401
    """Whether the layer of torch is a Conv1D of transformers."""
    inner = layer.base if isinstance(layer, GatedAdapter) else layer
    kind = getattr(inner, "digital_class", None) or type(inner)
    return bool(kind.__name__ == "Conv1D")
