"""The carrier of a layer's weight: cells that pulses change, or a parameter of torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from pulsora import _core
from pulsora.nn.autograd.analog_parameter import AnalogParameter
from pulsora.nn.autograd.input_range import Decay, with_range
from pulsora.nn.autograd.master_product import read_held
from pulsora.nn.autograd.tile_product import NOT_TRACED, not_traced
from pulsora.nn.autograd.weight_limit import with_limit
from pulsora.nn.clipping import clip_after_steps, limit_of
from pulsora.nn.options import place_of
from pulsora.nn.tiled_module import TiledModule
from pulsora.nn.tiles.first_transfer import warn_of_early_save
from pulsora.nn.tiles.followed_weights import (
    FollowedWeights,
    expect_copies,
    follow_after_steps,
)
from pulsora.nn.tiles.held_weights import HeldWeights

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from pulsora.nn.tiles.tile_array import TileArray

__all__ = ["WeightCarrier"]


class WeightCarrier(TiledModule):
    """A module whose weight is in cells (`analog_weight`), or a parameter of torch (`weight`).

    The configuration's facts decide: with `digital_weight`, `weight` is a parameter that any
    optimiser of torch trains. Its values are written to the tiles before each read, or with
    `follows`, the cells follow it by pulses after each step.
    """

    held: HeldWeights | FollowedWeights | None = None
    """The tiles of a weight that is a parameter of torch; None for weights in cells."""

    _range_version: int | None = None
    """The version of `input_range` at which it was positive."""

    digital_dtype: torch.dtype = torch.float32
    """The type of the layer after `convert_to_digital`; old pickles have this default."""

    def _carry(self, array: TileArray, input_range: float | None = None) -> None:
        """Registers the weight, first among the parameters, and the range of the inputs, if any."""
        if not array.facts.digital_weight:
            self.register_parameter("analog_weight", AnalogParameter(array))
            return
        self.held = FollowedWeights(array) if array.facts.follows else HeldWeights(array)
        # The class has a property of this name, so that torch's register_parameter refuses it.
        self._parameters["weight"] = nn.Parameter(torch.zeros(array.shape, device=array.device))
        if input_range is not None:
            size = torch.full((1,), input_range, device=array.device)
            self._parameters["input_range"] = nn.Parameter(size)
        if getattr(array.config, "clip", "none") == "learned":
            limits = torch.ones(array.shape[0], device=array.device)
            self._parameters["weight_clip"] = nn.Parameter(limits)
        self._after_steps()

    def _after_steps(self) -> None:
        """Registers what happens after a step of any optimiser that has the weight."""
        if isinstance(self.held, FollowedWeights):
            follow_after_steps(self)
        else:
            clip_after_steps(self)

    def _read_held(
        self, x: Tensor, bias: Tensor | None, rows: tuple[Sequence[int], int, bool]
    ) -> Tensor:
        """Reads y = W x + bias from tiles that hold a parameter, as `read_held` does."""
        if self.held is None:
            raise RuntimeError("the weight is in cells")
        if isinstance(self.held, FollowedWeights):
            return read_held(x, self.carrier, bias, self.held, rows)
        if self.held.exact is not None:
            self.held.exact(x)
            y = self.held.product(x, self.carrier)
            return y if bias is None else y + bias
        steps = rows[1]
        if self.held.points > 1 and steps > 1 and len(x) % (steps * self.held.points) == 0:
            # The rows of a point are together, as if the point were read alone.
            y = self._read_ranged(self.held.by_points(x, steps), bias, rows)
            return self.held.by_steps(y, steps)
        return self._read_ranged(x, bias, rows)

    def _read_ranged(
        self, x: Tensor, bias: Tensor | None, rows: tuple[Sequence[int], int, bool]
    ) -> Tensor:
        """Reads tiles whose inputs have a range that may be the layer's parameter."""
        if not isinstance(self.held, HeldWeights):
            raise RuntimeError("the weight is no parameter that tiles hold")  # noqa: TRY004
        if self.held.affine is not None:
            gain, offset = self.held.affine
            corrected: Tensor = gain * self._read_converted(x, None, rows) + offset
            return corrected if bias is None else corrected + bias
        return self._read_converted(x, bias, rows)

    def read(self, x: Tensor) -> Tensor:
        """Reads W x [m, out_features] for rows x that go to the tiles, without bias, in eval()."""
        return self._read_held(x, None, ((len(x),), 1, False))

    def _read_converted(
        self, x: Tensor, bias: Tensor | None, rows: tuple[Sequence[int], int, bool]
    ) -> Tensor:
        if not isinstance(self.held, HeldWeights):
            raise RuntimeError("the weight is no parameter that tiles hold")  # noqa: TRY004
        weight: Tensor = self.carrier
        clip = self.weight_clip
        if clip is not None and weight.requires_grad and torch.is_grad_enabled():
            weight = with_limit(weight, clip)
        limit = self.input_range
        if limit is None:
            return read_held(x, weight, bias, self.held, rows)
        self.require_range()
        size = limit.detach()
        size = size.float().clamp(min=1e-30)
        config: Any = self.held.array.config
        rule = config.range_gradient
        rounds = rule == "lsq" and torch.is_grad_enabled()
        seen = self.held.converted(x.detach() / size) if rounds else None
        decay = Decay(config.range_decay, config.range_inside) if rule == "one_sided" else None
        scaled = with_range(x, limit, seen=seen, decay=decay) / size
        y = read_held(scaled, weight, None, self.held, rows) * size
        return y if bias is None else y + bias

    def require_range(self) -> None:
        """Raises StateError if the inputs have a range that is not positive yet."""
        limit = self.input_range
        if limit is None:
            return
        version = 0 if limit.is_inference() else limit._version  # noqa: SLF001 - of torch
        seen = self._range_version
        if seen == version or (seen is not None and limit.is_cuda and self.training):
            return  # a GPU has to be waited for: not in each step of training
        size = float(limit.detach())
        if not size > 0.0:
            name = self._tiles().name or type(self).__name__
            raise _core.StateError(
                f"layer {name} has the input range {size:g}; call "
                "pulsora.inference.calibrate(model, batches) first, or set layer.input_range "
                "to a positive number"
            )
        self._range_version = version

    @property
    def input_range(self) -> nn.Parameter | None:
        """The range of the DACs, [1], that is calibrated and learned; None for other scales."""
        return self._parameters.get("input_range")

    @property
    def weight_clip(self) -> nn.Parameter | None:
        """The learned limit of each output's weights, [out_features]; None for other limits."""
        return self._parameters.get("weight_clip")

    @property
    def carrier(self) -> nn.Parameter:
        """The parameter that carries the weight: `analog_weight`, or `weight`."""
        found = self._parameters.get("analog_weight" if self.held is None else "weight")
        if found is None:
            raise RuntimeError(NOT_TRACED)
        return found

    def _tiles(self) -> TileArray:
        if self.held is not None:
            return self.held.array
        weight = self.carrier
        if not isinstance(weight, AnalogParameter):
            raise not_traced()
        return weight.array

    def _set_carrier(self, carrier: nn.Parameter) -> None:
        """Has another parameter carry the weight, of the same kind and shape."""
        self._parameters["analog_weight" if self.held is None else "weight"] = carrier

    def _share(self, other: WeightCarrier) -> None:
        """Takes the weight of another layer; weights in cells bring their tiles along."""
        self._set_carrier(other.carrier)
        if other.weight_clip is not None:
            self._parameters["weight_clip"] = other.weight_clip

    @torch.no_grad()
    def _write_matrix(self, matrix: Tensor) -> None:
        """Writes weights [out_features, in_features]."""
        follows = isinstance(self.held, FollowedWeights)
        if self.held is None or follows:
            self._tiles().set_weights(matrix)
        if self.held is not None:
            weight = self.carrier
            weight.copy_(matrix.reshape(weight.shape))
            self._begin_clip()
            self._tiles().awaits_weights = False
        if follows:
            self.held.followed(weight)  # type: ignore[union-attr]

    @torch.no_grad()
    def _begin_clip(self) -> None:
        """Lets learned limits start from the present weights."""
        if self.held is not None and self.weight_clip is not None:
            limit = limit_of(self.carrier, self.held.array.config)
            self.weight_clip.copy_(limit.flatten())  # type: ignore[union-attr]

    def _read_matrix(self) -> Tensor:
        """Returns a copy of the weights [out_features, in_features].

        Of cells, these are the weights that a perfect read would see.
        """
        if isinstance(self.held, FollowedWeights):
            self.held.follow(self.carrier)
        if self.held is None or isinstance(self.held, FollowedWeights):
            return self._tiles().get_weights()
        self.held.array.require_weights()
        return self.carrier.detach().reshape(self.held.array.shape).float().clone()

    def _shape_weight(self, shape: Sequence[int]) -> None:
        """Gives a weight that is a parameter of torch the shape that it has in torch's layer."""
        if self.held is not None:
            is_followed = self._is_followed()
            self._parameters["weight"] = nn.Parameter(self.carrier.detach().reshape(*shape))
            self._keep_followed(is_followed)

    def _is_followed(self) -> bool:
        return isinstance(self.held, FollowedWeights) and self.held.is_followed(self.carrier)

    def _keep_followed(self, is_followed: bool) -> None:
        """Takes note that a parameter in other memory has the values that cells follow."""
        if is_followed:
            self.held.followed(self.carrier)  # type: ignore[union-attr]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> WeightCarrier:
        # The probe's device is the tiles' new device; the numbers in tiles keep their type.
        probe = fn(torch.empty(0, dtype=self.digital_dtype, device=self._tiles().device))
        if probe.device.type == "cpu" and probe.is_shared():  # type: ignore[no-untyped-call]
            raise RuntimeError("the tiles of an analog layer cannot be shared between processes")
        place = place_of(probe.device)
        if place != self._tiles().device:
            self._tiles().require_weights()
        if self.held is not None:
            is_followed = self._is_followed()
            if place != self._tiles().device:
                self.held.move(place)
            super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
            self._keep_followed(is_followed)
            self.digital_dtype = probe.dtype
            return self
        if place != self._tiles().device:
            self.carrier.move(place)  # type: ignore[attr-defined]
        weight = self._parameters.pop("analog_weight")
        try:
            super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        finally:
            self._put_first(weight)
        self.digital_dtype = probe.dtype
        return self

    def _put_first(self, weight: nn.Parameter | None) -> None:
        others = dict(self._parameters)
        self._parameters.clear()
        self._parameters.update({"analog_weight": weight} | others)

    def __getstate__(self) -> dict[str, Any]:
        """Returns the members, after cells have followed the weight."""
        if isinstance(self.held, FollowedWeights):
            self.held.follow(self.carrier)
        return vars(self).copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        if self.held is not None:
            self._after_steps()
            self._keep_followed(isinstance(self.held, FollowedWeights))
            return
        self._put_first(self._parameters.pop("analog_weight"))  # not so in earlier versions

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        warn_of_early_save(self._tiles(), stacklevel=4)
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination.pop(f"{prefix}analog_weight", None)
        if isinstance(self.held, FollowedWeights):
            self.held.follow(self.carrier)
        saved = self.held if isinstance(self.held, HeldWeights) else self._tiles()
        for name, tensor in saved.state_tensors().items():
            destination[f"{prefix}tiles.{name}"] = tensor

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        ours = {name: value for name, value in state_dict.items() if name.startswith(prefix)}
        start = f"{prefix}tiles."
        tiles = {n.removeprefix(start): ours.pop(n) for n in list(ours) if n.startswith(start)}
        if self.held is not None and not self._takes_held(ours, tiles, prefix, error_msgs):
            return
        if tiles and isinstance(self.held, FollowedWeights):
            expect_copies(self.carrier)  # other layers may have it, and may be loaded already
        missing: list[str] = []
        super()._load_from_state_dict(
            ours, prefix, local_metadata, strict, missing, unexpected_keys, error_msgs
        )
        missing_keys += self._lacking(missing, prefix, is_digital=not tiles)
        if self.held is not None:
            self._range_version = None
            if tiles:
                self._keep_followed(isinstance(self.held, FollowedWeights))
            elif isinstance(self.held, FollowedWeights):
                self._write_matrix(self.carrier.detach().reshape(self.held.array.shape))
            elif f"{prefix}weight" in ours:
                self._tiles().awaits_weights = False
            return
        if not tiles:
            missing_keys.append(f"{start}*")
            if f"{prefix}weight" in state_dict:
                error_msgs.append(
                    f"{prefix}weight is of a digital layer, but this one is analog: load the state "
                    "into the digital model and convert that by pulsora.convert_to_analog, or call "
                    "set_weights(weight, bias) of the layer"
                )
            return
        try:
            self._tiles().load_state_tensors(tiles)
            self.analog_weight.grad = None  # a gradient of other weights
        except (ValueError, RuntimeError) as error:
            error_msgs.append(f"{prefix.rstrip('.') or 'the layer'}: {error}")

    def _lacking(self, missing: Sequence[str], prefix: str, *, is_digital: bool) -> list[str]:
        """Returns which of the missing parameters a state lacks; torch's layer has no limits."""
        limits = f"{prefix}weight_clip"
        if is_digital and limits in missing:
            self._begin_clip()
        made = {f"{prefix}analog_weight", *([limits] if is_digital else [])}
        return [name for name in missing if name not in made]

    def _takes_held(
        self,
        ours: Mapping[str, Any],
        tiles: Mapping[str, Tensor],
        prefix: str,
        error_msgs: list[str],
    ) -> bool:
        """Loads the tiles of a weight that is a parameter, if its values can be loaded with them.

        A state of torch's layer has no tiles.
        """
        for name in (f"{prefix}weight", f"{prefix}input_range", f"{prefix}weight_clip"):
            if not _is_finite(ours.get(name)):
                error_msgs.append(f"{name} has no values, or some not finite; it was not loaded")
                return False
        if not tiles:
            return True
        weight = ours.get(f"{prefix}weight")
        if isinstance(self.held, FollowedWeights) and (
            not isinstance(weight, torch.Tensor) or weight.shape != self.carrier.shape
        ):
            error_msgs.append(
                f"{prefix}weight is missing or has another shape than {list(self.carrier.shape)}, "
                "and the tiles of the state follow it; nothing of the layer was loaded"
            )
            return False
        saved = self.held if isinstance(self.held, HeldWeights) else self._tiles()
        try:
            saved.load_state_tensors(tiles)
        except (ValueError, RuntimeError) as error:
            error_msgs.append(f"{prefix.rstrip('.') or 'the layer'}: {error}")
            return False
        return True


def _is_finite(weight: object) -> bool:
    """Whether a tensor of a state, if there is one, has finite values alone."""
    if not isinstance(weight, torch.Tensor):
        return True  # torch refuses what is no tensor
    if weight.is_meta or weight.layout is not torch.strided or weight.is_quantized:
        return False
    return bool(torch.isfinite(weight).all())
