"""Loading of adapters that PEFT has saved."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from pulsora.nn import AnalogLinear, AnalogModule, GatedAdapter
from pulsora.nn.adapter_init import FILL, balanced, distance
from pulsora.nn.gated_adapter import clipped_cells, features_of
from pulsora.nn.tiles.tile_factors import alpha_of, set_tile_factors, tile_factors
from pulsora.nn.tiles.weight_scaling import WeightScaling, reach
from pulsora.peft.attach import Plan, adaptable, attach
from pulsora.peft.beside import load_beside, train_again
from pulsora.peft.files import LayerFactors, read_adapter
from pulsora.peft.outputs import require_change
from pulsora.peft.report import AdapterReport, AdapterRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pulsora.config import TileConfig
    from pulsora.peft.attach import Gates

__all__ = ["Loaded", "load_adapter"]


class Loaded(NamedTuple):
    """A model with the adapter of a file, and the report on the written factors."""

    model: nn.Module
    report: AdapterReport


def load_adapter(
    model: nn.Module,
    folder: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    mode: str = "digital_base",
    *,
    config: TileConfig | None = None,
    base_config: TileConfig | None = None,
    adapter_span: str = "tile",
    gate: Gates = None,
    trainable: bool = True,
    load_modules: bool = False,
    without_dropout: bool = False,
    seed: int | None = None,
    **options: Any,
) -> Loaded:
    """Returns a copy of a model with an adapter that PEFT has saved.

    PEFT itself is not needed, and nothing in the files (adapter_config.json and
    adapter_model.safetensors) is executed. As in PEFT, alpha A B is added to the weight of a layer:
    A is lora_B, B is lora_A, and alpha is lora_alpha / r, or lora_alpha / sqrt(r) with use_rslora;
    rank_pattern and alpha_pattern are respected. In arrays, the components are scaled (A c, B / c)
    so that A and B fill half of the range of their cells.

    Parameters that the file says were trained beside the adapter (modules_to_save, bias) are loaded
    too, as PEFT does, and stay trainable. Other parameters in the file have to equal the model's.

    Args:
        model: The model that the adapter was made for; it is not changed.
        folder: A folder with the two files; or several, whose adapters become a pool, for a gate
            that chooses or mixes (`pulsora.nn.TaskGate`, `MixtureGate`). Adapters of smaller rank
            are padded with zeros.
        mode: As in `add_adapters`: 'digital_base', 'analog_base' or 'analog_base_digital_adapter'.
        config: As in `add_adapters`.
        base_config: As in `add_adapters`.
        adapter_span: As in `add_adapters`.
        gate: As in `add_adapters`.
        trainable: Whether the factors will be trained, and what was trained beside them.
        load_modules: Whether to load parameters of the model that the file holds without saying
            that they were trained, such as the resized tables of PEFT's save_embedding_layers.
        without_dropout: Whether an adapter that PEFT trained with lora_dropout may be trained
            further without it; arrays have no dropout.
        seed: As in `add_adapters`.
        **options: As in `add_adapters`.

    Returns:
        The model, and a report with |A' B' - A B| / |A B| and the number of clipped elements of
        each layer, and the names of what was loaded beside them.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: naming the file and the setting, for settings without a meaning here (use_dora,
            lora_bias, target_parameters, ...), damaged files, layers that the model does not have,
            weights of the model in the file that differ without having been trained, and layers
            whose outputs do not change by what the file holds (compared on a few random rows).
    """
    plan = Plan.of(mode, config, base_config, adapter_span)
    folders = [folder] if isinstance(folder, str | os.PathLike) else list(folder)
    if not folders:
        raise ValueError("folder = []: give one folder or several")
    files = []
    for each in folders:
        file = read_adapter(each)
        if file.settings.lora_dropout > 0.0 and trainable and not without_dropout:
            raise ValueError(
                f"{os.fspath(each)}: lora_dropout = {file.settings.lora_dropout} leaves out inputs "
                "in training, which arrays cannot; pass without_dropout = True to train without "
                "it, or trainable = False"
            )
        _require_fit(model, os.fspath(each), file.factors)
        files.append(file)
    model, beside = load_beside(model, files, load_modules=load_modules)
    pools = _pools([file.factors for file in files])
    wanted = {name: pools[name] for name, _ in model.named_modules() if name in pools}
    ranks = {name: layer.b.shape[0] // len(files) for name, layer in wanted.items()}
    alphas: dict[str, float | None] = {name: layer.alpha for name, layer in wanted.items()}
    written = dict(wanted)
    if plan.in_tiles:
        written = {
            name: _for_tiles(model, name, layer, plan, options) for name, layer in wanted.items()
        }
        # Without factors, alpha is the one of new adapters.
        alphas = {
            name: layer.alpha if _has_factors(layer) or layer.alpha == 0.0 else None
            for name, layer in written.items()
        }
    made = attach(
        model, plan, ranks, alphas, gate=gate, adapters=len(files), seed=seed, options=options
    )
    modules = dict(made.named_modules())
    rows = [_write(name, modules[name], layer, wanted[name]) for name, layer in written.items()]
    for row in rows:
        _require_outputs(modules[row.name], wanted[row.name], row)
    if not trainable:
        _freeze([modules[name] for name in wanted])
    train_again(made, beside if trainable else ())
    report = AdapterReport(rows)
    report.beside = tuple(beside)
    return Loaded(made, report)


def _freeze(layers: Sequence[nn.Module]) -> None:
    """Freezes the factors of adapted layers."""
    for layer in layers:
        for part in (layer, *layer.children()):
            if isinstance(part, AnalogModule):
                part.carrier.requires_grad_(False)  # noqa: FBT003 - torch's own
        if isinstance(layer, GatedAdapter) and not layer.in_tiles:
            layer.freeze_factors()


def _require_outputs(layer: nn.Module, wanted: LayerFactors, row: AdapterRow) -> None:
    """Raises ValueError if outputs of an adapted layer differ by more than its row says."""
    codes = None
    if isinstance(layer, GatedAdapter):
        codes = torch.ones(layer.components, device="cpu")
    known = row.error if math.isfinite(row.error) else 0.0
    require_change(row.name, layer, wanted, codes, is_gated=False, known=known)


def _require_fit(model: nn.Module, folder: str, factors: Mapping[str, LayerFactors]) -> None:
    layers = dict(model.named_modules())
    for name, (a, b, _) in factors.items():
        layer = layers.get(name)
        if layer is None:
            raise ValueError(
                f"{folder}: the model has no layer '{name}'; give the model that the adapter was "
                "made for"
            )
        if isinstance(layer, GatedAdapter) or not adaptable(layer):
            raise ValueError(
                f"{folder}: layer '{name}' is a {type(layer).__name__}, which cannot have an "
                "adapter"
                + " besides its own; load into the model without adapters"
                * isinstance(layer, GatedAdapter)
            )
        features = features_of(layer)
        if (b.shape[1], a.shape[0]) != features:
            raise ValueError(
                f"{folder}: the adapter of layer '{name}' is for {[b.shape[1], a.shape[0]]} "
                f"features in and out, but the layer has {list(features)}"
            )


def _pools(files: Sequence[Mapping[str, LayerFactors]]) -> dict[str, LayerFactors]:
    """Concatenates the adapters of all files, with one rank and one alpha, which scales A."""
    if len(files) == 1:
        return dict(files[0])
    pools = {}
    for name in dict.fromkeys(name for factors in files for name in factors):
        present = [factors[name] for factors in files if name in factors]
        rank = max(layer.b.shape[0] for layer in present)
        alpha = next((layer.alpha for layer in present if layer.alpha), 0.0)
        a = present[0].a.new_zeros(len(present[0].a), len(files), rank)
        b = present[0].b.new_zeros(len(files), rank, present[0].b.shape[1])
        for number, factors in enumerate(files):
            if name in factors:
                layer = factors[name]
                own = layer.b.shape[0]
                a[:, number, :own], b[number, :own] = (
                    layer.a * (layer.alpha / (alpha or 1.0)),
                    layer.b,
                )
        pools[name] = LayerFactors(a.flatten(1), b.flatten(0, 1), alpha)
    return pools


def _has_factors(layer: LayerFactors) -> bool:
    return bool(layer.a.any() and layer.b.any())


def _for_tiles(
    model: nn.Module, name: str, layer: LayerFactors, plan: Plan, options: Mapping[str, Any]
) -> LayerFactors:
    """Scales factors to the cells of the fast arrays; alpha takes the sizes, and 0 stays 0."""
    base: Any = model.get_submodule(name)
    config: Any = base.config if isinstance(base, AnalogLinear) else plan.base
    if isinstance(base, AnalogLinear):
        scales = _scales_of(name, base)
    else:
        per, scaling = (
            options.get("scaling_per", "layer"),
            plan.base_options(options)["weight_scaling"],
        )
        weight = base.weight.detach().float()
        weight = weight if isinstance(base, nn.Linear) else weight.T
        # An analog bias is one more column of cells.
        if base.bias is not None and not options.get("digital_bias", True):
            weight = torch.cat([weight, base.bias.detach().float()[:, None]], 1)
        chosen = WeightScaling.of(scaling, per, config)
        scales = None if chosen is None else chosen.scales(weight)
    a = layer.a if scales is None else layer.a / scales[:, None].cpu()
    a, b = balanced(a, layer.b)
    largest = [float(side.abs().max()) for side in (a, b)]
    fill = FILL * reach(config.fast)
    factor_a, factor_b = (size / fill if size > 0.0 else 1.0 for size in largest)
    return LayerFactors(a / factor_a, b / factor_b, layer.alpha * factor_a * factor_b)


def _scales_of(name: str, layer: AnalogLinear) -> torch.Tensor | None:
    """Returns the factors on the outputs of tiles, learned ones included."""
    own = [each for each in (layer.tiles.scales, layer.out_scaling) if each is not None]
    if not own:
        return None
    scales = torch.ones(1, device="cpu")
    for each in own:
        scales = scales * each.detach().float().cpu()
    if not (scales.isfinite() & (scales != 0.0)).all():
        raise ValueError(
            f"layer '{name}' has an out_scaling of 0 for some outputs, which no adapter in its "
            "tiles can change; take another mode"
        )
    return scales


def _write(name: str, layer: nn.Module, factors: LayerFactors, wanted: LayerFactors) -> AdapterRow:
    """Writes factors; the error is relative to the wanted change of the layer's weight."""
    a, b, alpha = factors
    if isinstance(layer, GatedAdapter) and not layer.in_tiles:
        written = layer.set_factors(a, b, alpha)
        how = "pulsed arrays" if layer.is_pulsed else "tensors of torch"
        kind = type(layer.base).__name__
        return AdapterRow(name, kind, len(b), alpha, how, written.error, written.clipped)
    tiles: Any = layer.base if isinstance(layer, GatedAdapter) else layer
    scales = _scales_of(name, tiles)
    # An analog bias is one more column of cells.
    b = nn.functional.pad(b, (0, int(tiles.analog_bias)))
    whole_b = nn.functional.pad(wanted.b, (0, int(tiles.analog_bias)))
    error = whole = 0.0
    clipped = 0
    has_alpha = _has_factors(factors) or alpha == 0.0
    for _, _, tile in tiles.tiles.parts():
        if has_alpha and not math.isclose(alpha_of(tile), alpha, rel_tol=1e-5):
            raise ValueError(
                f"layer '{name}' is analog already, with an alpha of {alpha_of(tile):g}, but this "
                f"adapter needs lora_alpha = {alpha:g}; load into the digital model"
            )
    for row, col, tile in tiles.tiles.parts():
        part = (a[row], b[:, col])
        set_tile_factors(tile, *part)
        now_a, now_b, now_alpha = tile_factors(tile)
        clipped += sum(map(clipped_cells, (now_a, now_b), part))
        if scales is not None:
            now_a = now_a * (scales if len(scales) == 1 else scales[row])[:, None]
        lost, size = distance(
            (now_alpha * now_a, now_b), (wanted.alpha * wanted.a[row], whole_b[:, col])
        )
        error, whole = error + lost**2, whole + size**2
    off = (error / whole) ** 0.5 if whole > 0.0 else math.inf if error > 0.0 else 0.0
    return AdapterRow(name, type(tiles).__name__, len(b), alpha, "in each tile", off, clipped)
