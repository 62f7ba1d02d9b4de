"""Refusals that all modules with weights in tiles have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import torch
from torch import nn

from pulsora.nn.autograd.tile_product import NOT_TRACED

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["TiledModule"]


class TiledModule(nn.Module):
    """A module whose weights are in tiles, where torch can neither mask nor script them."""

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """Registers a parameter of torch.

        Raises:
            RuntimeError: for the weight that pruning would put in the place of the tiles.
        """
        if name.endswith("_orig") and name.startswith(("weight", "analog_weight")):
            raise RuntimeError(
                f"the weights of {type(self).__name__} are in tiles, which cannot be pruned or "
                "reparametrized (torch.nn.utils.prune, weight_norm, spectral_norm); write pruned "
                "weights by set_weights, or prune the digital layer, remove its masks by "
                "prune.remove, and convert it"
            )
        super().register_parameter(name, param)

    def _own_bias(self, name: str) -> Tensor | None:
        """Returns a digital bias, also where torch computes it from others (pruning)."""
        own = self._parameters.get(name)
        if own is None and (name in self.__dict__ or hasattr(type(self), name)):
            own = getattr(self, name)
        return own

    def _converted_bias(self, name: str, values: Tensor | None) -> Tensor | None:
        """Returns values like a digital bias, so that a later write cannot fail; None without."""
        own = self._own_bias(name)
        return None if own is None or values is None else values.detach().to(own)

    @torch.no_grad()
    def _write_bias(self, name: str, values: Tensor | None) -> None:
        """Writes a digital bias, if the module has one; a pruned bias keeps its mask."""
        own = self._own_bias(name)
        if own is None or values is None:
            return
        if name not in self._parameters and name not in self.__dict__:
            setattr(self, name, values.to(own))  # a parametrization of torch takes it apart
            return
        pruned = self._parameters.get(f"{name}_orig")
        if pruned is not None:
            pruned.copy_(values)
            values = values.to(own) * self._buffers[f"{name}_mask"]  # type: ignore[operator]
        own.copy_(values)

    def __prepare_scriptable__(self) -> NoReturn:
        """Raises RuntimeError, as torch.jit.script asks for the module."""
        raise RuntimeError(NOT_TRACED)
