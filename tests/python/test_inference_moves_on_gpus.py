"""Corrections and measured conductances of programmed layers, on a CPU and on a GPU."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import pulsora as pl

torch = pytest.importorskip("torch")

X = torch.randn(48, 20, generator=torch.Generator().manual_seed(1))


def layer_of() -> Any:  # noqa: ANN401
    """Returns a layer of four tiles, in eval()."""
    quiet = pl.IOParameters(out_noise=0.0)
    config = pl.InferenceConfig(compensation="none", forward=quiet)
    return pl.nn.AnalogLinear(
        20, 16, config=config, seed=3, max_input_size=12, max_output_size=9
    ).eval()


@torch.no_grad()
def test_corrections_of_outputs_move_with_their_layer(device: str) -> None:
    layer = layer_of()
    pl.drift(pl.program(layer, 3), 1e7)
    pl.inference.fit_affine(layer, [X])
    moved = copy.deepcopy(layer).to(device)
    assert moved.held.affine.device == moved.weight.device
    loaded = layer_of().to(device)
    loaded.load_state_dict(layer.state_dict())
    y = layer(X)
    assert not torch.equal(y, pl.drift(copy.deepcopy(layer), 1e7)(X))
    # Reads have the bits of the CPU; torch may fuse the product with the sum.
    for each in (moved, loaded):
        torch.testing.assert_close(each(X.to(device)).cpu(), y)
    torch.testing.assert_close(loaded.state_dict()["tiles.affine"], layer.held.affine)


@torch.no_grad()
def test_measured_conductances_program_a_tile_on_any_device(device: str) -> None:
    config = pl.InferenceConfig(forward=pl.IOParameters(is_perfect=True))
    tile: Any = pl.Tile(6, 11, config, seed=5, device=device)
    tile.weights = torch.randn(6, 11, generator=torch.Generator().manual_seed(2)).to(device)
    tile.programming.program(3)
    g = tile.programming.conductances("programmed")
    other: Any = pl.Tile(6, 11, config, seed=5)
    other.weights = torch.randn(6, 11, generator=torch.Generator().manual_seed(2))
    for each in (tile, other):
        each.programming.program_measured(g, 3)
        each.programming.drift(3600.0)
        assert each.programming.is_measured
    now = tile.programming.conductances()
    assert (now == other.programming.conductances()).all()
    tile.programming.program_measured(torch.from_numpy(g), 3)
    with pytest.raises(pl.InputError, match="not negative"):
        tile.programming.program_measured(-g, 3)
