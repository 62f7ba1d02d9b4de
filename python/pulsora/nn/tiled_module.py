"""Refusals of modules whose weights are elsewhere: in tiles, or in the base of an adapter."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized, register_parametrization

from pulsora.nn.autograd.tile_product import NOT_TRACED

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["TiledModule", "WeightElsewhere"]


class _Parameters(dict[str, Any]):
    """The parameters of a module; asking for a weight, which is no parameter, says where it is.

    The older functions of torch.nn.utils (weight_norm, spectral_norm) ask for it.
    """

    where: str = ""

    def __missing__(self, name: str) -> NoReturn:
        if not name.startswith("weight"):
            raise KeyError(name)
        # Of the functions above, this local variable is the module with these parameters.
        module = sys._getframe(1).f_locals.get("module")  # noqa: SLF001 - documented for CPython
        if isinstance(module, WeightElsewhere) and module._parameters is self:  # noqa: SLF001
            raise RuntimeError(module.where_weights_are())
        raise RuntimeError(self.where)

    def __delitem__(self, name: str) -> None:
        if name not in self:
            self.__missing__(name)
        super().__delitem__(name)


class WeightElsewhere(nn.Module):
    """A module with an attribute `weight` that is no parameter, so that torch cannot replace it."""

    weight_is: ClassVar[str] = "the weight of {} is no parameter"
    """The error of functions that want to replace it, about a layer of this description."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        parameters = _Parameters()
        parameters.where = self.weight_is.format(type(self).__name__)
        vars(self)["_parameters"] = parameters

    @property
    def parametrizations(self) -> nn.Module:
        """Parametrizations of torch, which a bias may have.

        Raises:
            RuntimeError: to `register_parametrization` for the weight, which asks for them first.
            AttributeError: to others, if there are none.
        """
        found = self._modules.get("parametrizations")
        if found is not None:
            return found
        asks = sys._getframe(1)  # noqa: SLF001 - documented for CPython
        if (
            asks.f_code is is_parametrized.__code__
            and str(asks.f_locals["tensor_name"]).startswith("weight")
            and asks.f_back is not None
            and asks.f_back.f_code is register_parametrization.__code__
        ):
            raise RuntimeError(self.where_weights_are())
        raise AttributeError("parametrizations")

    @property
    def described(self) -> str:
        """The layer in errors."""
        return type(self).__name__

    def where_weights_are(self) -> str:
        """Returns the error of functions that want to replace the weight."""
        return self.weight_is.format(self.described)

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """Registers a parameter of torch.

        Raises:
            RuntimeError: for the weight that pruning would put in the place of `weight`.
        """
        if name.endswith("_orig") and name.startswith(("weight", "analog_weight")):
            raise RuntimeError(self.where_weights_are())
        super().register_parameter(name, param)


class TiledModule(WeightElsewhere):
    """A module whose weights are in tiles, where torch can neither mask nor script them."""

    weight_is = (
        "the weights of {} are in tiles, which cannot be pruned or reparametrized "
        "(torch.nn.utils.prune, weight_norm, spectral_norm, parametrizations); write pruned "
        "weights by set_weights, or prune the digital layer, remove its masks by prune.remove, and "
        "convert it; convert_to_analog leaves layers with parametrizations digital"
    )

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
