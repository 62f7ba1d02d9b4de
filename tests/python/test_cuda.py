"""Tiles on a GPU in Python: torch tensors without copies, streams, errors, the CPU's results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

import pulsora as pl
from conftest import CONFIGS, D_SIZE, X_SIZE, in_child, make_batch
from pulsora import nn, optim

if TYPE_CHECKING:
    from pathlib import Path


def _usable() -> bool:
    if not torch.cuda.is_available():
        return False
    try:
        pl.Tile(1, 1, device="cuda")
    except pl.DeviceError:
        return False
    return True


pytestmark = pytest.mark.skipif(
    not _usable(), reason="no GPU that torch and this build of Pulsora can use"
)


def _tensors(samples: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    x, d = make_batch(samples, seed)
    return torch.from_numpy(x).cuda(), torch.from_numpy(d).cuda()


def _tile(config: pl.TileConfig, device: str = "cuda:0") -> pl.Tile:
    return pl.Tile(D_SIZE, X_SIZE, config, seed=4, device=device)


def _bits(tile: pl.Tile) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in tile.state().tensors.items()}


def test_property_36_updates_are_those_of_the_cpu() -> None:
    host, gpu = _tile(CONFIGS["single"](), "cpu"), _tile(CONFIGS["single"]())
    assert gpu.device == "cuda:0"
    for step in range(5):
        x, d = _tensors(8, step)
        host.update(x.cpu(), d.cpu(), 0.1)
        gpu.update(x, d, 0.1)
    assert host.weights.tobytes() == gpu.weights.tobytes()


@pytest.mark.parametrize("kind", list(pl.config.CLASSES))
def test_property_36_every_kind_of_tile_has_the_bits_of_the_cpu(kind: str, tmp_path: Path) -> None:
    config = pl.config.CLASSES[kind]()
    if "rank" in config.to_dict():
        config = config.replace(rank=2, transfer_every=10)
    host, gpu = _tile(config, "cpu"), _tile(config)
    gpu.gpu_products = "reproducible"
    for step in range(4):
        x, d = _tensors(8, step)
        y = torch.from_dlpack(gpu.forward(x)).cpu().numpy()
        assert host.forward(x.cpu().numpy()).tobytes() == y.tobytes()
        for tile, inputs in ((host, (x.cpu(), d.cpu())), (gpu, (x, d))):
            tile.update(*inputs, 0.05)
        if step == 1:  # and goes on from a file
            gpu.save(tmp_path / "tile.safetensors")
            gpu = pl.Tile.load(tmp_path / "tile.safetensors", device="cuda")
            gpu.gpu_products = "reproducible"
    assert _bits(host) == _bits(gpu)


def test_reads_agree_with_torch() -> None:
    tile = _tile(pl.IdealConfig(forward=pl.IOParameters(is_perfect=True)))
    weights = torch.linspace(-0.5, 0.5, D_SIZE * X_SIZE).reshape(D_SIZE, X_SIZE)
    tile.weights = weights.numpy()
    x, _ = _tensors(8)
    y = torch.from_dlpack(tile.forward(x))
    assert y.is_cuda
    torch.testing.assert_close(y, x @ weights.cuda().T)


def test_products_are_made_as_asked_for() -> None:
    io = pl.IOParameters(weight_bits=32)
    config = pl.SingleConfig(forward=io, backward=io)
    host, gpu = (pl.Tile(1024, 1032, config, seed=4, device=at) for at in ("cpu", "cuda"))
    host.weights = gpu.weights = (
        np.random.default_rng(0).uniform(-0.1, 0.1, (1024, 1032)).astype(np.float32)
    )
    x, d = (2 * torch.rand(80, size, device="cuda") - 1 for size in (1032, 1024))
    reads = {}
    for products in ("single", "tf32_forward", "tf32", "reproducible"):
        tile = gpu.to("cuda")
        tile.gpu_products = products
        assert tile.to("cuda").gpu_products == products
        reads[products] = (torch.from_dlpack(tile.forward(x)), torch.from_dlpack(tile.backward(d)))
    exact = (host.forward(x.cpu()), host.backward(d.cpu()))
    for direction in (0, 1):
        assert np.array_equal(reads["reproducible"][direction].cpu().numpy(), exact[direction])
    assert torch.equal(reads["single"][1], reads["tf32_forward"][1])
    assert torch.equal(reads["tf32"][0], reads["tf32_forward"][0])
    assert not torch.equal(reads["single"][0], reads["tf32"][0])
    assert not torch.equal(reads["single"][1], reads["tf32"][1])


def test_out_is_filled_in_place() -> None:
    one, other = _tile(CONFIGS["single"]()), _tile(CONFIGS["single"]())
    x, _ = _tensors(8)
    out = torch.full((8, D_SIZE), float("nan"), device="cuda")
    pointer = out.data_ptr()
    assert one.forward(x, out=out) is out
    assert out.data_ptr() == pointer
    assert torch.equal(out, torch.from_dlpack(other.forward(x)))


def test_tensors_out_of_the_ordinary_are_used_or_refused() -> None:
    one, other = _tile(CONFIGS["single"]()), _tile(CONFIGS["single"]())
    x, _ = _tensors(8)
    wide = torch.cat([x, x], dim=1)
    expected = torch.from_dlpack(one.forward(x))
    assert torch.equal(torch.from_dlpack(other.forward(wide[:, X_SIZE:])), expected)
    for bad, message in (
        (x.clone().requires_grad_(), "require gradient"),
        (x.double(), "must be float32"),
        (wide[:, ::2], "gapless rows"),
        (x.to_sparse(), "torch.strided"),
        (x.int(), "float32"),
        (x[:, :-1], "x_size"),
        (x[None], "has shape"),
    ):
        with pytest.raises(pl.InputError, match=message):
            other.forward(bad)


def test_results_are_ordered_with_streams_of_torch() -> None:
    tile = pl.Tile(512, 512, CONFIGS["ideal"](), device="cuda")
    tile.weights = np.eye(512, dtype=np.float32) / 2
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for step in range(50):
            x = torch.full((64, 512), 1.0 + step, device="cuda")
            y = torch.from_dlpack(tile.forward(x))
            del x  # its memory may be reused at once
            assert float((y / (1.0 + step) - 0.5).abs().max()) < 0.2
            del y


def test_host_memory_is_refused() -> None:
    tile = _tile(CONFIGS["single"]())
    x, d = make_batch(3)
    for call in (
        lambda: tile.forward(x),
        lambda: tile.update(x, d, 0.1),
        lambda: tile.backward(torch.from_numpy(d)),
    ):
        with pytest.raises(pl.DeviceError, match=r"is in host memory, but the tile is on cuda:0"):
            call()


def test_gpu_memory_is_refused_by_a_tile_on_the_cpu() -> None:
    with pytest.raises(pl.DeviceError, match="tile is on the CPU"):
        _tile(CONFIGS["single"](), "cpu").forward(_tensors(3)[0])


def test_property_07_bad_input_is_reported_and_changes_nothing() -> None:
    tile = _tile(CONFIGS["single"]())
    before = tile.weights
    x, d = _tensors(4)
    d[1, 2] = float("nan")
    tile.update(x, d, 0.1, end_of_batch=False)
    with pytest.raises(pl.InputError, match="not finite"):
        _ = tile.weights
    assert before.tobytes() == tile.weights.tobytes()


@pytest.mark.parametrize("name", list(CONFIGS))
def test_tiles_move_between_devices(name: str, tmp_path: Path) -> None:
    tile = _tile(CONFIGS[name]())
    x, d = _tensors(6)
    tile.update(x, d, 0.1)
    moved = tile.to("cpu")
    assert moved.device == "cpu"
    assert _bits(moved) == _bits(tile)
    moved.save(tmp_path / "tile.safetensors")
    back = pl.Tile.load(tmp_path / "tile.safetensors", device="cuda:0")
    for each in (tile, back):
        each.update(x, d, 0.1)
    assert _bits(back) == _bits(tile)


def test_an_analog_layer_learns_on_the_gpu() -> None:
    torch.manual_seed(0)
    layer = nn.AnalogLinear(8, 4, device="cuda").to("cuda")
    optimiser = optim.AnalogSGD(layer.parameters(), lr=0.05)
    x = torch.randn(64, 8, device="cuda")
    wanted = x @ torch.randn(8, 4, device="cuda") * 0.2
    losses = []
    for _ in range(60):
        optimiser.zero_grad()
        loss = torch.nn.functional.mse_loss(layer(x), wanted)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]


def _layer_step(layer: nn.AnalogLinear, optimiser: torch.optim.Optimizer, x: torch.Tensor) -> None:
    optimiser.zero_grad()
    layer(x).square().mean().backward()
    optimiser.step()


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_a_step_of_a_layer_does_not_wait() -> None:
    """Checks the waits of torch; C++ tests check that tiles do not wait (in graphs)."""
    layer = nn.AnalogLinear(12, 8, device="cuda", max_input_size=5, max_output_size=4).to("cuda")
    optimiser = optim.AnalogSGD(layer.parameters(), lr=0.05)
    x = torch.randn(16, 12, device="cuda")
    _layer_step(layer, optimiser, x)
    torch.cuda.set_sync_debug_mode("error")
    try:
        _layer_step(layer, optimiser, x)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert sum(table["pulses"] for table in layer.statistics()) > 0


def test_a_layer_reports_values_that_are_not_finite_when_it_is_waited_for() -> None:
    layer = nn.AnalogLinear(12, 8, device="cuda").to("cuda")
    optimiser = optim.AnalogSGD(layer.parameters(), lr=0.05)
    before = layer.weight
    _layer_step(layer, optimiser, torch.full((4, 12), float("inf"), device="cuda"))
    with pytest.raises(pl.InputError, match="not finite"):
        _ = layer.weight
    assert torch.equal(layer.weight, before)


def test_layers_of_several_tiles_read_as_one_product() -> None:
    perfect = pl.IOParameters(is_perfect=True)
    config = pl.IdealConfig(forward=perfect, backward=perfect)
    layer = nn.AnalogLinear(12, 8, bias=False, config=config, device="cuda", max_input_size=5)
    x = torch.randn(16, 12, device="cuda", requires_grad=True)
    y = layer(x)
    y.sum().backward()
    weight = layer.weight.detach().cuda()
    torch.testing.assert_close(y, x @ weight.T)
    torch.testing.assert_close(x.grad, weight.sum(0).expand_as(x))


def test_a_tile_on_a_gpu_says_that_it_does_not_survive_a_fork() -> None:
    tile = _tile(CONFIGS["single"]())
    before = tile.weights

    def work() -> None:
        with pytest.raises(pl.DeviceError, match="does not survive"):
            _ = tile.weights
        with pytest.raises(pl.DeviceError, match="does not survive"):
            _tile(CONFIGS["single"]())
        host = _tile(CONFIGS["single"](), "cpu")
        x, d = make_batch(4)
        host.update(x, d, 0.1)

    in_child(work)
    assert tile.weights.tobytes() == before.tobytes()
