"""Converted layers compute what the layers computed before, or the conversion is refused."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import prune

import peft_files
import pulsora as pl

if TYPE_CHECKING:
    from collections.abc import Callable

IDEAL = pl.IdealConfig()


class Conv1D(nn.Module):
    """Looks like the Conv1D of transformers, and multiplies by a factor."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.nf, self.factor = 4, factor
        self.weight = nn.Parameter(torch.randn(6, 4))
        self.bias = nn.Parameter(torch.randn(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.factor * (x @ self.weight) + self.bias


class Half(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * super().forward(x)


def doubled() -> nn.Module:
    layer: Any = nn.Conv2d(2, 3, 3)
    layer._conv_forward = lambda x, w, b: 2.0 * functional.conv2d(x, w, b)
    return layer  # type: ignore[no-any-return]


def repadded() -> nn.Module:
    layer = nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect")
    layer.padding = (0, 0)  # torch pads by what was computed from the first one
    return layer


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(6, 4),
    "no bias": lambda: nn.Linear(6, 4, bias=False),
    "conv1d": lambda: nn.Conv1d(2, 3, 3, 2, 1, 2),
    "groups": lambda: nn.Conv2d(4, 6, (3, 2), (1, 2), (2, 1), groups=2, padding_mode="reflect"),
    "same": lambda: nn.Conv2d(2, 3, 3, padding="same", padding_mode="circular"),
    "conv3d": lambda: nn.Conv3d(2, 3, 2, padding=1, padding_mode="replicate"),
    "lstm": lambda: nn.LSTM(5, 4, 2, bidirectional=True, proj_size=2, dropout=0.5),
    "gru": lambda: nn.GRU(5, 4, batch_first=True),
    "rnn": lambda: nn.RNN(5, 4, nonlinearity="relu", bias=False),
    "transformers": lambda: peft_files.Conv1D(4, 6),
}
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bias in cells": {"digital_bias": False},
    "tiles": {"max_input_size": 4, "max_output_size": 2},
    "scales": {"weight_scaling": "abs_max", "scaling_per": "output", "learn_out_scaling": True},
}


@pytest.mark.filterwarnings("ignore:.*lie outside the bounds")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_no_layer_of_torch_is_refused(kind: str, way: str, dtype: torch.dtype) -> None:
    """Noisy reads, spread bounds and small types do not count as another computation."""
    torch.manual_seed(0)
    model = nn.Sequential(LAYERS[kind]()).to(dtype)
    for config in (IDEAL, pl.SingleConfig(), pl.LRTTConfig(rank=1)):
        made = pl.convert_to_analog(model, config, seed=1, threads=1, **WAYS[way])
        for part in made.modules():
            if isinstance(part, pl.nn.AnalogModule) and part.out_scaling is not None:
                part.out_scaling.data.fill_(1.3)
        pl.convert_to_digital(made)


@pytest.mark.filterwarnings("ignore:.*lie outside the bounds")
@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda: Conv1D(2.0), r"change by [0-9.]+ of their size"),
        (doubled, "change by 0.5 of their size"),
        (repadded, "change their shape"),
    ],
)
def test_layers_that_compute_something_else_are_refused(
    make: Callable[[], nn.Module], change: str
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Identity(), make())
    message = rf"layer '1': on random inputs, its outputs would {change}.*exclude = \['1'\]"
    with pytest.raises(ValueError, match=message):
        pl.convert_to_analog(model, IDEAL)
    with pytest.raises(ValueError, match="layer '1'"):
        pl.convert_to_analog(model, pl.LRTTConfig(rank=1), threads=1)
    excluded = pl.convert_to_analog(model, IDEAL, exclude=["1"])
    assert type(excluded[1]) is type(model[1])  # type: ignore[index]


