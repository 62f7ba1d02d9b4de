"""Base class of analog layers: tiles, gradients, bias, and an exact state."""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from pulsora._internal.checks import require_boolean
from pulsora._internal.seeds import drawn_seed
from pulsora._internal.transforms import in_transform
from pulsora.nn.autograd.differentiation import perfect_product, require_no_transform
from pulsora.nn.autograd.gated_product import flat_gate
from pulsora.nn.autograd.readonly_weight import weight_copy
from pulsora.nn.autograd.tile_product import outside_compile, read_tiles, require_untraced
from pulsora.nn.carrier_settings import learns_range, require_digital, require_range, set_weight
from pulsora.nn.inputs import output_type, require_input, require_type, require_written
from pulsora.nn.master import WeightCarrier
from pulsora.nn.options import are_blank, place_of, require_none, whole_signature
from pulsora.nn.tiles.followed_weights import FollowedWeights
from pulsora.nn.tiles.layer_names import described
from pulsora.nn.tiles.tile_array import TileArray
from pulsora.nn.tiles.weight_scaling import WeightScaling
from pulsora.tile.clipping import warn_of_clipping
from pulsora.tile.configuration import config_of

if TYPE_CHECKING:
    from torch import Tensor

    from pulsora.config import TileConfig
    from pulsora.nn.autograd.analog_parameter import AnalogParameter
    from pulsora.nn.tiles.patches import Patches

__all__ = ["AnalogModule"]


