"""A recorded training step gives the bits of the plain loop; what cannot be recorded says so."""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import pulsora as pl
from pulsora.graphs import training_step
from pulsora.nn import AnalogConv2d, AnalogLinear
from pulsora.optim import AnalogOptimizer, AnalogSGD
from pulsora.training.experiment import Experiment
from pulsora.training.run import Run
from pulsora.training_step import TrainingStep
from training_step_models import (
    ADAPTER,
    batch_of,
    loss_fn,
    model_of,
    needs_gpu,
    plain_step,
    require_same,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@needs_gpu
@pytest.mark.parametrize("analog", [True, False])
def test_steps_on_a_gpu_that_is_not_the_current_one(*, analog: bool) -> None:
    """The last GPU, while the first is the current one; layers without tiles too."""
    device = f"cuda:{torch.cuda.device_count() - 1}"

    def made() -> nn.Module:
        torch.manual_seed(4)
        digital = nn.Sequential(nn.Linear(12, 7), nn.ReLU(), nn.Linear(7, 4)).to(device)
        return model_of(device) if analog else digital

    models = [made(), made()]
    optimizers = [AnalogSGD(model.parameters(), lr=0.1) for model in models]
    step = TrainingStep(models[0], optimizers[0], loss_fn)
    with torch.cuda.device(0):
        for number in range(8):
            batch = batch_of(number, device)
            assert torch.equal(step(*batch), plain_step(models[1], optimizers[1], *batch)), number
    assert step.plain_because is None
    assert step.recorded_shapes > 0
    require_same(*models)


@needs_gpu
def test_property_37_a_convolution_and_clipping() -> None:
    def made() -> nn.Sequential:
        torch.manual_seed(4)
        return nn.Sequential(
            AnalogConv2d(1, 3, 3, config=ADAPTER, seed=5, device="cuda"),
            nn.Flatten(),
            nn.Linear(12, 4, device="cuda"),
        )

    models = [made() for _ in range(2)]
    optimizers = [AnalogSGD(model.parameters(), lr=0.1) for model in models]

    def clip(model: nn.Module) -> None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)

    step = TrainingStep(models[0], optimizers[0], loss_fn, before_step=lambda: clip(models[0]))
    for number in range(8):
        x, target = batch_of(number, "cuda", 3)
        x = x.repeat(1, 2)[:, :16].reshape(3, 1, 4, 4)
        step(x, target)
        optimizers[1].zero_grad()
        loss_fn(models[1](x), target).backward()
        clip(models[1])
        optimizers[1].step()
    assert step.plain_because is None
    assert step.recorded_shapes > 0
    require_same(*models)


@needs_gpu
def test_property_37_a_step_goes_on_where_a_state_was_loaded() -> None:
    one, other = model_of("cuda"), model_of("cuda")
    steps = [TrainingStep(m, AnalogSGD(m.parameters(), lr=0.1), loss_fn) for m in (one, other)]
    for number in range(6):
        steps[0](*batch_of(number, "cuda"))
    saved = copy.deepcopy(one.state_dict())
    for number in range(6, 10):
        steps[0](*batch_of(number, "cuda"))
    for number in range(20, 25):
        steps[1](*batch_of(number, "cuda"))
    other.load_state_dict(saved)
    for number in range(6, 10):
        steps[1](*batch_of(number, "cuda"))
    assert steps[1].plain_because is None
    require_same(one, other)


@needs_gpu
def test_a_recorded_step_leaves_gradients_and_uses_frozen_flags() -> None:
    model = model_of("cuda")
    step = TrainingStep(model, AnalogSGD(model.parameters(), lr=0.1), loss_fn)
    for number in range(4):
        step(*batch_of(number, "cuda"))
    assert model[5].weight.grad.abs().sum() > 0
    assert model[0].analog_weight.grad is None
    model[5].requires_grad_(requires_grad=False)
    frozen = model[5].weight.clone()
    weights = model[0].weight.detach()
    for number in range(4, 8):
        step(*batch_of(number, "cuda"))
    assert torch.equal(frozen, model[5].weight)
    assert not torch.equal(weights, model[0].weight)


