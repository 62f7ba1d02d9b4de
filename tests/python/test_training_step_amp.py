"""Training steps in mixed precision with a GradScaler: those of torch's loop, recorded too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

import pulsora as pl
from pulsora.optim import AnalogOptimizer, AnalogSGD
from pulsora.training_step import TrainingStep
from replayed_steps import replay
from training_step_models import ADAPTER, batch_of, loss_fn, model_of, needs_gpu, require_same

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]


def clip(model: nn.Module) -> None:
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)


class Loop:
    """Torch's loop with a GradScaler."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        scaler: torch.amp.GradScaler,
        amp: torch.dtype,
    ) -> None:
        self.model, self.optimizer, self.scaler, self.amp = model, optimizer, scaler, amp
        self.left_out = 0

    def __call__(self, x: torch.Tensor, target: torch.Tensor, *, clips: bool) -> torch.Tensor:
        self.optimizer.zero_grad()
        with torch.autocast(x.device.type, self.amp):
            loss = loss_fn(self.model(x), target)
        self.scaler.scale(loss).backward()
        if clips:
            self.scaler.unscale_(self.optimizer)
            clip(self.model)
        self.scaler.step(self.optimizer)
        before = self.scaler.get_scale()
        self.scaler.update()
        self.left_out += self.scaler.get_scale() < before
        return loss.detach()


def optimizer_of(model: nn.Module, kind: str) -> torch.optim.Optimizer:
    if kind == "sgd":
        return AnalogSGD(model.parameters(), lr=0.1)
    settings: dict[str, Any] = {"lr": 1e-2, "analog_lr": 0.1, "capturable": kind == "capturable"}
    return AnalogOptimizer(torch.optim.AdamW, model.parameters(), **settings)


def scaler_on(device: str) -> torch.amp.GradScaler:
    """A scaler whose first factors are too large for float16, and that grows often."""
    return torch.amp.GradScaler(device, init_scale=2.0**24, growth_interval=4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("amp", "kind", "clips"),
    [
        (torch.float16, "sgd", False),
        (torch.float16, "adam", True),
        (torch.float16, "capturable", False),
        (torch.bfloat16, "sgd", True),
    ],
)
@pytest.mark.parametrize("config", [pl.SingleConfig(), ADAPTER, pl.MixedPrecisionConfig()])
def test_property_37_a_step_with_a_scaler_is_that_of_torch_s_loop(
    device: str, amp: torch.dtype, kind: str, config: pl.TileConfig, *, clips: bool
) -> None:
    """Factors that are too large for float16; transfers every third mini-batch."""
    if kind == "capturable" and device == "cpu":
        pytest.skip("optimisers are capturable on a GPU")
    models = [model_of(device, config) for _ in range(2)]
    optimizers = [optimizer_of(model, kind) for model in models]
    scalers = [scaler_on(device) for _ in models]
    before = (lambda: clip(models[0])) if clips else None
    step = TrainingStep(
        models[0], optimizers[0], loss_fn, before_step=before, amp=amp, scaler=scalers[0]
    )
    loop = Loop(models[1], optimizers[1], scalers[1], amp)
    for number in range(24):
        x, target = batch_of(number, device)
        loss = step(x, target)
        assert torch.equal(loss, loop(x, target, clips=clips)) or not loss.isfinite(), number
        assert scalers[0].get_scale() == scalers[1].get_scale(), number
    assert (1 < loop.left_out < 20) == (amp == torch.float16)
    assert step.plain_because is None
    assert (step.recorded_shapes > 0) == (device == "cuda")
    require_same(*models)


