"""CUDA graphs of a user's own work: each replay has the bits of the plain block."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import pulsora as pl
from pulsora.nn import AnalogLinear
from pulsora.optim import AnalogSGD
from pulsora.training_step import CapturedGraph
from training_step_models import (
    ADAPTER,
    batch_of,
    loss_fn,
    model_of,
    needs_gpu,
    plain_step,
    require_same,
)

WARM_UP = 3


@needs_gpu
@pytest.mark.parametrize("config", [pl.SingleConfig(), ADAPTER])
def test_property_37_replays_of_a_step_are_the_plain_loop(config: pl.TileConfig) -> None:
    """Transfers every third mini-batch, dropout, and an evaluation in between."""
    models = [nn.Sequential(model_of("cuda", config), nn.Dropout(0.2)) for _ in range(2)]
    optimizers = [AnalogSGD(model.parameters(), lr=0.1) for model in models]
    states, losses = [], []
    for model, optimizer in zip(models, optimizers, strict=True):
        torch.manual_seed(7)
        x, target = (each.clone() for each in batch_of(0, "cuda"))
        found = [plain_step(model, optimizer, *batch_of(n, "cuda")) for n in range(WARM_UP)]
        graph = CapturedGraph(model)
        if model is models[0]:
            with graph:
                optimizer.zero_grad()
                loss = loss_fn(model(x), target)
                loss.backward()
                optimizer.step()
        for number in range(WARM_UP, WARM_UP + 9):
            for into, given in zip((x, target), batch_of(number, "cuda"), strict=True):
                into.copy_(given)
            if model is models[0]:
                graph.replay()
                found.append(loss.detach().clone())
            else:
                found.append(plain_step(model, optimizer, *batch_of(number, "cuda")))
            if number == WARM_UP + 4:
                with torch.no_grad():
                    found.append(model(x).sum())
        losses.append(torch.stack(found))
        states.append(torch.rand((), device="cuda"))
        assert (graph.shapes > 0) == (model is models[0])
    assert torch.equal(*losses)
    assert torch.equal(*states)
    require_same(*models)


@needs_gpu
def test_replays_of_reads_draw_anew_and_follow_the_weights() -> None:
    layers = [AnalogLinear(12, 8, bias=False, seed=1, device="cuda") for _ in range(2)]
    x = batch_of(0, "cuda")[0]
    for layer in layers:
        layer(x)
    graph = CapturedGraph(layers[0])
    with torch.no_grad(), graph:
        y = layers[0](x)
    with torch.no_grad():
        for number in range(4):
            if number == 2:
                for layer in layers:
                    layer.set_weights(torch.full((8, 12), 0.1))
            graph.replay()
            assert torch.equal(y, layers[1](x)), number


@needs_gpu
def test_a_block_that_fails_can_be_captured_again() -> None:
    layer = AnalogLinear(12, 8, seed=1, device="cuda")
    x = batch_of(0, "cuda")[0]
    first = layer(x)
    graph = CapturedGraph(layer)
    with pytest.raises(RuntimeError), graph:
        layer(x).sum().item()
    with pytest.raises(KeyError), graph:
        raise KeyError("a")
    assert torch.isfinite(layer(x)).all()
    with graph:
        y = layer(x)
    graph.replay()
    assert torch.isfinite(y).all()
    assert not torch.equal(first, y)
    with pytest.raises(pl.StateError, match="has its block already"), graph:
        layer(x)


def test_what_cannot_be_captured_is_refused() -> None:
    with pytest.raises(pl.DeviceError, match="needs analog layers on a GPU; these are on the CPU"):
        CapturedGraph(model_of("cpu"))
    with pytest.raises(ValueError, match="needs analog layers on one device; got 0 analog layers"):
        CapturedGraph(nn.Linear(2, 3))
    with pytest.raises(ValueError, match="got 0 analog layers"):
        CapturedGraph()
    for config in (pl.MixedPrecisionConfig(), pl.InferenceConfig()):
        with pytest.raises(ValueError, match=r"use pulsora\.training_step\.TrainingStep"):
            CapturedGraph(model_of("cpu", config))
    shared = model_of("cpu")
    shared[0].tiles.process_group = object()
    with pytest.raises(ValueError, match="trained by several processes, whose messages"):
        CapturedGraph(shared)


@needs_gpu
def test_a_replay_before_the_capture_is_refused() -> None:
    with pytest.raises(pl.StateError, match="has no block yet; capture one"):
        CapturedGraph(model_of("cuda")).replay()
