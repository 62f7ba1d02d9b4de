"""Analog layers on a GPU keep torch's conventions: moves, autocast, clipping, checkpoints."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import pulsora as pl
from pulsora.nn import AnalogGradient, AnalogLinear, replayed_reads
from pulsora.optim import AnalogOptimizer, AnalogSGD


def _usable() -> bool:
    return torch.cuda.is_available() and pl.cuda_device_count() > 0


pytestmark = pytest.mark.skipif(
    not _usable(), reason="no GPU that torch and this build of Pulsora can use"
)


def _model(config: pl.TileConfig | None = None) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(
        AnalogLinear(12, 8, config=config, seed=1, max_input_size=5, device="cpu"),
        nn.Tanh(),
        nn.Linear(8, 6),
        AnalogLinear(6, 3, config=config, seed=2, device="cpu"),
    )
    for layer in (model[0], model[3]):
        for tile in layer.tiles:
            tile.gpu_products = "reproducible"
    return model


def _x(device: str = "cuda") -> torch.Tensor:
    return torch.linspace(-1.0, 1.0, 60).reshape(5, 12).to(device)


def _pairs(model: nn.Sequential) -> list[torch.Tensor]:
    return [part for pair in model[0].analog_weight.grad.pairs for part in pair[:2]]


def test_a_model_moves_with_its_tiles_and_goes_on_exactly() -> None:
    host, moved = (nn.Sequential(AnalogLinear(12, 8, seed=1, device="cpu")) for _ in range(2))
    optimizers = [AnalogSGD(model.parameters(), lr=0.1) for model in (host, moved)]
    for place in ("cpu", "cuda", "cpu"):
        moved.to(place)
        assert {p.device.type for p in moved.parameters()} == {place}
        assert moved[0].weight.device.type == moved[0].tiles.device.type == place
        for tile in moved[0].tiles:
            tile.gpu_products = "reproducible"
        for model, optimizer, device in zip((host, moved), optimizers, ("cpu", place), strict=True):
            optimizer.zero_grad()
            assert model(_x(device)).device.type == device
            # d is given, because sums of torch differ between devices.
            model(_x(device)).backward(torch.linspace(-1, 1, 40).reshape(5, 8).to(device))
            optimizer.step()
        assert torch.equal(host[0].weight, moved[0].weight.cpu())


def test_gradients_that_no_step_has_taken_move_along() -> None:
    model, stays = (nn.Sequential(AnalogLinear(12, 8, seed=1, device="cpu")) for _ in range(2))
    optimizers = [AnalogSGD(each.parameters(), lr=0.1) for each in (model, stays)]
    for each in (model, stays):
        each(_x("cpu")).sum().backward()
    model.cuda()
    assert isinstance(model[0].analog_weight.grad, AnalogGradient)
    assert {part.device.type for part in _pairs(model)} == {"cuda"}
    for optimizer in optimizers:
        optimizer.step()
    assert torch.equal(model[0].weight.cpu(), stays[0].weight)


def test_layers_are_made_and_converted_where_torch_has_them() -> None:
    with torch.device("cuda"):
        assert AnalogLinear(4, 3).weight.is_cuda
    layer = AnalogLinear(4, 3, device="cuda")
    assert layer.bias.is_cuda
    converted = pl.convert_to_analog(nn.Sequential(nn.Linear(4, 3)).cuda(), pl.SingleConfig())
    assert converted(torch.ones(2, 4, device="cuda")).is_cuda
    assert pl.convert_to_digital(converted)[0].weight.is_cuda
    with pytest.raises(ValueError, match="x is on cpu, and this layer on cuda:0"):
        layer(torch.ones(2, 4))


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_mixed_precision_trains(kind: torch.dtype, fused: bool) -> None:
    model = _model().cuda()
    optimizer = AnalogOptimizer(torch.optim.SGD, model.parameters(), lr=0.1, fused=fused)
    scaler = torch.amp.GradScaler("cuda")
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=kind):
            y = model(_x())
            assert y.dtype == kind
            loss = (y.float() - 0.2).square().sum()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_grad_scaler_leaves_the_bits_and_skips_what_is_not_finite() -> None:
    scaled, plain = (_model().cuda() for _ in range(2))
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**16)
    for model in (scaled, plain):
        optimizer = AnalogSGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(_x()).square().sum()
            if model is plain:
                loss.backward()
                optimizer.step()
                continue
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    assert torch.equal(scaled[0].weight, plain[0].weight)
    assert torch.equal(scaled[3].weight, plain[3].weight)
    before = scaled[0].weight
    optimizer = AnalogSGD(scaled.parameters(), lr=0.1)
    (scaler.scale(scaled(_x()).sum()) * float("inf")).backward()
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(scaled[0].weight, before)
    assert scaler.get_scale() == 2.0**15


def test_clipping_acts_as_on_layers_of_torch() -> None:
    perfect = pl.IOParameters(is_perfect=True)
    analog = _model(pl.IdealConfig(forward=perfect, backward=perfect)).cuda()
    digital = pl.convert_to_digital(analog)
    for model, make in ((analog, AnalogSGD), (digital, torch.optim.SGD)):
        model(_x()).square().sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        make(model.parameters(), lr=0.5).step()
    torch.testing.assert_close(analog[0].weight, digital[0].weight.detach(), rtol=1e-3, atol=1e-4)


# torch warns that a stream other than that of the step before costs it a wait.
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")
def test_checkpoints_and_other_streams_give_the_plain_bits() -> None:
    def run(kind: str) -> torch.Tensor:
        model = _model().cuda()
        optimizer = AnalogSGD(model.parameters(), lr=0.1)
        stream = torch.cuda.Stream() if kind == "stream" else torch.cuda.current_stream()
        for step in range(4):
            optimizer.zero_grad()
            with torch.cuda.stream(stream if step > 1 else torch.cuda.current_stream()):
                y = (
                    checkpoint(model, _x(), use_reentrant=False, context_fn=replayed_reads)
                    if kind == "checkpoint"
                    else model(_x())
                )
                y.square().sum().backward()
            torch.cuda.synchronize()
            optimizer.step()
        assert [tile.counters["forward_samples"] for tile in model[0].tiles] == [20] * 3
        return model[0].weight

    plain = run("plain")
    assert torch.equal(run("checkpoint"), plain)
    assert torch.equal(run("stream"), plain)


def test_a_fused_encoder_reads_the_tiles() -> None:
    device = pl.devices.ConstantStep(w_max=1.0, w_min=-1.0)
    encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).cuda()
    model = pl.convert_to_analog(
        encoder, pl.SingleConfig(device=device), exclude=["self_attn"]
    ).eval()
    x = torch.randn(2, 5, 8, device="cuda")
    with torch.no_grad():
        assert not torch.equal(model(x), model(x))
    assert [tile.evaluated for tile in model.linear1.tiles] == [20]


def test_copies_stay_on_their_device() -> None:
    layer = AnalogLinear(4, 3, device="cuda")
    assert copy.deepcopy(layer).weight.is_cuda
    tile = pl.Tile(4, 3, device="cuda")
    assert copy.deepcopy(tile).device == tile.device


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_data_parallel_is_refused() -> None:
    with pytest.raises(RuntimeError, match="DataParallel and FSDP are not available"):
        nn.DataParallel(AnalogLinear(12, 3, device="cuda"))(_x())
