"""Adapters of a model as files that PEFT reads."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch

from pulsora.convert.outputs import perfect_reads
from pulsora.nn import GatedAdapter
from pulsora.nn.tiles.tile_factors import tile_factors
from pulsora.peft.beside import collect, without_twin
from pulsora.peft.changes import (
    NO_ADAPTERS,
    adapted,
    change_of_tiles,
    gate_codes,
    matrix,
    own_factors,
    tile_weights,
)
from pulsora.peft.files import LayerFactors, write_adapter
from pulsora.peft.outputs import (
    gated_by,
    hooks_change,
    random_rows,
    require_change,
)
from pulsora.peft.report import AdapterReport, AdapterRow

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from torch import Tensor, nn

__all__ = ["save_adapter"]


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

    Parameters that are trained beside the adapters (with requires_grad, such as a head or biases)
    go into the file as PEFT's modules_to_save and bias. Outputs of each adapted layer are compared
    on a few random rows with the outputs that the file stands for, perfectly read, before anything
    is written. Files that were there are replaced together.

    Args:
        model: A model with adapters, from `add_adapters` or `load_adapter`, or with
            `pulsora.nn.GatedAdapter` or LRTT layers of your own.
        folder: Folder of adapter_config.json and adapter_model.safetensors; it is made if missing.
        base: The model that the file will be loaded onto, with layers of the same names: the change
            of the arrays W from this model goes into the file, and all other parameters and buffers
            that differ from its own. Needed after transfers, and for a learned out_scaling.
        adapter: Number of an adapter of a pool; by default all, weighted by a constant or mixing
            gate.
        rank: The rank of approximations; by default the rank of the adapters in the tiles.
        base_model: Name of the base model for PEFT.
        task_type: PEFT's task type, such as 'CAUSAL_LM', with which PEFT chooses the wrapper of the
            model.

    Returns:
        For each layer, the rank, alpha, origin of the factors, and |A' B' - D| / |D| for the change
        D of its weight; and the names of what was trained beside the adapters.

    Raises:
        ValueError: if the model has no adapters, a gate depends on the input, transfers have been
            made or an out_scaling was learned and there is no `base`, or a layer computes something
            else than its base plus alpha A B.
        OSError: if the folder cannot be written to.
    """
    layers: dict[str, LayerFactors] = {}
    rows = []
    for name, layer in adapted(model):
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
    beside = collect(model, base, adapter)
    missing = [*without_twin(model), *_changing_hooks(model, adapter)]
    if missing:
        warnings.warn(
            f"files of PEFT have no place for {', '.join(missing)}; whoever loads the file needs "
            "them too",
            stacklevel=2,
        )
    write_adapter(
        folder,
        layers,
        beside,
        fan_in_fan_out=all(_is_transposed(layer) for _, layer in adapted(model)),
        base_model=base_model,
        task_type=task_type,
    )
    report = AdapterReport(rows)
    report.beside, report.missing = tuple(beside.tensors), tuple(missing)
    return report


@torch.no_grad()
def _changing_hooks(model: nn.Module, adapter: int | None) -> Iterator[str]:
    """Yields what adapted layers have beside their computation: hooks that change outputs."""
    for name, layer in adapted(model):
        codes = None if adapter is None else gate_codes(name, layer, adapter)
        with perfect_reads(layer), gated_by(layer, codes):
            if hooks_change(layer, random_rows(layer)):
                yield f"hooks of '{name}' that change outputs"


def _of_layer(
    name: str, layer: nn.Module, base: nn.Module | None, adapter: int | None, rank: int | None
) -> tuple[LayerFactors, str, float]:
    """Returns the factors for the file, their origin, and their error."""
    codes = gate_codes(name, layer, adapter)
    if isinstance(layer, GatedAdapter) and not layer.in_tiles:
        factors = LayerFactors(*own_factors(name, layer, adapter))
        require_change(name, layer, factors, codes, is_gated=adapter is None)
        return factors, "as they are", 0.0
    tiles: Any = layer.base if isinstance(layer, GatedAdapter) else layer
    _require_known_base(name, tiles, base)
    change = change_of_tiles(tiles, codes)[:, : tiles.in_features]
    if base is None and len(tiles.tiles) == 1 and rank is None:
        (tile,) = tiles.tiles
        a, b, alpha = tile_factors(tile)
        a = a if codes is None else a * codes
        a = a if tiles.tiles.scales is None else a * tiles.tiles.scales[:, None].cpu()
        factors = LayerFactors(a, b[:, : tiles.in_features], alpha)
        require_change(name, layer, factors, codes, is_gated=adapter is None)
        return factors, "as they are", 0.0
    require_change(name, layer, change, codes, is_gated=adapter is None)
    if base is not None:
        # W without adapters: `change` contains the gated adapters already.
        change = change + tile_weights(tiles, NO_ADAPTERS)[0] - matrix(_layer_of(base, name))
    own = next(iter(tiles.tiles)).adapter.rank if rank is None else rank
    factors, error = _truncated(change, own)
    how = "SVD of " + ("W - W0 + alpha A B" if base is not None else f"{len(tiles.tiles)} tiles")
    return factors, how, error


def _require_known_base(name: str, tiles: Any, base: nn.Module | None) -> None:  # noqa: ANN401
    """Raises ValueError if the array below the adapters is not the one that a file goes onto."""
    if not tiles.config.forward_inject:
        raise ValueError(
            f"layer '{name}' has forward_inject = False: its adapters have no part in what it "
            "computes"
        )
    if base is not None:
        return
    transfers = sum(int(table["transfers"]) for table in tiles.statistics())
    scale = tiles.out_scaling
    changed = f"had {transfers} transfers" * bool(transfers)
    if scale is not None and bool((scale != 1.0).any()):
        changed = changed or "learned its out_scaling"
    if changed:
        raise ValueError(
            f"layer '{name}' has {changed}, so that its array holds a part of what was learned; "
            "pass base = the model that the file will be loaded onto"
        )


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


def _layer_of(base: nn.Module, name: str) -> nn.Module:
    try:
        return base.get_submodule(name)
    except AttributeError:
        raise ValueError(f"base has no layer '{name}'; give the model without adapters") from None


def _is_transposed(layer: Any) -> bool:  # noqa: ANN401
    """Whether the layer of torch is a Conv1D of transformers."""
    inner = layer.base if isinstance(layer, GatedAdapter) else layer
    kind = getattr(inner, "digital_class", None) or type(inner)
    return bool(kind.__name__ == "Conv1D")