def scaled_twice() -> nn.Module:
    """Two layers that share tiles, with factors of their own on the outputs."""
    one, two = (
        pl.nn.AnalogLinear(4, 4, config=IDEAL, seed=1, learn_out_scaling=True) for _ in range(2)
    )
    two.analog_weight = one.analog_weight
    two.out_scaling.data.fill_(2.0)  # type: ignore[union-attr]
    return nn.Sequential(one, two)


def hooked_inside() -> nn.Module:
    lstm: Any = pl.nn.AnalogLSTM(4, 3, config=IDEAL)
    lstm.hh_l0.register_forward_hook(lambda _l, _x, y: 2.0 * y)
    return nn.Sequential(lstm)


def replaced_inside() -> nn.Module:
    class Own(pl.nn.AnalogLinear):
        def forward(self, *given: Any, **named: Any) -> torch.Tensor:
            return 2.0 * super().forward(*given, **named)

    lstm: Any = pl.nn.AnalogLSTM(4, 3, config=IDEAL)
    lstm.hh_l0 = Own(3, 12, bias=False, config=IDEAL)
    return nn.Sequential(lstm)


def moved_padding() -> nn.Module:
    layer = pl.nn.AnalogConv2d(2, 3, 3, padding=1, config=IDEAL)
    layer.padding = (0, 0)
    return nn.Sequential(layer)


def other_weights() -> nn.Module:
    class Zero(pl.nn.AnalogLinear):
        def get_weights(self) -> tuple[torch.Tensor, torch.Tensor | None]:
            return torch.zeros(4, 4), torch.zeros(4)

    return nn.Sequential(Zero(4, 4, config=IDEAL))


@pytest.mark.parametrize(
    "make", [scaled_twice, hooked_inside, replaced_inside, moved_padding, other_weights]
)
def test_analog_layers_that_compute_something_else_are_refused(
    make: Callable[[], nn.Module],
) -> None:
    torch.manual_seed(0)
    message = r"layer '[01]'.*: on random inputs, its outputs would change|subclass of AnalogLinear"
    with pytest.raises((ValueError, TypeError), match=message):
        pl.convert_to_digital(make())


def test_hooks_and_parametrizations_stay_and_are_not_called() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)))
    calls: list[int] = []
    model[0].register_forward_hook(lambda _l, _x, y: (calls.append(1), 2.0 * y)[1])
    with pytest.warns(UserWarning, match=r"these layers stay digital: 1 \(ParametrizedLinear"):
        analog = pl.convert_to_analog(model, IDEAL)
    digital = pl.convert_to_digital(analog)
    assert not calls
    x = torch.randn(3, 4)
    torch.testing.assert_close(analog(x), model(x))
    torch.testing.assert_close(digital(x), model(x))
    assert len(calls) == 4


def test_checks_leave_no_trace() -> None:
    """Cells, noise of later reads, random numbers, modes and gradients are as without a check."""
    torch.manual_seed(0)
    layer = nn.Linear(4, 4)
    state = torch.get_rng_state()
    converted = pl.convert_to_analog(nn.Sequential(layer), pl.SingleConfig(), seed=1, threads=1)
    assert torch.equal(torch.get_rng_state(), state)
    made = pl.nn.AnalogLinear(4, 4, config=pl.SingleConfig(), seed=1, threads=1)
    made.set_weights(layer.weight, layer.bias)
    x = torch.randn(3, 4)
    assert torch.equal(converted(x), made(x))
    assert converted.training
    assert converted[0].training  # type: ignore[index]
    pl.convert_to_digital(converted)
    assert torch.equal(converted(x), made(x))


def by_weights(factor: float) -> Callable[..., nn.Module]:
    def function(layer: Any, config: pl.TileConfig, **options: Any) -> nn.Module:  # noqa: ANN401
        twin = pl.nn.AnalogLinear(layer.in_features, layer.out_features, config=config, **options)
        twin.set_weights(factor * layer.weight, factor * layer.bias)
        return twin

    return function


