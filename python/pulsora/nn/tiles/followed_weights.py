"""Tiles whose cells follow a parameter of torch by pulses."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from pulsora.nn.tiles.group_products import gradient_of
from pulsora.nn.tiles.held_weights import version_of
from pulsora.nn.tiles.layer_names import named_errors
from pulsora.nn.tiles.tile_read import parameter_for_tile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor, nn

    from pulsora.nn.tiles.tile_array import TileArray
    from pulsora.nn.tiles.tile_read import ReadPosition

__all__ = [
    "FollowedWeights",
    "expect_copies",
    "follow_after_steps",
    "follow_all",
    "followed_layers",
]


class FollowedWeights:
    """Tiles whose cells follow a parameter of torch, the digital weight, by pulses.

    Reads see the cells. Each change of the parameter ends a mini-batch of the tiles: cells that lag
    behind by whole steps are pulsed. This happens after a step of an optimiser, or else before the
    next read, because torch counts writes to a tensor. It does not count writes through `.data`,
    which are seen after a step of an optimiser alone.

    Args:
        array: The tiles, of a kind whose facts say `follows`.
    """

    def __init__(self, array: TileArray) -> None:
        self.array = array
        self._version: tuple[int, int] | None = None  # of the values that were followed last
        self._kept: Tensor | None = None
        self._is_read = False  # since cells followed last

    def move(self, device: torch.device) -> None:
        """Moves the tiles; see `TileArray.move` for errors."""
        self.array.move(device)

    def follow(self, weight: Tensor, *, is_stepped: bool = False) -> None:
        """Lets cells follow the parameter, if it has changed since they did so last.

        `is_stepped` says that an optimiser has just made a step, perhaps through `.data`. It counts
        once after each read, because optimisers may wrap others.
        """
        if self._version == version_of(weight) and not (is_stepped and self._is_read):
            return
        kept, self._kept = self._kept, None
        if kept is not None and torch.equal(kept, weight):
            self.followed(weight)
            return
        with named_errors(self.array):
            self._send(weight)
        self.followed(weight)

    def expect_copy(self, weight: Tensor) -> None:
        """Prepares for a write of equal values to the parameter, which is then no change.

        DistributedDataParallel writes the values of rank 0 to all ranks when it is made, and
        `load_state_dict` writes a parameter of several layers once for each.
        """
        if self._version == version_of(weight):
            self._kept = weight.detach().clone()

    @torch.no_grad()
    def _send(self, weight: Tensor) -> None:
        """Lets the tiles follow; InputError on the CPU for weights that are not finite."""
        array = self.array
        values = weight.detach().reshape(array.shape)
        if array.scales is not None:
            values = values / array.scales[:, None]
        array.changes += 1
        if array.groups == 1:
            array.together.follow(parameter_for_tile(values))
            return
        for row, col, tile in array.parts():
            part = parameter_for_tile(values[row, col])
            tile._core.follow(part)  # noqa: SLF001 - of this package

    def followed(self, weight: Tensor) -> None:
        """Takes note that the cells stand for these values of the parameter."""
        self._version = version_of(weight)
        self._kept = None
        self._is_read = False

    def is_followed(self, weight: Tensor) -> bool:
        """Whether the cells have followed these values of the parameter."""
        return self._version == version_of(weight)

    def before_read(self, weight: Tensor, *, evaluation: bool) -> None:  # noqa: ARG002
        """Prepares the tiles for a read."""
        self.follow(weight)
        self._is_read = True

    def before_backward(self, weight: Tensor, noted: None) -> None:
        """Prepares the tiles for a backward read, which sees the cells as they are."""

    def noted(self, position: ReadPosition) -> None:
        """Notes nothing: a backward read has to know nothing of its forward read."""

    def converted(self, x: Tensor) -> Tensor:
        """Returns the inputs that the gradient of the digital weight takes: those of the layer."""
        return x

    def gradient(self, x: Tensor, d: Tensor) -> Tensor:
        """Returns d^T x [out_features, in_features], of each group for itself."""
        return gradient_of(self.array, x, d)


_layers: weakref.WeakSet[nn.Module] = weakref.WeakSet()
_hooks: list[Any] = []


def follow_after_steps(layer: nn.Module) -> None:
    """Lets a WeightCarrier follow its weight after each step of an optimiser that has it."""
    _layers.add(layer)
    if not _hooks:  # once in a process, for all optimisers
        _hooks.append(register_optimizer_step_post_hook(_follow))


def expect_copies(weight: Tensor) -> None:
    """Prepares all layers with this parameter for a write of equal values to it."""
    for layer in list(_layers):
        if layer.carrier is weight:
            layer.held.expect_copy(weight)  # type: ignore[union-attr, operator]


def _follow(optimizer: torch.optim.Optimizer, _arguments: object, _options: object) -> None:
    if not _layers:
        return
    theirs = {id(each) for group in optimizer.param_groups for each in group["params"]}
    for layer in list(_layers):
        weight: Any = layer.carrier
        if id(weight) in theirs:
            is_stepped = weight.grad is not None
            layer.held.follow(weight, is_stepped=is_stepped)  # type: ignore[union-attr, operator]


def followed_layers(model: nn.Module) -> list[Any]:
    """Returns the layers of a model whose cells follow a parameter of torch."""
    return [
        each for each in model.modules() if isinstance(getattr(each, "held", None), FollowedWeights)
    ]


def follow_all(layers: Iterable[Any]) -> None:
    """Lets these layers follow their weights."""
    for layer in layers:
        layer.held.follow(layer.carrier)
