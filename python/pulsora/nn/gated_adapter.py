"""A low-rank adapter on any layer, with gates, in tensors of torch or in pulsed arrays."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from pulsora._internal.checks import require_at_least, require_finite
from pulsora._internal.seeds import drawn_seed
from pulsora.config import IdealConfig
from pulsora.lowrank import gated_low_rank_linear
from pulsora.nn.adapter_init import balanced, cell_scale, error_of, matched_gauge
from pulsora.nn.autograd.readonly_weight import WeightCopy, base_weight
from pulsora.nn.base import AnalogModule
from pulsora.nn.gates import ConstantGate, TaskGate
from pulsora.nn.linear import AnalogLinear
from pulsora.nn.low_rank_update import named_conv1d, plain_linear, with_update
from pulsora.nn.tiled_module import WeightElsewhere

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from pulsora.config import TileConfig

__all__ = ["GatedAdapter", "Written", "features_of"]


class Written(NamedTuple):
    """Accuracy of written factors.

    Attributes:
        error: |A' B' - A B| / |A B|, where a perfect read sees A' B' and A B was to be written.
        clipped: Number of elements of A and B outside the bounds of their cells.
    """

    error: float
    clipped: int


class GatedAdapter(WeightElsewhere):
    """y = base(x) + alpha A (gate(x) * (B x)): a low-rank adapter beside a layer.

    With `config`, A and B are analog layers (`up` and `down`) in tiles of their own, trained by
    pulses with `pulsora.optim`. Without `config`, they are the parameters `a` [out_features,
    components] and `b` [components, in_features] of torch. A new adapter contributes nothing: A is
    0. The base does not change; freeze it by `adapter.base.requires_grad_(False)`.

    A pool is kept as one adapter with adapters * rank components, in the order of the adapters.

    Args:
        base: Any module with in_features and out_features, such as torch's Linear and analog
            layers, or the Conv1D of transformers; it is called with x [..., in_features] alone.
        rank: Number of components of one adapter. None takes the adapters in the tiles of an analog
            base (`LRTTConfig`), with the same gate in each; the pool then divides their rank.
        gate: None, a number or numbers for constant weights, a module of `pulsora.nn` (`TaskGate`,
            `LearnedGate`, `MixtureGate`) or of your own that returns weights for x: [..., 1], [...,
            adapters] or [..., components].
        adapters: Number of adapters in the pool.
        alpha: Factor on A B, PEFT's lora_alpha / r. By default 1 for tensors of torch, and 1 /
            (sqrt(rank) std(B)) for pulsed arrays, whose first steps then equal plain SGD.
        config: Configuration of the arrays of A and B; None keeps them in tensors of torch.
        seed: Seed of the initial B and of the arrays; by default drawn from torch's generator.
        tile_id: Number of the first tile, for layers that share a seed.
        **options: max_input_size, max_output_size, threads of pulsed arrays; see `AnalogModule`.

    Raises:
        TypeError: if the base does not state its features, or the gate is no gate.
        ValueError: for ranks or adapters below 1, a non-finite alpha, or settings not for tiles.
    """

    weight_is = (
        "the weight of {} is the weight of its base, which cannot be pruned or reparametrized "
        "(torch.nn.utils.prune, weight_norm, spectral_norm, parametrizations) through the adapter; "
        "call the function with adapter.base"
    )

    def __init__(
        self,
        base: nn.Module,
        rank: int | None = None,
        gate: nn.Module | float | Sequence[float] | Tensor | None = None,
        *,
        adapters: int = 1,
        alpha: float | None = None,
        config: TileConfig | None = None,
        seed: int | None = None,
        tile_id: int = 0,
        **options: Any,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = features_of(base)
        if alpha is not None:
            require_finite("alpha", alpha)
        if options and config is None:
            raise ValueError(f"{sorted(options)}: these are options of arrays, give a config too")
        require_at_least("adapters", adapters, 1)
        self.base = base
        self.gate = gate if gate is None or isinstance(gate, nn.Module) else ConstantGate(gate)
        self.adapters = adapters
        self.alpha = 1.0 if alpha is None else float(alpha)
        self.in_tiles = rank is None
        if rank is None:
            if alpha is not None or config is not None:
                raise ValueError(
                    "rank = None takes the adapters in the tiles of the base, whose alpha and "
                    "arrays are those of its LRTTConfig; give a rank for an adapter of its own"
                )
            self.rank, rest = divmod(_rank_in_tiles(base), adapters)
            if rest:
                raise ValueError(
                    f"adapters = {adapters} must divide the rank of the adapters in the tiles, "
                    f"{self.rank * adapters + rest}"
                )
            self._require_gate()
            return
        require_at_least("rank", rank, 1)
        self.rank = rank
        self._require_gate()
        if seed is None:
            seed = drawn_seed()
        if config is None:
            self._make_tensors(seed)
        else:
            self._make_arrays(config, alpha, seed, tile_id, options)

    @property
    def components(self) -> int:
        """Number of components of the whole pool."""
        return self.adapters * self.rank

    @property
    def is_pulsed(self) -> bool:
        """Whether A and B are analog layers of this adapter."""
        return isinstance(self._modules.get("up"), AnalogModule)

    @property
    def weight(self) -> Tensor:
        """The weight of the base, for its type and device; passing it to a product is an error."""
        return self._of_base("weight")

    @property
    def bias(self) -> Tensor | None:
        """The bias of the base, or None."""
        return None if getattr(self.base, "bias", None) is None else self._of_base("bias")

    def _of_base(self, name: str) -> Tensor:
        own: Tensor = getattr(self.base, name)
        return own if self.in_tiles and isinstance(own, WeightCopy) else base_weight(own)

    def _place(self) -> torch.device | None:
        """Returns the device of the base; the CPU for a base on the meta device."""
        place = next((each.device for each in self.base.parameters()), None)
        return torch.device("cpu") if place is not None and place.type == "meta" else place

    def _make_tensors(self, seed: int) -> None:
        place = self._place()
        generator = torch.Generator().manual_seed(seed % 2**63)
        uniform = torch.rand(self.components, self.in_features, generator=generator, device="cpu")
        b = (2.0 * uniform - 1.0) / math.sqrt(self.in_features)
        self.a = nn.Parameter(torch.zeros(self.out_features, self.components, device=place))
        self.b = nn.Parameter(b.to(place))

    def _make_arrays(
        self,
        config: TileConfig,
        alpha: float | None,
        seed: int,
        tile_id: int,
        options: dict[str, Any],
    ) -> None:
        if self.rank > self.in_features:
            raise ValueError(
                f"rank = {self.rank}: an adapter in arrays has at most in_features = "
                f"{self.in_features} components"
            )
        place = self._place()
        settings = {"device": place, "seed": seed} | options
        down = AnalogLinear(
            self.in_features,
            self.components,
            bias=False,
            config=config,
            tile_id=tile_id,
            **settings,
        )
        settings["tile_id"] = tile_id + len(down.tiles)
        up = AnalogLinear(self.components, self.out_features, bias=False, config=config, **settings)
        self.down, self.up = down, up
        down.is_part = up.is_part = True
        gauge = matched_gauge(self.rank, self.in_features, config)
        if alpha is None:
            self.alpha = gauge.alpha
        generator = torch.Generator().manual_seed(seed % 2**63)
        normal = torch.randn(self.components, self.in_features, generator=generator, device="cpu")
        down.tiles.set_weights(gauge.b_std * normal, torch.tensor([gauge.b_scale]))
        up.tiles.set_weights(torch.zeros(up.tiles.shape), torch.tensor([gauge.a_scale]))

    def forward(self, x: Tensor) -> Tensor:
        """Returns y [..., out_features] for x [..., in_features]."""
        if not x.ndim:
            raise ValueError(
                f"x has shape []: this layer takes {self.in_features} features in the last "
                "dimension"
            )
        codes = self.codes(x)
        if self.in_tiles:
            read: Tensor = self.base(x) if codes is None else self.base(x, codes)
            return read
        own = "a" in self._parameters
        if own:
            # The adapter computes in the type of x, as a layer of that type would.
            v, u = self.b.T.to(x.dtype), self.a.to(x.dtype)
            if (plain := plain_linear(self.base, x)) is not None:
                weight, bias = plain
                return gated_low_rank_linear(
                    x, weight, v, codes, u, u_layout="kn", scale=self.alpha, bias=bias
                )
        y: Tensor = self.base(x)
        if own:
            return with_update(y, x, v, codes, u, self.alpha)
        h = self.down(x)
        change: Tensor = self.up(h if codes is None else h * codes)
        return y + (self.alpha * change).to(y.dtype)

    def codes(self, x: Tensor) -> Tensor | None:
        """Returns the gate's weights, which broadcast to [..., components]; None without a gate.

        Raises:
            ValueError: if the gate returns another number of weights.
        """
        return None if self.gate is None else self._per_component(self.gate(x).to(x.dtype))

    def _per_component(self, codes: Tensor) -> Tensor:
        count = codes.shape[-1] if codes.ndim else 1
        if count in {1, self.components}:
            return codes if codes.ndim else codes[None]
        if count == self.adapters:
            return codes.repeat_interleave(self.rank, -1)
        raise ValueError(
            f"the gate gives {count} weights for each sample; this adapter takes 1, "
            f"{self.adapters} (one for each adapter of the pool) or {self.components} (one for "
            "each component)"
        )

    def _require_gate(self) -> None:
        """Raises ValueError if the gate is known to give another number of weights."""
        gate = self.gate
        if isinstance(gate, ConstantGate) and type(gate).forward is ConstantGate.forward:
            self._per_component(gate.weights)
        if isinstance(gate, TaskGate) and gate.tasks != self.adapters:
            raise ValueError(
                f"the gate selects one of {gate.tasks} adapters, and the pool has {self.adapters}; "
                f"write adapters={gate.tasks}"
            )

    def factors(self) -> tuple[Tensor, Tensor]:
        """Copies A [out_features, components] and B [components, in_features], without noise.

        Raises:
            ValueError: if the factors are in the tiles of the base.
        """
        self._require_own()
        if "a" in self._parameters:
            return self.a.detach().clone(), self.b.detach().clone()
        up, down = (_weight_of(layer) for layer in (self.up, self.down))
        return up, down

    @torch.no_grad()
    def set_factors(self, a: Tensor, b: Tensor, alpha: float | None = None) -> Written:
        """Writes A [out_features, components], B [components, in_features], and alpha if given.

        In arrays, A c and B / c are written, with a number c for each component and a scale for
        each array, so that both fill half of the range of their cells. A B does not change.

        Raises:
            ValueError: for other shapes, non-finite values, or factors in tiles; nothing has
                changed.
        """
        self._require_own()
        shapes = ((self.out_features, self.components), (self.components, self.in_features))
        for name, given, shape in (("a", a, shapes[0]), ("b", b, shapes[1])):
            if tuple(given.shape) != shape:
                raise ValueError(f"{name} has shape {list(given.shape)}; expected {list(shape)}")
            if not given.isfinite().all():
                raise ValueError(f"{name} has values that are not finite (nan or inf)")
        if alpha is not None:
            require_finite("alpha", alpha)
        self.alpha = self.alpha if alpha is None else float(alpha)
        if not self.is_pulsed:
            for mine, given in zip(self._tensors(), (a, b), strict=True):
                mine.copy_(given)
            return Written(error_of(self.factors(), (a, b)), 0)
        wanted = balanced(a.detach().float(), b.detach().float())
        clipped = 0
        for layer, values in zip((self.up, self.down), wanted, strict=True):
            config = layer.config
            exact = isinstance(config, IdealConfig)
            layer.tiles.set_weights(values, None if exact else cell_scale(values, config))
            clipped += clipped_cells(layer.tiles.get_weights(), values)
        return Written(error_of(self.factors(), (a, b)), clipped)

    def freeze_factors(self) -> GatedAdapter:
        """Freezes A and B, so that the gate alone is trained; returns the adapter."""
        self._require_own()
        pulsed = (*self.up.parameters(), *self.down.parameters()) if self.is_pulsed else ()
        for each in pulsed or self._tensors():
            each.requires_grad_(False)  # noqa: FBT003 - torch's own
        return self

    def _tensors(self) -> tuple[Tensor, Tensor]:
        return (self.a, self.b) if "a" in self._parameters else (self.up.weight, self.down.weight)

    def _require_own(self) -> None:
        if self.in_tiles:
            raise ValueError(
                "the factors of this adapter are in the tiles of its base: see "
                "tile.adapter.a and tile.adapter.b of each tile in adapter.base.tiles"
            )

    def get_extra_state(self) -> Tensor:
        """Returns alpha, which is saved with the factors."""
        return torch.tensor(self.alpha, dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Restores alpha."""
        self.alpha = float(state)

    def extra_repr(self) -> str:
        """Returns the text between the brackets of `print(adapter)`."""
        pool = f", adapters={self.adapters}" if self.adapters > 1 else ""
        where = "in the tiles of the base" if self.in_tiles else f"alpha={self.alpha:g}"
        return f"{self.in_features}, {self.out_features}, rank={self.rank}{pool}, {where}"