class AnalogModule(WeightCarrier):
    """A layer whose weight matrix [out_features, in_features] is on tiles.

    Reads are noisy in `eval()` as in `train()`, as on a chip. `analog_weight` is the parameter: a
    backward pass leaves the gradient there, in factors (x, d), and an optimiser of `pulsora.optim`
    turns it into pulses. Two layers of one shape share their tiles by `one.analog_weight =
    other.analog_weight`.

    `to()`, `cuda()` and `cpu()` move tiles and bias, with the exact state of the tiles. Tiles are
    in single precision whatever the type of the layer (`half()`, `double()`) or of its input; y has
    the type that a layer of torch would give, under autocast too.

    `state_dict()` holds the complete state of every tile as tensors, `tiles.<row>_<column>.<name>`
    (weights, sampled cells, counters), so that a resumed run equals an uninterrupted one to the
    bit. It can be saved by safetensors, and by `torch.save` for `weights_only=True`.

    Args:
        rows: Number of outputs of the matrix.
        columns: Number of inputs of the matrix, without the bias; with groups, inputs of each
            group.
        bias: Whether a bias is added.
        config: Configuration of the tiles; a single array of ConstantStep devices by default.
        groups: Number of blocks of rows with tiles, and inputs, of their own.
        seed: Seed of the tiles and of the initial weights; by default drawn from torch's
            generator, so that `torch.manual_seed` determines everything.
        tile_id: Number of the first tile, for layers that share a seed.
        digital_bias: Whether the bias is a torch parameter, or else one more column of cells that
            is driven with 1.
        max_input_size: Largest number of inputs of a tile; 0 is no limit. Larger layers are split
            over tiles, or with `LRTTConfig(adapter_span="layer")` are one tile that is read in
            blocks.
        max_output_size: Largest number of outputs of a tile, likewise.
        device: Device of tiles and bias, 'cpu' or 'cuda'; torch's default device by default.
        threads: Threads of the CPU backend.
        weight_scaling: How weights are fitted to the cells whenever they are written (made,
            converted, `set_weights`). None writes them unscaled. A number divides them so that the
            largest becomes this number, in units of the cells. 'abs_max' makes the largest the mean
            bound of the cells minus twice its spread, which nearly all cells reach. 'sigma' makes
            three standard deviations of the weights this size, so that cells use more of their
            range, and confines the few larger ones. 'width' makes sqrt(3 / in_features) this size,
            whatever the weights are. Outputs are multiplied back, and updates divided, so that the
            weights change as without scaling; `weight` and gradients are in units of the layer.
        scaling_per: One scale for the 'layer', or one for each 'output'.
        learn_out_scaling: Whether outputs are also multiplied by `out_scaling` ([1], or
            [out_features] for `scaling_per` = 'output'), a parameter of torch that starts at 1.
        **unknown: Not allowed; a TypeError names these arguments.

    Raises:
        TypeError: for arguments that do not exist, or of a wrong type.
        ValueError: for sizes below 1, the meta device and unknown scalings; a ConfigError if the
            configuration does not suit the tiles.
    """

    analog_weight: AnalogParameter
    bias: nn.Parameter | None
    out_scaling: nn.Parameter | None

    is_part: bool = False
    """Whether the layer is part of another (`lstm.ih_l0`), which resets its parameters."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__signature__ = whole_signature(cls, AnalogModule)  # type: ignore[attr-defined]

    def __init__(
        self,
        rows: int,
        columns: int,
        bias: bool = True,
        config: TileConfig | None = None,
        groups: int = 1,
        *,
        seed: int | None = None,
        tile_id: int = 0,
        digital_bias: bool = True,
        max_input_size: int = 512,
        max_output_size: int = 512,
        device: str | torch.device | None = None,
        threads: int | None = None,
        weight_scaling: str | float | None = None,
        scaling_per: str = "layer",
        learn_out_scaling: bool = False,
        **unknown: object,
    ) -> None:
        super().__init__()
        require_none(type(self).__name__, unknown, inspect.signature(type(self)).parameters)
        config = config_of(config)
        require_boolean("bias", bias)
        require_boolean("digital_bias", digital_bias)
        require_boolean("learn_out_scaling", learn_out_scaling)
        place = place_of(torch.get_default_device() if device is None else torch.device(device))
        if seed is None:
            seed = drawn_seed()
        self.analog_bias = bias and not digital_bias
        if config.facts.digital_weight:
            require_digital(config.facts, weight_scaling, analog_bias=self.analog_bias)
        input_range = None
        require_range(config)
        if learns_range(config):
            # The layer divides inputs by its parameter, and the range of its tiles is 1.
            forward = config.forward  # type: ignore[attr-defined]
            input_range = forward.nm_thres
            config = config.replace(forward=forward.replace(nm_thres=1.0))
        self.digital_dtype = torch.get_default_dtype()
        array = TileArray(
            rows,
            columns + self.analog_bias,
            config,
            seed=seed,
            tile_id=tile_id,
            max_input_size=max_input_size,
            max_output_size=max_output_size,
            device=str(place),
            threads=threads,
            groups=groups,
            scaling=WeightScaling.of(weight_scaling, scaling_per, config),
            has_bias=self.analog_bias,
        )
        array.layer_type = type(self).__name__
        has_bias = bias and digital_bias
        # The order of torch's layers: weight, then bias.
        self._carry(array, input_range)
        self.register_parameter(
            "bias", nn.Parameter(torch.empty(rows, device=array.device)) if has_bias else None
        )
        learned = torch.ones(rows if scaling_per == "output" else 1, device=array.device)
        self.register_parameter("out_scaling", nn.Parameter(learned) if learn_out_scaling else None)
        self._initialise(seed * 1_000_003 + tile_id)

    def _initialise(self, seed: int) -> None:
        """Draws weights and bias uniformly within +-1/sqrt(inputs), as torch's own layers do."""
        rows, columns = self.tiles.shape
        if are_blank():
            self._write_matrix(torch.zeros(rows, columns, device="cpu"))
            return
        bound = 1.0 / math.sqrt(columns - self.analog_bias)
        generator = torch.Generator().manual_seed(seed % 2**63)
        columns_too = columns + (self.bias is not None)
        uniform = torch.rand(rows, columns_too, generator=generator, device="cpu")
        uniform = bound * (2.0 * uniform - 1.0)
        if self.tiles.scaling is not None:
            # The user has not chosen these weights, so clipping matters only if it hits many.
            self._warn_of_clipping(uniform[:, :columns], stacklevel=5, share=0.1)
        self._write_matrix(uniform[:, :columns])
        if self.bias is not None:
            with torch.no_grad():
                self.bias.copy_(uniform[:, columns])

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draws weights and bias anew from torch's generator, as torch's layer does.

        They are written to the same cells, within their bounds, with scales chosen anew;
        `out_scaling` becomes 1. A part of another layer is left to the `reset_parameters` of that.
        """
        if self.is_part:
            return
        self._initialise(drawn_seed())
        if self.out_scaling is not None:
            self.out_scaling.fill_(1.0)

    def _warn_of_clipping(self, wanted: Tensor, stacklevel: int, share: float = 0.01) -> None:
        """Warns of weights that a write is going to confine to the bounds of their cells."""
        remedy = None if self.tiles.scaling is None else "give a smaller weight_scaling"
        warn_of_clipping(self.tiles.confined(wanted), wanted, stacklevel, remedy, share)

    @property
    def described(self) -> str:
        """The layer in errors: its name if it is known, its type and its sizes."""
        return described(self.tiles)

    @property
    def tiles(self) -> TileArray:
        """The tiles; iterate over them to look at a `pulsora.Tile`."""
        return self._tiles()

    @property
    def config(self) -> TileConfig:
        """The configuration of the tiles, frozen: `replace()` gives a copy that can be changed."""
        return self.tiles.config

    @property
    def weight(self) -> Tensor:
        """The weights of the layer.

        A parameter of torch, where the configuration says so (InferenceConfig,
        MixedPrecisionConfig). Otherwise a read-only copy of the weights that a perfect read would
        see, adapter included. It is differentiable. A penalty on it in a loss acts on the tiles, by
        pulses: each column of its gradient is one sample.
        """
        if self.held is not None:
            return self.carrier
        columns = self.tiles.shape[1] - self.analog_bias
        return weight_copy(self.analog_weight, self.out_scaling, columns)

    def __setattr__(self, name: str, value: Any) -> None:  # noqa: ANN401
        if name == "weight":
            set_weight(self, value)
        else:
            super().__setattr__(name, value)

    def get_weights(self) -> tuple[Tensor, Tensor | None]:
        """Returns copies of the weights [out_features, in_features] and the bias [out_features]."""
        weights = self._read_matrix()
        if self.out_scaling is not None:
            weights = weights * self.out_scaling.detach().float()[:, None]
        if self.analog_bias:
            return weights[:, :-1].contiguous(), weights[:, -1].contiguous()
        return weights, None if self.bias is None else self.bias.detach().clone()

    def set_weights(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """Writes weights [out_features, in_features], and the bias where the layer has one.

        Scales are chosen anew, and `out_scaling` is set to 1. Weights are confined to the bounds of
        their cells. A warning comes before the write if that will concern more than 1 % of them,
        and change the matrix by more than 10 % of its norm.

        Raises:
            TypeError: for anything but tensors of real numbers.
            ValueError: for a wrong shape, a missing bias, or a bias that the layer does not have.
        """
        wanted = self._wanted(weight, bias)
        self._write_and_warn(wanted, self._converted_bias("bias", bias), stacklevel=5)

    def _wanted(self, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Returns checked weights, and a bias in cells, as the matrix of the tiles."""
        require_written("weight", weight)
        rows, columns = self.tiles.shape
        has_bias = self.analog_bias or self.bias is not None
        if has_bias != (bias is not None):
            raise ValueError(
                f"bias is None, but this layer has one: give a tensor of shape [{rows}]"
                if has_bias
                else "bias was given, but this layer has none: leave it out"
            )
        expected = (rows, columns - self.analog_bias)
        if weight.shape != expected:
            raise ValueError(f"weights have shape {list(weight.shape)}; expected {list(expected)}")
        if bias is not None:
            require_written("bias", bias, (rows,))
        place = self.tiles.device
        wanted = weight.detach().to(place).float()
        if self.analog_bias and bias is not None:
            wanted = torch.cat([wanted, bias.detach().to(place).float()[:, None]], dim=1)
        return wanted

    def _take(self, weight: Tensor, bias: Tensor | None) -> None:
        """Writes weights, and a bias in cells, as `set_weights`; a digital bias stays."""
        wanted = self._wanted(weight, bias if self.analog_bias else self.bias)
        self._write_and_warn(wanted, None, stacklevel=7)

    def _write_and_warn(self, wanted: Tensor, bias: Tensor | None, stacklevel: int) -> None:
        """Writes weights; warns of those that are confined, before if there are others already."""
        is_new = are_blank() or self.tiles.awaits_weights
        if not is_new:
            self._warn_of_clipping(wanted, stacklevel)
        self._write(wanted, bias)
        # Bounds of all cells take longer to find than the weights that have been written.
        if is_new and self.tiles.loses_much(wanted):
            self._warn_of_clipping(wanted, stacklevel)

    @torch.no_grad()
    def _write(self, wanted: Tensor, bias: Tensor | None) -> None:
        self._write_matrix(wanted)
        self._write_bias("bias", bias)
        if self.out_scaling is not None:
            self.out_scaling.fill_(1.0)

    def product(
        self,
        x: Tensor,
        gate: Tensor | None = None,
        steps: int = 1,
        bias: Tensor | None = None,
        *,
        patches: Patches | None = None,
    ) -> Tensor:
        """Reads y = W x + bias from the tiles, differentiable.

        Takes x [..., in_features] and returns y [..., out_features]. A gate that broadcasts to
        [..., rank] weights the components of the tiles' adapters for each sample, and gets a
        gradient. `steps` is the number of mini-batches (time steps) that are concatenated in the
        first dimension of x. `bias` [out_features] is added instead of the layer's own. `patches`
        are images from which the rows of x are taken, without inputs of a bias in cells; they are
        kept for the gradient instead of x.
        """
        require_untraced()
        tiles = self.tiles
        tiles.require_weights()
        rows, columns = tiles.shape
        groups = tiles.groups
        features = groups * (columns - self.analog_bias)
        require_input(x, features, tiles.device)
        if not self.is_part:  # a part takes what the layer around it has checked
            require_type(x, self.digital_dtype)
        bias = self.bias if bias is None else bias
        scaling = self.out_scaling
        if in_transform():
            if self.held is not None:
                require_no_transform(self.held.array)
            outer = scaling, bias, self.analog_bias
            return perfect_product(x, self.analog_weight, outer, gate).to(output_type(x))
        # A matrix is not reshaped, because torch would record a node for the view.
        flat = (x if x.dim() == 2 else x.reshape(-1, features)).float()
        if self.analog_bias:
            blocks = flat.reshape(-1, groups, columns - 1)
            flat = nn.functional.pad(blocks, (0, 1), value=1.0).reshape(-1, groups * columns)
        if patches is not None:
            patches = patches._replace(groups=groups, has_ones=self.analog_bias)
        if tiles.seen is not None:
            tiles.seen(flat.detach())
        flat_weights = None if gate is None else flat_gate(gate, x)
        added = bias if scaling is None else None
        if self.held is not None:
            if gate is not None:
                raise ValueError("the tiles have no adapter that a gate could weight")
            rows_of_x = (x.shape[:-1], steps, self.training)
            y = outside_compile(self._read_held, flat, added, rows_of_x)
        else:
            y = read_tiles(
                flat,
                self.analog_weight,
                added,
                flat_weights,
                (x.shape[:-1], steps),
                training=self.training,
                patches=patches,
            )
        if scaling is not None:
            y = y * scaling if bias is None else y * scaling + bias
        wanted = output_type(x)
        y = y if y.dtype == wanted else y.to(wanted)
        return y if x.dim() == 2 else y.reshape(*x.shape[:-1], rows)

    def added_biases(self) -> list[nn.Parameter]:
        """Returns the parameters that are added to reads of cells, and used nowhere else."""
        is_plain = self.held is None and self.out_scaling is None
        return [self.bias] if self.bias is not None and is_plain else []

    def calibrate(self, pulses: int = 0) -> list[dict[str, float]]:
        """Programs the references of all tiles to symmetric points (`Tile.calibrate`)."""
        if isinstance(self.held, FollowedWeights):
            self.held.follow(self.carrier)
        return self.tiles.calibrate(pulses)

    def statistics(self) -> list[dict[str, Any]]:
        """Returns the statistics of each tile so far: pulses, transfers and their fidelity."""
        return [tile.statistics() for tile in self.tiles.whole_tiles()]

    def _describe(self) -> str:
        shape = f"{len(self.tiles.rows)}x{len(self.tiles.cols)}"
        bias = "analog" if self.analog_bias else str(self.bias is not None)
        scaling = self.tiles.scaling
        by = "widths" if scaling is not None and scaling.by_width else "weights"
        scaled = "" if scaling is None else f", {by} up to {scaling.omega:g} per {scaling.per}"
        return f"bias={bias}, config={self.config.summary()}, tiles={shape}{scaled}"
