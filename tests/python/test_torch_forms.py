"""One table of the ways to train in torch that analog layers follow as torch's own layers do.

Each line trains a digital model and its analog twin of ideal tiles by the same code. After some
steps all weights agree to 1e-6.

More about single forms: test_torch_conv.py, test_torch_gradients.py and test_torch_recurrent.py;
Trainer, accelerate and Lightning: test_hugging_face.py; recorded steps: test_training_step.py.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

import pulsora as pl
from torch_forms import (
    Recurrent,
    Unrolled,
    accumulate,
    anomaly,
    changed,
    checkpointed,
    clip,
    closure,
    compiled,
    fgsm,
    forwards_first,
    frozen_midway,
    frozen_with_input_gradients,
    full_hooks,
    grad_scaler,
    hooked,
    in_backward,
    in_threads,
    loss_backward,
    mean_of_gradients,
    mlp,
    on_cpu,
    own_rates,
    plain,
    scaled_in_place,
    scheduled,
    some_inputs,
    steps_of,
    tied,
    truncated,
    two_losses,
    two_optimizers,
    warm_up,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch_forms import Train


# A warning that torch's compiler raises by looking at activations.
LEAF = "ignore:The .grad attribute of a Tensor that is not a leaf"
CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


def conv(dimensions: int, **options: Any) -> nn.Module:
    return CONV[dimensions](4, 4, 3, **options)


FORMS: dict[str, tuple[Callable[[], nn.Module], Train]] = {
    # Linear layers
    "linear": (mlp, plain()),
    "linear, no bias": (lambda: nn.Linear(4, 3, bias=False), plain()),
    "linear, one sample": (mlp, plain(4)),
    "linear, many dimensions": (mlp, plain(2, 3, 5, 4)),
    "in-place activations": (lambda: mlp(nn.ReLU(inplace=True)), plain()),
    "a layer used twice": (lambda: Unrolled(2), plain()),
    "a cell unrolled 200 times": (lambda: Unrolled(200), plain()),
    "tied layers": (tied, plain()),
    # Convolutions
    "conv 1d": (lambda: conv(1), plain(2, 4, 7)),
    "conv 2d": (lambda: conv(2), plain(2, 4, 7, 6)),
    "conv 3d": (lambda: conv(3), plain(2, 4, 5, 4, 6)),
    "conv, groups": (lambda: conv(2, groups=2), plain(2, 4, 7, 6)),
    "conv, one group a channel": (lambda: conv(1, groups=4), plain(2, 4, 7)),
    "conv, stride": (lambda: conv(2, stride=(2, 1)), plain(2, 4, 7, 6)),
    "conv, dilation": (lambda: conv(2, dilation=2), plain(2, 4, 7, 6)),
    "conv, padding of zeros": (lambda: conv(2, padding=(2, 0)), plain(2, 4, 7, 6)),
    "conv, padding same": (lambda: conv(3, padding="same"), plain(2, 4, 3, 4, 3)),
    "conv, padding reflect": (
        lambda: conv(2, padding=1, padding_mode="reflect"),
        plain(2, 4, 5, 6),
    ),
    "conv, padding replicate": (
        lambda: conv(1, padding=2, padding_mode="replicate"),
        plain(2, 4, 5),
    ),
    "conv, padding circular": (
        lambda: conv(2, padding=1, padding_mode="circular"),
        plain(2, 4, 5, 6),
    ),
    "conv, channels last": (lambda: conv(2, padding=1), plain(2, 4, 5, 6, last=True)),
    "conv, no batch": (lambda: conv(2), plain(4, 5, 6)),
    # Recurrent layers
    "RNN": (lambda: Recurrent(nn.RNN(4, 5)), plain(6, 2, 4)),
    "RNN with relu": (lambda: Recurrent(nn.RNN(4, 5, nonlinearity="relu")), plain(6, 2, 4)),
    "LSTM": (lambda: Recurrent(nn.LSTM(4, 5)), plain(6, 2, 4)),
    "GRU": (lambda: Recurrent(nn.GRU(4, 5)), plain(6, 2, 4)),
    "LSTM, 2 layers": (lambda: Recurrent(nn.LSTM(4, 5, 2)), plain(6, 2, 4)),
    "GRU, bidirectional": (lambda: Recurrent(nn.GRU(4, 5, bidirectional=True)), plain(6, 2, 4)),
    "LSTM, projections": (lambda: Recurrent(nn.LSTM(4, 5, proj_size=2)), plain(6, 2, 4)),
    "RNN, batch first": (lambda: Recurrent(nn.RNN(4, 5, batch_first=True)), plain(2, 6, 4)),
    "GRU, packed": (lambda: Recurrent(nn.GRU(4, 5), [3, 6, 1]), plain(6, 3, 4)),
    "LSTM, no batch": (lambda: Recurrent(nn.LSTM(4, 5)), plain(6, 4)),
    "LSTM, 200 steps": (lambda: Recurrent(nn.LSTM(4, 5)), plain(200, 2, 4, lr=0.05)),
    "truncated backpropagation through time": (lambda: Recurrent(nn.LSTM(4, 5)), truncated),
    # Backward passes
    "accumulation": (mlp, steps_of(accumulate)),
    "several forwards": (mlp, steps_of(forwards_first)),
    "two losses, retain_graph": (mlp, steps_of(two_losses)),
    "set_to_none=False": (mlp, steps_of(loss_backward, to_none=False)),
    "backward(inputs=)": (mlp, steps_of(some_inputs)),
    "freezing midway": (mlp, steps_of(frozen_midway)),
    "frozen, gradients of inputs": (mlp, steps_of(frozen_with_input_gradients)),
    "FGSM": (mlp, steps_of(fgsm)),
    "hooks of tensors": (mlp, steps_of(hooked)),
    "full backward hooks": (mlp, steps_of(full_hooks)),
    "backward in threads": (mlp, steps_of(in_threads)),
    "detect_anomaly": (mlp, steps_of(anomaly)),
    "save_on_cpu": (mlp, steps_of(on_cpu)),
    "activation checkpointing": (mlp, steps_of(checkpointed)),
    # Gradients between backward() and step()
    "p.grad = (g1 + g2) / 2": (mlp, steps_of(mean_of_gradients)),
    "p.grad.mul_()": (mlp, changed(scaled_in_place)),
    "clipping by norm 1": (mlp, clip(1.0)),
    "clipping by norm 2": (mlp, clip(2.0)),
    "clipping by norm inf": (mlp, clip(float("inf"))),
    "clipping, foreach": (mlp, clip(2.0, foreach=True)),
    "clipping, one by one": (mlp, clip(2.0, foreach=False)),
    "GradScaler and clipping": (mlp, grad_scaler),
    # Optimisers
    "maximize": (mlp, changed(lambda *_: None, maximize=True)),
    "groups with their own lr": (mlp, own_rates),
    "two optimisers": (mlp, two_optimizers),
    "optimiser in backward": (mlp, in_backward),
    "closure": (mlp, closure),
    "StepLR": (mlp, scheduled(lambda o: lr_scheduler.StepLR(o, 2))),
    "SequentialLR": (mlp, scheduled(warm_up)),
    "warm restarts": (mlp, scheduled(lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 2))),
    # Compilers
    "torch.compile, graphs alone": (mlp, compiled("eager")),
}


def largest_difference(ours: Any, theirs: Any) -> float:  # noqa: ANN401
    """The largest difference of numbers in equal trees of lists, dicts and tensors."""
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        ours, theirs = list(ours.values()), list(theirs.values())
    if isinstance(theirs, list):
        return max(map(largest_difference, ours, theirs), default=0.0)
    if theirs is None:
        assert ours is None
        return 0.0
    difference = torch.as_tensor(ours) - torch.as_tensor(theirs)
    return float(difference.detach().abs().max()) if difference.numel() else 0.0


def both(form: tuple[Callable[[], nn.Module], Train]) -> None:
    """Trains the digital model and its analog twin; all weights and returned values agree."""
    make, train = form
    torch.manual_seed(0)
    digital = make()
    before = copy.deepcopy(digital.state_dict())
    analog = pl.convert_to_analog(digital, pl.IdealConfig(), max_input_size=4, seed=1)
    assert any(isinstance(p, pl.nn.AnalogParameter) for p in analog.parameters())
    expected = train(digital, torch.optim.SGD)
    found = train(analog, pl.optim.AnalogSGD)
    assert largest_difference(found, expected) < 2e-6
    after = digital.state_dict()
    assert largest_difference(pl.convert_to_digital(analog).state_dict(), after) < 1e-6
    moved = [name for name in after if largest_difference(after[name], before[name]) > 1e-4]
    assert any("weight" in name for name in moved)


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.filterwarnings(LEAF)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_form_of_training_gives_the_weights_of_torch(
    form: tuple[Callable[[], nn.Module], Train],
) -> None:
    both(form)


@pytest.mark.filterwarnings(LEAF)
@pytest.mark.nightly  # torch's compiler builds C++ for half a minute
def test_compiled_code_gives_the_weights_of_torch() -> None:
    both((mlp, compiled("inductor")))
