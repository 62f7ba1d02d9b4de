"""The carrier of a layer's weight: cells that pulses change, or a parameter of torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from pulsora.nn.autograd.analog_parameter import AnalogParameter
from pulsora.nn.autograd.tile_product import NOT_TRACED
from pulsora.nn.clipping import clip_after_steps
from pulsora.nn.tiled_module import TiledModule
from pulsora.nn.tiles.held_weights import HeldWeights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from pulsora.nn.tiles.tile_array import TileArray

__all__ = ["WeightCarrier"]


class WeightCarrier(TiledModule):
    """A module whose weight is in cells (`analog_weight`), or a parameter of torch (`weight`).

    The configuration's facts decide: with `digital_weight`, `weight` is a parameter that any
    optimiser of torch trains, and its values are written to the tiles before each read.
    """

    held: HeldWeights | None = None
    """The tiles of a weight that is a parameter of torch; None for weights in cells."""

    def _carry(self, array: TileArray) -> None:
        """Registers the weight, first among the parameters."""
        if not array.facts.digital_weight:
            self.register_parameter("analog_weight", AnalogParameter(array))
            return
        self.held = HeldWeights(array)
        # The class has a property of this name, so that torch's register_parameter refuses it.
        self._parameters["weight"] = nn.Parameter(torch.zeros(array.shape, device=array.device))
        clip_after_steps(self)

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
            raise RuntimeError(NOT_TRACED)  # noqa: TRY004 - torch.export and torch.func did it
        return weight.array

    def _share(self, other: WeightCarrier) -> None:
        """Takes the weight of another layer; weights in cells bring their tiles along."""
        name = "analog_weight" if self.held is None else "weight"
        self._parameters[name] = other.carrier

    @torch.no_grad()
    def _write_matrix(self, matrix: Tensor) -> None:
        """Writes weights [out_features, in_features]."""
        if self.held is None:
            self._tiles().set_weights(matrix)
        else:
            weight = self.carrier
            weight.copy_(matrix.reshape(weight.shape))

    def _read_matrix(self) -> Tensor:
        """Returns a copy of the weights [out_features, in_features].

        Of cells, these are the weights that a perfect read would see.
        """
        if self.held is None:
            return self._tiles().get_weights()
        return self.carrier.detach().reshape(self.held.array.shape).float().clone()

    def _shape_weight(self, shape: Sequence[int]) -> None:
        """Gives a weight that is a parameter of torch the shape that it has in torch's layer."""
        if self.held is not None:
            self._parameters["weight"] = nn.Parameter(self.carrier.detach().reshape(*shape))
