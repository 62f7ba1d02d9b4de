"""Low-rank adapters on a model, in three modes for the places of base and factors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from torch import nn

from pulsora._internal.seeds import drawn_seed
from pulsora.config import LRTTConfig, SingleConfig, TileConfig
from pulsora.convert.hooks import move_hooks
from pulsora.convert.model import converted, replaced
from pulsora.convert.report import analog_parts, is_conv1d, mark_as_chosen, own_forward, why_digital
from pulsora.devices import SixT1C
from pulsora.nn import AnalogLinear, GatedAdapter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import TypeAlias

    from torch import Tensor

    Gates: TypeAlias = (
        nn.Module
        | float
        | Sequence[float]
        | Tensor
        | Callable[[str, nn.Module], nn.Module | None]
        | None
    )

__all__ = ["MODES", "Plan", "adaptable", "add_adapters", "attach", "tied_layers"]

MODES = ("digital_base", "analog_base", "analog_base_digital_adapter")


class Plan(NamedTuple):
    """Places of the base and of the factors of adapters.

    Attributes:
        base: Configuration of the arrays of the base; None leaves it in torch.
        factors: Configuration of the arrays of A and B; None keeps A and B in tensors of torch, or
            in the tiles of the base.
        in_tiles: Whether the adapters are in the tiles of the base.
    """

    base: TileConfig | None
    factors: TileConfig | None
    in_tiles: bool

    def base_options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the options of the base's arrays; weight_scaling is 'abs_max' by default."""
        facts = None if self.base is None else self.base.facts
        # Tiles of InferenceConfig scale their weights themselves.
        is_own = facts is not None and facts.digital_weight and not facts.follows
        can_scale = facts is not None and not facts.reuses_reads and not is_own
        return {"weight_scaling": "abs_max" if can_scale else None, **given}

    @staticmethod
    def of(
        mode: str, config: TileConfig | None, base_config: TileConfig | None, adapter_span: str
    ) -> Plan:
        """Makes the plan from the arguments of `add_adapters`.

        Raises:
            ValueError: for an unknown mode or span, and configurations that do not fit the mode.
        """
        if mode not in MODES:
            raise ValueError(f"mode = {mode!r}: write one of {', '.join(map(repr, MODES))}")
        if adapter_span not in {"tile", "layer"}:
            raise ValueError(f"adapter_span = {adapter_span!r}: write 'tile' or 'layer'")
        is_lrtt = isinstance(config, LRTTConfig)
        in_tiles = mode == "analog_base" and (adapter_span == "tile" or is_lrtt)
        if mode == "digital_base" or in_tiles:
            _require(
                base_config is None, mode, "base_config", "there is none; config is all it takes"
            )
        if mode == "analog_base_digital_adapter":
            _require(
                config is None, mode, "config", "A and B are tensors of torch; give base_config"
            )
            return Plan(base_config or SingleConfig(), None, in_tiles)
        if in_tiles:
            chosen = config or LRTTConfig()
            _require(
                isinstance(chosen, LRTTConfig), mode, "config",
                "give an LRTTConfig, or adapter_span = 'layer' for arrays A and B that span the "
                "layer",
            )  # fmt: skip
            spans = adapter_span == "layer"
            return Plan(chosen.replace(adapter_span="layer") if spans else chosen, None, in_tiles)
        factors = config or SingleConfig(device=SixT1C())
        _require(
            not is_lrtt, mode, "config",
            "A and B have no adapters of their own; give a SingleConfig",
        )  # fmt: skip
        base = None if mode == "digital_base" else base_config or SingleConfig()
        return Plan(base, factors, in_tiles)


def _require(holds: bool, mode: str, name: str, remedy: str) -> None:
    if not holds:
        raise ValueError(f"{name} does not go with mode = {mode!r}: {remedy}")


