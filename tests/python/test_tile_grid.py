"""Layers of many tiles: one call for all of them, with the bits of the tiles one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import pulsora as pl
from pulsora import _core
from pulsora.nn import TileArray
from pulsora.optim import AnalogSGD

if TYPE_CHECKING:
    from collections.abc import Callable

LIMITS: dict[str, Any] = {"seed": 3, "max_input_size": 7, "max_output_size": 5}


def lrtt() -> pl.LRTTConfig:
    return pl.LRTTConfig(rank=2, visible=pl.devices.SoftBounds(), transfer_every=2)


def linear() -> tuple[nn.Module, torch.Tensor]:
    return pl.nn.AnalogLinear(17, 9, config=lrtt(), **LIMITS), torch.randn(6, 17)


def scaled() -> tuple[nn.Module, torch.Tensor]:
    layer = pl.nn.AnalogLinear(
        17, 9, config=lrtt(), weight_scaling="abs_max", scaling_per="output", **LIMITS
    )
    return layer, torch.randn(6, 17)


def groups() -> tuple[nn.Module, torch.Tensor]:
    layer = pl.nn.AnalogConv2d(4, 12, 3, groups=2, config=pl.SingleConfig(), **LIMITS)
    return layer, torch.randn(2, 4, 6, 5)


def lstm() -> tuple[nn.Module, torch.Tensor]:
    layer = pl.nn.AnalogLSTM(8, 6, config=pl.SingleConfig(), **LIMITS)
    return nn.Sequential(layer, _First()), torch.randn(5, 3, 8)


class _First(nn.Module):
    def forward(self, given: tuple[torch.Tensor, Any]) -> torch.Tensor:
        return given[0]


def trained(make: Callable[[], tuple[nn.Module, torch.Tensor]], device: str) -> dict[str, Any]:
    """Everything a layer holds after some steps, and what it read."""
    torch.manual_seed(4)
    layer, x = make()
    layer.to(device)
    x = x.to(device).requires_grad_()
    optimizer = AnalogSGD(layer.parameters(), lr=0.1)
    reads = []
    for _ in range(5):
        optimizer.zero_grad()
        y = layer(x)
        y.square().mean().backward()
        optimizer.step()
        assert x.grad is not None
        reads += [y.detach().cpu(), x.grad.cpu().clone()]
    with torch.no_grad():
        reads.append(layer(x).cpu())
    return {"reads": reads, "state": layer.state_dict()}


def states(found: dict[str, Any]) -> list[bytes]:
    tensors = list(found["reads"])
    for value in found["state"].values():
        values = value.values() if isinstance(value, dict) else [value]
        tensors += [each for each in values if isinstance(each, torch.Tensor)]
    return [each.detach().cpu().contiguous().numpy().tobytes() for each in tensors]


class OneByOne:
    """Reads the tiles of an array one after another, with the calls of all of them together."""

    def __init__(self, array: TileArray) -> None:
        self.places = [
            (tile, row, array.lines(i, col))
            for i, (row, tiles) in enumerate(zip(array.rows, array.grid, strict=True))
            for col, tile in zip(array.cols, tiles, strict=True)
        ]

    def forward(self, x: Any, out: Any, **part: Any) -> None:  # noqa: ANN401
        x, out = torch.as_tensor(x), torch.as_tensor(out).zero_()
        for tile, row, col in self.places:
            out[:, row] += torch.as_tensor(tile.forward(x[:, col].contiguous(), **part))

    def backward(self, d: Any, out: Any, **part: Any) -> None:  # noqa: ANN401
        d, out = torch.as_tensor(d), torch.as_tensor(out).zero_()
        for tile, row, col in self.places:
            out[:, col] += torch.as_tensor(tile.backward(d[:, row].contiguous(), **part))


@pytest.mark.parametrize("make", [linear, scaled, groups, lstm])
def test_one_call_has_the_bits_of_the_tiles_one_by_one(
    make: Callable[[], tuple[nn.Module, torch.Tensor]], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = trained(make, device)
    calls: list[int] = []

    def separate(array: TileArray) -> OneByOne:
        calls.append(len(array))
        return OneByOne(array)

    monkeypatch.setattr(TileArray, "whole", property(separate, lambda *_: None), raising=False)
    apart = trained(make, device)
    assert max(calls) > 3
    assert states(together) == states(apart)


def test_tiles_that_move_or_are_loaded_are_called_afterwards() -> None:
    layer, x = linear()
    saved = layer.state_dict()
    first = layer(x).detach()
    second = layer(x).detach()
    layer.load_state_dict(saved)
    assert torch.equal(layer(x), first)
    assert torch.equal(layer(x), second)


def test_a_grid_keeps_its_tiles_and_refuses_what_does_not_fit() -> None:
    tiles = [pl.Tile(2, 3, tile_id=i)._core for i in range(2)]
    grid = _core.make_tile_grid([(tiles[0], 0, 0), (tiles[1], 0, 3)], 2, 6)
    del tiles
    y = torch.empty(4, 2).numpy()
    grid.forward(torch.randn(4, 6).numpy(), y)
    assert (y != 0).any()
    with pytest.raises(pl.InputError, match=r"a read of a grid takes \[batch, inputs = 6\]"):
        grid.forward(torch.randn(4, 5).numpy(), y)
    with pytest.raises(pl.InputError, match="there are no tiles"):
        _core.make_tile_grid([], 2, 6)