def features_of(base: nn.Module) -> tuple[int, int]:
    """Returns the numbers of inputs and outputs of a layer.

    Raises:
        TypeError: if the layer does not state them.
    """
    own = [getattr(base, name, None) for name in ("in_features", "out_features")]
    if named_conv1d(base):
        own = list(base.weight.shape)  # type: ignore[arg-type]
    if not all(isinstance(size, int) for size in own):
        raise TypeError(
            f"base = {type(base).__name__}: an adapter needs a layer with in_features and "
            "out_features, such as torch.nn.Linear; set these attributes on a layer of your own"
        )
    return int(own[0]), int(own[1])  # type: ignore[arg-type]


def clipped_cells(written: Tensor, wanted: Tensor) -> int:
    """Counts clipped elements: the elements that are clearly smaller than wanted."""
    sizes = wanted.abs().to(written.device)
    return int((sizes - written.abs() > 0.02 * sizes.amax()).sum()) if sizes.numel() else 0


def _rank_in_tiles(base: nn.Module) -> int:
    adapters = [tile.adapter for tile in base.tiles] if isinstance(base, AnalogModule) else [None]
    ranks = {0 if adapter is None else adapter.rank for adapter in adapters}
    if len(ranks) != 1 or 0 in ranks:
        raise ValueError(
            "rank = None takes the adapters in the tiles of the base, but "
            + ("these differ in rank" if len(ranks) > 1 else "it has none")
            + "; give a rank, or a base with LRTTConfig(rank=...)"
        )
    return ranks.pop()


def _weight_of(layer: nn.Module) -> Tensor:
    weight = layer.get_weights()[0] if isinstance(layer, AnalogModule) else layer.weight
    copied: Tensor = weight.detach().clone()  # type: ignore[operator]
    return copied