@needs_gpu
def test_what_cannot_be_recorded_runs_plainly_with_a_reason() -> None:
    class Waits(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * float(x.sum().cpu() > 0)

    hooked = model_of("cuda")
    hooked[2].register_forward_hook(lambda *_: None)
    for extra, reason in (
        (Waits(), "captur"),
        (hooked, "hook"),
    ):
        model = extra if extra is hooked else nn.Sequential(model_of("cuda"), extra)
        step = TrainingStep(model, AnalogSGD(model.parameters(), lr=0.1), loss_fn)
        for number in range(2):
            step(*batch_of(number, "cuda"))
        with pytest.warns(RuntimeWarning, match="plain loop"):
            step(*batch_of(2, "cuda"))
        assert torch.isfinite(step(*batch_of(3, "cuda")))
        assert step.plain_because is not None
        assert reason in step.plain_because


@needs_gpu
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
def test_a_graph_of_torch_s_own_is_refused() -> None:
    layer = AnalogLinear(4, 3, seed=1, device="cuda")
    x = torch.ones(2, 4, device="cuda")
    layer(x)
    with (
        pytest.raises(pl.StateError, match=r"training_step\.CapturedGraph"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        layer(x)
    assert torch.isfinite(layer(x)).all()


class _Graph:
    """Stands for a recorded step where there is no GPU, and runs it plainly."""

    made: ClassVar[list[bool]] = []

    def __init__(
        self, _optimizer: object, loss: Callable[..., torch.Tensor], _batch: object, **given: Any
    ) -> None:
        self.loss, self.constants, self.rates = loss, given["constants"], given["rates"]
        self.made.append(given["digital_too"])

    def run(self, optimizer: torch.optim.Optimizer, batch: object) -> torch.Tensor:
        loss = self.loss(batch)
        optimizer.step()
        return loss


def test_when_a_step_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decisions, which need no GPU."""
    drawn = [0]
    monkeypatch.setattr(training_step, "_recordable", lambda _: True)
    monkeypatch.setattr(training_step, "RecordedStep", _Graph)
    monkeypatch.setattr(training_step, "random_numbers", lambda _: (1, drawn[0]))
    monkeypatch.setattr(torch.cuda.CUDAGraph, "raw_cuda_graph", None, raising=False)
    monkeypatch.setattr(_Graph, "made", made := [])
    model = model_of("cpu")
    optimizer = AnalogSGD(model.parameters(), lr=0.1)
    step = TrainingStep(model, optimizer, loss_fn)

    def steps(count: int) -> list[bool]:
        """The records made meanwhile: with the digital step, or without it."""
        before = len(made)
        for number in range(count):
            step(*batch_of(number, "cpu"))
        return made[before:]

    assert steps(2) == []
    assert steps(30) == [True]
    model[1].eval()  # a plain step, then a new record
    assert steps(1) == []
    assert steps(30) == [True]
    model.register_buffer("mask", torch.zeros(3))
    assert steps(30) == [True]
    model.mask = torch.zeros(4)  # other memory
    assert steps(30) == [True]
    step.loss_fn = partial(loss_fn)
    assert steps(30) == [True]
    step.before_step = lambda: None
    assert steps(30) == [True]
    optimizer.param_groups[0]["lr"] = float("inf")
    with pytest.raises(ValueError, match="lr is inf"):
        steps(1)
    optimizer.param_groups[0]["lr"] = 0.05
    assert steps(3) == [True]
    optimizer.param_groups[0]["lr"] = 0.02  # again so soon
    assert steps(30) == [False]
    optimizer.param_groups[0]["lr"] = 0.01  # that of pulses alone is no constant
    assert steps(30) == []
    step(*batch_of(1, "cpu", rows=4))
    assert len(made) == 8
    model[1].train()
    drawing = model[2].register_forward_hook(lambda *_: drawn.__setitem__(0, drawn[0] + 1))
    step(*batch_of(1, "cpu"))  # finds out
    drawing.remove()
    with pytest.warns(RuntimeWarning, match="random numbers of torch"):
        steps(2)
    assert step.plain_because is not None


@pytest.mark.parametrize(("reinit", "every"), [("orthogonal", 2), ("svd", 2), ("orthogonal", 0)])
def test_reinits_that_wait_are_not_recorded(
    monkeypatch: pytest.MonkeyPatch, reinit: str, every: int
) -> None:
    monkeypatch.setattr(training_step, "_recordable", lambda _: True)
    monkeypatch.setattr(training_step, "RecordedStep", _Graph)
    monkeypatch.setattr(training_step, "random_numbers", lambda _: (0, 0))
    monkeypatch.setattr(torch.cuda.CUDAGraph, "raw_cuda_graph", None, raising=False)
    config = pl.LRTTConfig(rank=2, reinit=reinit, transfer_every=every)
    layer = AnalogLinear(12, 4, config=config, seed=1)
    for tile in layer.analog_weight.array if reinit == "svd" else ():
        tile.adapter.set_reinit_vectors(np.eye(2, 12, dtype=np.float32))
    step = TrainingStep(layer, AnalogSGD(layer.parameters(), lr=0.1), loss_fn)
    for number in range(2):
        step(*batch_of(number, "cpu"))
    if every == 0:
        step(*batch_of(2, "cpu"))
        assert step.plain_because is None
        return
    with pytest.warns(RuntimeWarning, match="'orthogonal' or 'svd' wait for the GPU"):
        step(*batch_of(2, "cpu"))


def test_other_optimisers_are_refused() -> None:
    model = model_of("cpu")
    with pytest.raises(TypeError, match=r"pulsora\.optim"):
        TrainingStep(model, torch.optim.SGD([nn.Parameter(torch.zeros(1))]), loss_fn)


def test_a_hook_of_a_parameter_is_not_lost_in_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_step, "_recordable", lambda _: True)
    monkeypatch.setattr(training_step, "RecordedStep", _Graph)
    monkeypatch.setattr(training_step, "random_numbers", lambda _: (0, 0))
    monkeypatch.setattr(torch.cuda.CUDAGraph, "raw_cuda_graph", None, raising=False)
    model = model_of("cpu")
    step = TrainingStep(model, AnalogSGD(model.parameters(), lr=0.1), loss_fn)
    for number in range(4):
        step(*batch_of(number, "cpu"))
    model[0].bias.register_hook(lambda gradient: 2 * gradient)
    step(*batch_of(4, "cpu"))
    with pytest.warns(RuntimeWarning, match="parameters have hooks"):
        step(*batch_of(5, "cpu"))


def test_what_is_no_step_is_refused_by_name() -> None:
    model = model_of("cpu")
    optimizer = AnalogSGD(model.parameters(), lr=0.1)
    x, target = batch_of(0, "cpu")
    step = TrainingStep(model, optimizer, loss_fn)
    for batch in ((), (x,), ((x, target),), ({"x": x}, target)):
        with pytest.raises(TypeError, match=r"a step takes tensors, as step\(x, target\)"):
            step(*batch)
    with pytest.raises(TypeError, match="loss_fn returned a tuple"):
        TrainingStep(model, optimizer, lambda y, t: (loss_fn(y, t), 0.0))(x, target)
    with pytest.raises(TypeError, match="loss_fn = None"):
        TrainingStep(model, optimizer, None)
    with pytest.raises(TypeError, match="amp = 'no': write True"):
        TrainingStep(model, optimizer, loss_fn, amp="no")
    others = AnalogSGD(model_of("cpu").parameters(), lr=0.1)
    with pytest.raises(ValueError, match="optimizer has no parameter of the model"):
        TrainingStep(model, others, loss_fn)


def test_any_digital_optimiser_will_do() -> None:
    model = model_of("cpu")
    optimizer = AnalogOptimizer(torch.optim.AdamW, model.parameters(), lr=1e-2, analog_lr=1e-2)
    step = TrainingStep(model, optimizer, loss_fn)
    losses = [float(step(*batch_of(0, "cpu"))) for _ in range(30)]
    assert losses[-1] < losses[0]


@needs_gpu
def test_a_run_on_a_gpu_is_resumed_on_the_cpu(tmp_path: Path) -> None:
    settings = {"hidden": (16,), "batch": 32, "seed": 2}
    on_gpu = Run(Experiment(epochs=2, **settings), tmp_path, device="cuda")
    history = on_gpu.train()
    assert {parameter.device.type for parameter in on_gpu.model.parameters()} == {"cuda"}
    assert history[-1]["loss"] < history[0]["loss"]
    on_cpu = Run(Experiment(epochs=3, **settings), tmp_path, resume=True)
    assert on_cpu.train()[:2] == history
    assert on_cpu.history[2]["loss"] < history[1]["loss"]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
def test_mixed_precision_is_that_of_the_loop_with_autocast(device: str) -> None:
    models = [model_of(device) for _ in range(2)]
    optimizers = [AnalogSGD(each.parameters(), lr=0.1) for each in models]
    step = pl.training_step.TrainingStep(models[0], optimizers[0], loss_fn, amp=True)
    for number in range(8):
        x, target = batch_of(number, device)
        optimizers[1].zero_grad()
        with torch.autocast(device, dtype=torch.bfloat16):
            output = models[1](x)
            loss = loss_fn(output, target)
        assert output.dtype == torch.bfloat16
        loss.backward()
        optimizers[1].step()
        assert torch.equal(step(x, target), loss.detach())
    assert step.plain_because is None
    assert (step.recorded_shapes > 0) == (device == "cuda")
    for one, other in zip(*(each.state_dict().values() for each in models), strict=True):
        assert torch.equal(one, other)


def test_a_run_on_a_device_that_is_not_there_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(pl.ConfigError, match="device is 'tpu'"):
        Run(Experiment(), tmp_path, device="tpu")