def test_functions_of_the_user_are_compared() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Half(6, 4))
    message = (
        r"layer '0': on random inputs, its outputs change by 1 of their size.*conversions\[Hal"
    )
    with pytest.warns(UserWarning, match=message):
        pl.convert_to_analog(model, IDEAL, conversions={Half: by_weights(1.0)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pl.convert_to_analog(model, IDEAL, conversions={Half: by_weights(0.5)})
        # Inputs of other layers are unknown, so that they are not compared.
        other = nn.Sequential(nn.Bilinear(4, 4, 3))
        pl.convert_to_analog(other, IDEAL, conversions={nn.Bilinear: lambda *_, **__: nn.Tanh()})


def test_a_few_weights_beyond_the_bounds_are_told_by_their_effect() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(300, 300)
    layer.weight.data[0, 0] = 50.0
    message = (
        r"layer '0': on random inputs, its outputs change by 0\.9\d of their size, because a few"
    )
    with pytest.warns(UserWarning, match=message):
        pl.convert_to_analog(nn.Sequential(layer), pl.SingleConfig(), seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pl.convert_to_analog(
            nn.Sequential(layer), pl.SingleConfig(), seed=1, weight_scaling="abs_max"
        )


def test_complex_weights_and_computed_biases_stay_digital() -> None:
    pruned = nn.Linear(4, 4).requires_grad_(requires_grad=False)
    prune.l1_unstructured(pruned, "bias", amount=0.5)
    model = nn.Sequential(nn.Linear(4, 4, dtype=torch.complex64), pruned)
    message = r"0 \(Linear: its weight is torch.complex64.*; 1 \(Linear: its weight or bias is comp"
    with pytest.warns(UserWarning, match=message):
        converted = pl.convert_to_analog(model, IDEAL)
    assert not pl.conversion_report(converted).analog


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
@pytest.mark.parametrize("old", ["prune", "weight_norm", "spectral_norm"])
def test_models_that_torch_cannot_copy_name_the_layer(old: str) -> None:
    model = nn.Sequential(nn.Identity(), nn.Linear(4, 4))
    if old == "prune":
        prune.l1_unstructured(model[1], "weight", amount=0.5)
    else:
        getattr(nn.utils, old)(model[1])
    model(torch.ones(1, 4))
    ways: list[Callable[[], object]] = [
        lambda: pl.convert_to_analog(model, IDEAL),
        lambda: pl.convert_to_digital(model),
        lambda: pl.peft.merge_adapters(model),
        lambda: pl.average([model, model]),
    ]
    for way in ways:
        with pytest.raises(RuntimeError, match=r"layer '1' \(Linear\) cannot be copied.*weight is"):
            way()
    if old == "prune":
        prune.remove(model[1], "weight")
        pl.convert_to_analog(model, IDEAL)


def test_the_message_ends_in_a_way_out() -> None:
    model = nn.Sequential(Conv1D(2.0))
    with pytest.raises(ValueError, match="exclude") as told:
        pl.convert_to_analog(model, IDEAL)
    (name,) = re.findall(r"exclude = \['(\w+)'\]", str(told.value))
    assert not pl.conversion_report(pl.convert_to_analog(model, IDEAL, exclude=[name])).analog


@pytest.mark.parametrize("factors", [[1.0, 1.0], [1.0, -1.0], [0.2, 0.2]])
def test_factors_of_arrays_that_change_the_weights_are_told(factors: list[float]) -> None:
    device = pl.devices.SoftBounds()
    model = nn.Sequential(nn.Linear(6, 5, bias=False))
    with torch.no_grad():
        model[0].weight.mul_(0.1)
    config = pl.VectorConfig(devices=[device, device], gamma_vec=factors)
    with pytest.warns(UserWarning, match="layer '0': .* reads see their sum by gamma_vec"):
        pl.convert_to_analog(model, config)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pl.convert_to_analog(model, pl.VectorConfig(devices=[device, device]))
