"""The weights of a model as its optimiser sees them: digital, or in tiles that pulses move."""

from __future__ import annotations

import copy
import math
import warnings
from typing import TYPE_CHECKING, Any

import torch

from pulsora.nn.autograd.analog_parameter import AnalogParameter
from pulsora.nn.base import AnalogModule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor, nn

    from pulsora.nn.tiles.tile_array import TileArray
    from pulsora.tile import Tile

__all__ = ["Weights"]

_LOST = 1e-3  # share of a written product that pulse trains may fail to carry
_MOST_TRAINS = 4096  # pulse trains of the strongest outer product


class Weights:
    """All parameters that an optimiser trains, in its order.

    Args:
        model: The model.
        optimizer: Its optimiser.
        rank: Moves of weights in tiles are cut to this rank, which is the number of outer products
            per move of a tile; None writes them column by column, uncut.

    Raises:
        ValueError: if the optimiser has parameters that are not the model's.
    """

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, rank: int | None
    ) -> None:
        self.rank = rank
        places = {id(parameter): place for place, parameter in enumerate(model.parameters())}
        given = [each for group in optimizer.param_groups for each in group["params"]]
        self._parameters: list[nn.Parameter] = [
            parameter for parameter in _bias_first(model, given) if parameter.requires_grad
        ]
        strange = [tuple(p.shape) for p in self._parameters if id(p) not in places]
        if strange:
            raise ValueError(
                f"optimizer trains parameters of shapes {strange}, which the model does not have; "
                "make it from model.parameters()"
            )
        if not self._parameters:
            raise ValueError("optimizer has no parameter that requires a gradient")
        self._places = [places[id(parameter)] for parameter in self._parameters]

    @property
    def shapes(self) -> list[list[int]]:
        """The shapes of all weights."""
        return [list(parameter.shape) for parameter in self._parameters]

    @property
    def arrays(self) -> list[TileArray]:
        """Arrays of tiles with weights, each once."""
        return [p.array for p in self._parameters if isinstance(p, AnalogParameter)]

    @property
    def adapted(self) -> bool:
        """Whether tiles have pulsed low-rank adapters."""
        return any(tile.adapter is not None for array in self.arrays for tile in array)

    def warn_of_adapters(self) -> None:
        """Warns the caller's caller if tiles have pulsed low-rank adapters, which moves harm."""
        if self.adapted:
            warnings.warn(
                "the model has tiles with adapters: each jump, and writing the average, ends a "
                "cycle of theirs early by a noisy transfer, which cost more than it saved where it "
                "was measured; consider forecaster='none', average=False",
                stacklevel=3,
            )

    @property
    def pulses(self) -> int:
        """Pulses that the tiles have had so far."""
        return sum(int(tile.statistics()["pulses"]) for array in self.arrays for tile in array)

    @torch.no_grad()
    def read(self) -> list[Tensor]:
        """Copies of all weights, in single precision at least. Tiles are read perfectly."""
        return [
            p.array.get_weights() if isinstance(p, AnalogParameter) else _precise(p)
            for p in self._parameters
        ]

    @torch.no_grad()
    def move(self, deltas: list[Tensor]) -> None:
        """Adds a change, exactly to digital weights, by pulses to weights in tiles."""
        for parameter, delta in zip(self._parameters, deltas, strict=True):
            if isinstance(parameter, AnalogParameter):
                _move_array(parameter.array, delta, self.rank)
            else:
                parameter.add_(delta.to(parameter.dtype))

    @torch.no_grad()
    def approach(self, target: list[Tensor]) -> None:
        """Sets digital weights to the target, and moves weights in tiles there by pulses."""
        for parameter, wanted in zip(self._parameters, target, strict=True):
            if isinstance(parameter, AnalogParameter):
                _move_array(parameter.array, wanted - parameter.array.get_weights(), self.rank)
            else:
                parameter.copy_(wanted)

    @torch.no_grad()
    def losses_at(
        self,
        points: Iterable[list[Tensor]],
        model: nn.Module,
        loss: Callable[[nn.Module, Any], Tensor],
        batches: list[Any],
    ) -> list[Tensor]:
        """The losses of batches at each of some weights, written digitally to a copy of the model.

        torch's random numbers are left as they were, so that every point draws the same.
        """
        twin = copy.deepcopy(model)
        return [self._losses_of(twin, values, loss, batches) for values in points]

    def _losses_of(
        self,
        twin: nn.Module,
        values: list[Tensor],
        loss: Callable[[nn.Module, Any], Tensor],
        batches: list[Any],
    ) -> Tensor:
        parameters = list(twin.parameters())
        for place, value in zip(self._places, values, strict=True):
            parameter = parameters[place]
            if isinstance(parameter, AnalogParameter):
                parameter.array.set_weights(value)
            else:
                parameter.copy_(value)
        devices = sorted({value.device.index for value in values if value.device.type == "cuda"})
        with torch.random.fork_rng(devices):
            return torch.stack([loss(twin, batch) for batch in batches])


def _bias_first(model: nn.Module, parameters: list[nn.Parameter]) -> list[nn.Parameter]:
    """Puts the bias of an analog layer before its weight: the order in all saved trainings."""
    biases = {
        id(layer.carrier): layer.bias
        for layer in model.modules()
        if isinstance(layer, AnalogModule)
    }
    ordered = list(parameters)
    for i, parameter in enumerate(parameters[:-1]):
        if biases.get(id(parameter)) is parameters[i + 1]:
            ordered[i : i + 2] = parameters[i + 1], parameter
    return ordered


