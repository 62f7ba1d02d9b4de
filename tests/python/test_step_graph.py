"""A mini-batch as a CUDA graph gives the bits of the plain calls."""

from __future__ import annotations

import pytest
import torch

import pulsora as pl
from conftest import D_SIZE, X_SIZE, make_batch


def _usable() -> bool:
    return torch.cuda.is_available() and pl.cuda_device_count() > 0


needs_gpu = pytest.mark.skipif(
    not _usable(), reason="no GPU that torch and this build of Pulsora can use"
)


def _tile(cells: str = "auto") -> pl.Tile:
    visible = pl.LRTTConfig().visible.replace(cells=cells)
    config = pl.LRTTConfig(rank=2, transfer_every=4, visible=visible)
    return pl.Tile(D_SIZE, X_SIZE, config, seed=4, device="cuda:0")


def _step(tile: pl.Tile, x: torch.Tensor, d: torch.Tensor, y: torch.Tensor) -> None:
    tile.forward(x, out=y)
    tile.update(x, d, 0.1)


@needs_gpu
@pytest.mark.parametrize("cells", ["stored", "computed"])
def test_property_37_a_step_graph_gives_the_plain_calls_bits(cells: str) -> None:
    plain, recorded = _tile(), _tile(cells)
    graph = pl.StepGraph(recorded)
    with torch.cuda.stream(torch.cuda.Stream()):
        for step in range(12):
            x, d = (torch.from_numpy(array).cuda() for array in make_batch(8, step))
            y, again = torch.empty(8, D_SIZE, device="cuda"), torch.empty(8, D_SIZE, device="cuda")
            _step(plain, x, d, y)
            with graph:
                _step(recorded, x, d, again)
            assert torch.equal(y, again)
    assert graph.shapes >= 2
    one, other = plain.state().tensors, recorded.state().tensors
    assert set(other) <= set(one)
    assert ("visible/cells" in other) == (cells == "stored")
    assert all(one[name].tobytes() == tensor.tobytes() for name, tensor in other.items())


@needs_gpu
def test_waiting_inside_fails_and_the_tile_goes_on() -> None:
    tile = _tile()
    with torch.cuda.stream(torch.cuda.Stream()):
        graph = pl.StepGraph(tile)
        with pytest.raises(pl.DeviceError), graph:
            _ = tile.weights
    assert tile.weights.shape == (D_SIZE, X_SIZE)


@needs_gpu
def test_the_default_stream_is_refused() -> None:
    with pytest.raises(pl.ConfigError, match="default stream"), pl.StepGraph(_tile()):
        pass


def test_tiles_on_the_cpu_are_refused() -> None:
    with pytest.raises(pl.DeviceError, match="on the CPU"):
        pl.StepGraph(pl.Tile(3, 4))
    with pytest.raises(ValueError, match="one device"):
        pl.StepGraph()