@pytest.mark.parametrize("device", DEVICES)
def test_a_step_that_is_left_out_changes_nothing(device: str) -> None:
    model = model_of(device)
    scaler = torch.amp.GradScaler(device, init_scale=4.0, growth_interval=1000)
    factor = torch.ones((), device=device)
    step = TrainingStep(
        model,
        AnalogSGD(model.parameters(), lr=0.1),
        lambda y, target: factor * loss_fn(y, target),
        scaler=scaler,
    )
    for number in range(5):
        step(*batch_of(number, device))
    digital = model[5].weight.clone()
    tiles = [layer.get_weights()[0] for layer in (model[0], model[3])]
    factor.fill_(float("inf"))
    step(*batch_of(5, device))
    assert scaler.get_scale() == 2.0
    assert torch.equal(model[5].weight, digital)
    for layer, before in zip((model[0], model[3]), tiles, strict=True):
        assert torch.equal(layer.get_weights()[0], before)
    factor.fill_(1.0)
    step(*batch_of(6, device))
    assert not torch.equal(model[0].get_weights()[0], tiles[0])


def test_a_scaler_that_is_off_is_none() -> None:
    models = [model_of("cpu") for _ in range(2)]
    off = torch.amp.GradScaler("cpu", enabled=False)
    steps = [
        TrainingStep(model, AnalogSGD(model.parameters(), lr=0.1), loss_fn, scaler=scaler)
        for model, scaler in zip(models, (off, None), strict=True)
    ]
    for number in range(4):
        assert torch.equal(*(step(*batch_of(number, "cpu")) for step in steps))
    require_same(*models)


def test_other_factors_are_recorded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    replayed = replay(monkeypatch)
    model = model_of("cpu")
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    step = TrainingStep(model, AnalogSGD(model.parameters(), lr=0.1), loss_fn, scaler=scaler)

    def steps(count: int) -> int:
        for number in range(count):
            step(*batch_of(number, "cpu"))
        return len(replayed.made)

    assert steps(5) == 1
    scaler.set_growth_interval(7)
    assert steps(3) == 2


@needs_gpu
def test_a_record_that_fails_leaves_the_scaler_ready() -> None:
    model = model_of("cuda")
    scaler = torch.amp.GradScaler("cuda", init_scale=4.0)

    def waits() -> None:
        if torch.cuda.is_current_stream_capturing():
            torch.ones(3, device="cuda").sum().item()

    step = TrainingStep(
        model, AnalogSGD(model.parameters(), lr=0.1), loss_fn, before_step=waits, scaler=scaler
    )
    for number in range(2):
        step(*batch_of(number, "cuda"))
    with pytest.warns(RuntimeWarning, match="plain loop"):
        step(*batch_of(2, "cuda"))
    assert torch.isfinite(step(*batch_of(3, "cuda")))
    assert scaler.get_scale() == 4.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"amp": "no"}, r"amp = 'no': write True, for bfloat16, torch\.float16"),
        ({"amp": torch.float64}, r"amp = torch\.float64: write True"),
        ({"amp": 1}, "amp = 1: write True"),
        ({"scaler": 2.0}, r"scaler is of type float; give a torch\.amp\.GradScaler, or None"),
    ],
)
def test_what_is_no_type_or_scaler_is_refused(given: dict[str, Any], message: str) -> None:
    model = model_of("cpu")
    make: Callable[..., TrainingStep] = TrainingStep
    with pytest.raises(TypeError, match=message):
        make(model, AnalogSGD(model.parameters(), lr=0.1), loss_fn, **given)


@pytest.mark.filterwarnings("ignore:analog layers ignore momentum")
@pytest.mark.parametrize(("momentum", "plain"), [(0.0, 2), (0.9, 5)])
def test_a_step_is_not_recorded_before_the_optimizer_has_its_state(
    momentum: float, plain: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph that makes momenta would make them again at each step."""
    replayed = replay(monkeypatch)
    model = model_of("cpu")
    optimizer = AnalogOptimizer(
        torch.optim.SGD, model.parameters(), lr=0.1, analog_lr=0.1, momentum=momentum
    )
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1000)
    factor = torch.full((), torch.inf)
    step = TrainingStep(
        model, optimizer, lambda y, target: factor * loss_fn(y, target), scaler=scaler
    )
    made = []
    for number in range(7):
        if number == 4:  # the first step that is made
            factor.fill_(1.0)
        step(*batch_of(number, "cpu"))
        made.append(len(replayed.made))
    assert made.index(1) == plain