def _precise(parameter: Tensor) -> Tensor:
    wide = torch.promote_types(parameter.dtype, torch.float32)
    return parameter.detach().to(wide, copy=True)


def _move_array(array: TileArray, delta: Tensor, rank: int | None) -> None:
    """Moves the weights of tiles by pulses; each tile takes its own part."""
    change = delta if array.scales is None else delta / array.scales[:, None]
    for row, tiles in zip(array.rows, array.grid, strict=True):
        for col, tile in zip(array.cols, tiles, strict=True):
            _move_tile(tile, change[row, col], rank)


def _move_tile(tile: Tile, delta: Tensor, rank: int | None) -> None:
    left, right = _factors(delta, rank)
    if tile.adapter is None:
        _send(tile, left, right)
    else:
        _transfer(tile, left, right)


def _factors(delta: Tensor, rank: int | None) -> tuple[Tensor, Tensor]:
    """d [k, rows] and x [k, columns] with delta = d^T x, or its best approximation of this rank."""
    if not bool(delta.any()):
        return delta.new_zeros(0, delta.shape[0]), delta.new_zeros(0, delta.shape[1])
    if rank is None:
        return delta.T.contiguous(), torch.eye(delta.shape[1], device=delta.device)
    U, S, V = torch.linalg.svd(delta, full_matrices=False)
    root = S[:rank].sqrt()
    return (U[:, :rank] * root).T.contiguous(), (root[:, None] * V[:rank]).contiguous()


def _send(tile: Tile, left: Tensor, right: Tensor) -> None:
    """Adds d^T x to the weights of a tile; each outer product takes the pulse trains it needs."""
    largest_d, largest_x = left.abs().amax(1), right.abs().amax(1)
    sent = largest_d * largest_x > 0.0
    if not bool(sent.any()):
        return
    balance = (largest_x[sent] / largest_d[sent]).sqrt()[:, None]
    d, x = -balance * left[sent], right[sent] / balance
    strength = largest_d[sent] * largest_x[sent]
    top = int(strength.argmax())
    trains = 1
    while trains < _MOST_TRAINS and _lost(tile, x[top], d[top], 1.0 / trains) > _LOST:
        trains *= 2
    counts = (trains * strength / strength[top]).ceil().clamp_min(1.0)
    share, times = counts.rsqrt()[:, None], counts.long()
    tile.update(
        (x * share).repeat_interleave(times, 0),
        (d * share).repeat_interleave(times, 0),
        1.0,
        end_of_batch=False,
    )


def _lost(tile: Tile, x: Tensor, d: Tensor, lr: float) -> float:
    """The share of an update that its pulse trains would not carry."""
    values = tile.explain(x[None].contiguous(), d[None].contiguous(), lr)
    return float(values.get("undelivered", 0.0))


def _transfer(tile: Tile, left: Tensor, right: Tensor) -> None:
    """Adds d^T x to the visible array of a tile with an adapter, by transfers of A B.

    The factors take the place of A and B: their own values are transferred first, as at the end of
    any cycle, and B has its directions back afterwards.
    """
    adapter = tile.adapter
    if adapter is None or len(left) == 0:
        return
    gain = _transfer_gain(tile)
    if gain == 0.0:
        raise ValueError("transfer_lr is 0: a move of the weights cannot be transferred")
    adapter.transfer()
    directions = adapter.b
    swapped = bool(tile.config.to_dict()["swap_xd"])
    outer, inner = (right, left) if swapped else (left, right)  # of A, of B
    limit = math.sqrt(_smallest_bound(tile, "fast_a") * _smallest_bound(tile, "fast_b"))
    columns: list[tuple[Tensor, Tensor]] = []
    for a, b in zip(outer.cpu(), inner.cpu(), strict=True):
        largest_a, largest_b = float(a.abs().max()), float(b.abs().max())
        times = max(math.ceil(largest_a * largest_b / (abs(gain) * limit**2)), 1)
        # Both factors fill the same share of the bounds of their cells.
        fill = math.sqrt(largest_a * largest_b / (abs(gain) * times)) / limit
        bound_a, bound_b = _smallest_bound(tile, "fast_a"), _smallest_bound(tile, "fast_b")
        sign = math.copysign(1.0, gain)
        columns += times * [
            (a * (sign * fill * bound_a / largest_a), b * (fill * bound_b / largest_b))
        ]
    for first in range(0, len(columns), adapter.rank):
        part = columns[first : first + adapter.rank]
        matrix_a = torch.zeros(adapter.a.shape)
        matrix_b = torch.zeros(adapter.b.shape)
        for number, (a, b) in enumerate(part):
            matrix_a[:, number] = a
            matrix_b[number] = b
        adapter.a, adapter.b = matrix_a.numpy(), matrix_b.numpy()
        adapter.transfer()
    adapter.b = directions


def _transfer_gain(tile: Tile) -> float:
    x = torch.zeros(1, tile.x_size, device=tile.device)
    d = torch.zeros(1, tile.d_size, device=tile.device)
    return float(tile.explain(x, d, 1.0)["transfer_lr"])


def _smallest_bound(tile: Tile, array: str) -> float:
    """The largest value that every cell of an array can hold with either sign."""
    cells = tile.describe_cells(array)
    return float(min(cells["w_max"].min(), (-cells["w_min"]).min()))