def add_adapters(
    model: nn.Module,
    mode: str = "digital_base",
    *,
    rank: int = 8,
    targets: Collection[str] | Callable[[str, nn.Module], bool] | None = None,
    exclude: Collection[str] = (),
    alpha: float | None = None,
    gate: Gates = None,
    adapters: int = 1,
    config: TileConfig | None = None,
    base_config: TileConfig | None = None,
    adapter_span: str = "tile",
    trainable: Collection[str] = (),
    seed: int | None = None,
    **options: Any,
) -> nn.Module:
    """Returns a copy of a model with adapters on fully connected layers, all else frozen.

    There are three modes:

    - 'digital_base': the base is unchanged and frozen; A and B are pulsed arrays, trained by pulses
      with `pulsora.optim`.
    - 'analog_base': the base is an analog array; A and B are pulsed arrays, trained by pulses with
      `pulsora.optim`. By default each tile has an A and a B (LRTT); `adapter_span` has two other
      layouts.
    - 'analog_base_digital_adapter': the base is a frozen analog array, read with its noise; A and B
      are tensors of torch, trained by any optimiser of torch.

    Args:
        model: Any torch model with Linear layers, or the Conv1D of transformers. It is not changed.
        mode: One of the three modes.
        rank: Number of components of each adapter.
        targets: Names of layers, or last parts of names ('q_proj'), or a function of name and
            layer; by default all fully connected layers whose weight is not tied to another layer.
        exclude: Names, or last parts of names, of layers to leave out.
        alpha: Factor on A B (PEFT's lora_alpha / r). The default is 1 for tensors of torch; for
            arrays it makes the first steps equal plain SGD.
        gate: As in `pulsora.nn.GatedAdapter`, one for all layers; or a function of name and layer.
        adapters: Number of adapters in the pool of each layer.
        config: Configuration of the arrays of A and B: a SingleConfig (of SixT1C cells by default),
            or for 'analog_base' an LRTTConfig, whose rank and lora_alpha are replaced by the
            arguments here.
        base_config: Configuration of the arrays of the base, if no LRTTConfig gives it.
        adapter_span: For 'analog_base': 'tile' for an adapter in each tile (unless an LRTTConfig
            says otherwise), 'layer' for one A and one B. With an LRTTConfig, A and B are then in
            its tile; else they are arrays beside the layer, which are not transferred.
        trainable: Names of other modules that stay trainable, such as a head.
        seed: Seed of all tiles and initial values; by default drawn from torch's generator.
        **options: max_input_size, max_output_size, threads of all arrays; weight_scaling ('abs_max'
            by default), scaling_per, learn_out_scaling, digital_bias of the base's arrays, as
            `AnalogModule` explains them.

    Raises:
        ValueError: for names that do not occur, layers that cannot have an adapter, and settings
            that do not fit the mode.
    """
    plan = Plan.of(mode, config, base_config, adapter_span)
    names = _targets(model, targets, exclude)
    modules = dict(model.named_modules())
    for name in trainable:
        if name not in modules:
            raise ValueError(f"trainable = {name!r}: the model has no such module")
    made = attach(
        model,
        plan,
        dict.fromkeys(names, rank),
        dict.fromkeys(names, alpha),
        gate=gate,
        adapters=adapters,
        seed=seed,
        options=options,
    )
    for name in trainable:
        made.get_submodule(name).requires_grad_(requires_grad=True)
    return made


def adaptable(layer: nn.Module) -> bool:
    """Whether a layer can have an adapter: Linear, Conv1D of transformers, or AnalogLinear."""
    is_linear = type(layer) is nn.Linear or is_conv1d(layer)
    return isinstance(layer, AnalogLinear) or (is_linear and not why_digital(layer))


def attach(
    model: nn.Module,
    plan: Plan,
    ranks: Mapping[str, int],
    alphas: Mapping[str, float | None],
    *,
    gate: Gates = None,
    adapters: int = 1,
    seed: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> nn.Module:
    """Returns a copy of the model with adapters on the layers named in `ranks`, all else frozen."""
    if seed is None:
        seed = drawn_seed()
    given = dict(options or {})
    of_arrays = {name: value for name, value in given.items() if name in _OF_ARRAYS}
    if plan.base is None and set(given) - set(of_arrays):
        raise ValueError(
            f"{sorted(set(given) - set(of_arrays))}: these are options of an analog base, which "
            "mode = 'digital_base' has not"
        )

    if plan.base is None:
        made = converted(model, lambda *_: None, seed=seed)
    else:
        _require_alone(model, ranks)
        configs = _configs(model, plan, ranks, alphas, adapters)
        made = converted(
            model, lambda name, _: configs.get(name), seed=seed, **plan.base_options(given)
        )
    made.requires_grad_(requires_grad=False)
    tiles = sum(len(part.tiles) for part in analog_parts(made))
    modules = dict(made.named_modules(remove_duplicate=False))
    wrapped: dict[nn.Module, nn.Module] = {}
    for name, rank in ranks.items():
        layer = modules[name]
        mark_as_chosen(layer, "")
        if plan.in_tiles and isinstance(layer, AnalogLinear):
            layer.carrier.requires_grad_(True)  # noqa: FBT003 - torch's own
        own = gate(name, layer) if callable(gate) and not isinstance(gate, nn.Module) else gate
        if layer in wrapped or (plan.in_tiles and own is None):
            continue
        settings: dict[str, Any] = {"adapters": adapters}
        if not plan.in_tiles:
            settings |= {"rank": rank, "alpha": alphas[name], "seed": seed}
        if plan.factors is not None:
            settings |= {"config": plan.factors, "tile_id": tiles, **of_arrays}
        try:
            adapter = GatedAdapter(layer, gate=own, **settings)
        except ValueError as error:
            raise ValueError(f"layer '{name}': {error}") from None
        tiles += sum(len(part.tiles) for part in analog_parts(adapter) if part is not layer)
        # A hook sees what the whole layer computes, as it does where the adapter is in tiles.
        move_hooks(layer, adapter)
        wrapped[layer] = adapter
    return replaced(made, wrapped)


def _require_alone(model: nn.Module, names: Collection[str]) -> None:
    """Raises ValueError for layers whose weight cannot be in an array of its own."""
    tied = tied_layers(model)
    for name in names:
        if reason := own_forward(model.get_submodule(name)):
            raise ValueError(
                f"layer '{name}' cannot be in an array: {reason}; leave the layer out (exclude), "
                "or take mode = 'digital_base'"
            )
        if model.get_submodule(name) in tied:
            raise ValueError(
                f"layer '{name}': its weight is that of another layer too, so it cannot be in an "
                "array of its own; leave the layer out (exclude), untie it, or take mode = "
                "'digital_base'"
            )


def _configs(
    model: nn.Module,
    plan: Plan,
    ranks: Mapping[str, int],
    alphas: Mapping[str, float | None],
    adapters: int,
) -> dict[str, TileConfig | None]:
    """Returns the configuration of the arrays of each base that is not analog yet."""
    layers = {name: model.get_submodule(name) for name in ranks}
    names = [name for name, layer in layers.items() if not isinstance(layer, AnalogLinear)]
    if not plan.in_tiles or plan.base is None:
        return dict.fromkeys(names, plan.base)
    kept = plan.base.to_dict()
    return {
        name: TileConfig.from_dict(kept | {"rank": ranks[name] * adapters} | _scaling(alphas[name]))
        for name in names
    }


def _scaling(alpha: float | None) -> dict[str, Any]:
    """Returns the settings of tiles that make alpha the factor on A B; none for 'auto'."""
    if alpha is None:
        return {}
    # No rates match plain SGD with a factor of 0, with which nothing learns.
    rates = {"ab_lr_scale": "alpha"} if alpha == 0.0 else {}
    return {"lora_alpha": alpha, "rank_scaling": "none", **rates}


_OF_ARRAYS = {"max_input_size", "max_output_size", "threads"}


def _targets(
    model: nn.Module,
    targets: Collection[str] | Callable[[str, nn.Module], bool] | None,
    exclude: Collection[str],
) -> list[str]:
    """Returns the names of the layers that get adapters."""
    layers = {
        name: layer
        for name, layer in model.named_modules()
        if not _inside_of_adapter(model, name) and adaptable(layer)
    }
    if isinstance(targets, str) or isinstance(exclude, str):
        raise TypeError("targets and exclude: give lists of names, not one text")
    for argument, parts in (("targets", targets), ("exclude", exclude)):
        if parts is None or callable(parts):
            continue
        for part in parts:
            if not any(_is_named(name, part) for name in layers):
                raise ValueError(
                    f"{argument} has {part!r}, but no fully connected layer is called so; the "
                    f"model has {list(layers)}"
                )
    if targets is None:
        tied = tied_layers(model)
        found = [name for name, layer in layers.items() if layer not in tied]
    elif callable(targets):
        found = [name for name, layer in layers.items() if targets(name, layer)]
    else:
        found = [name for name in layers if any(_is_named(name, part) for part in targets)]
    found = [name for name in found if not any(_is_named(name, part) for part in exclude)]
    if not found:
        raise ValueError("no layer is left to adapt; see targets and exclude")
    return found


def _is_named(name: str, part: str) -> bool:
    return name == part or name.endswith(f".{part}")


def _inside_of_adapter(model: nn.Module, name: str) -> bool:
    parts = name.split(".")
    above = (".".join(parts[:count]) for count in range(len(parts)))
    return any(isinstance(model.get_submodule(outer), GatedAdapter) for outer in above)


def tied_layers(model: nn.Module) -> set[nn.Module]:
    """Returns the layers that share their weight with another layer."""
    owners: dict[nn.Parameter, list[nn.Module]] = {}
    for layer in model.modules():
        own = dict(layer.named_parameters(recurse=False))  # not the copy of an analog layer
        if (weight := own.get("weight")) is not None:
            owners.setdefault(weight, []).append(layer)
    return {layer for layers in owners.values() if len(layers) > 1 for layer in layers}
