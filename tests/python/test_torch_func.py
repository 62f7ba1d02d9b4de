"""torch.func over analog layers: frozen ones with perfect reads work, others say what does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, vmap

import pulsora as pl

if TYPE_CHECKING:
    from collections.abc import Callable

# Of torch's own, when it loads what differentiates forward.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.* is deprecated:DeprecationWarning")

IDEAL = pl.IdealConfig()
LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(6, 4), (3, 6)),
    "groups": (lambda: nn.Conv2d(4, 4, 3, padding=1, groups=2), (3, 4, 5, 5)),
    "ones": (lambda: nn.Conv1d(2, 3, 1), (3, 2, 5)),
    "lstm": (lambda: nn.LSTM(4, 3, 2, batch_first=True), (3, 2, 4)),
    "gru": (lambda: nn.GRU(4, 3), (3, 2, 4)),
}
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "tiles": {"digital_bias": False, "max_input_size": 3, "weight_scaling": "abs_max"},
    "scales": {"learn_out_scaling": True},
}


def total(model: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    def loss(x: torch.Tensor) -> torch.Tensor:
        y = model(x)
        return (y[0] if isinstance(y, tuple) else y).sin().sum()

    return loss


def frozen(layer: nn.Module, **options: Any) -> nn.Module:
    made = pl.convert_to_analog(layer, IDEAL, threads=1, **options)
    for each in made.parameters():
        if isinstance(each, pl.nn.AnalogParameter):
            each.requires_grad_(requires_grad=False)
    return made


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", LAYERS)
def test_frozen_layers_with_perfect_reads_are_transformed(kind: str, way: str) -> None:
    torch.manual_seed(0)
    make, shape = LAYERS[kind]
    layer, x = make(), torch.randn(shape)
    ours = frozen(layer, **WAYS[way])
    transforms: list[Callable[..., Any]] = [grad, jacrev]
    transforms += [] if isinstance(layer, nn.RNNBase) else [jacfwd, hessian]
    for transform in transforms:
        wanted, found = (transform(total(each))(x) for each in (layer, ours))
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    wanted = torch.stack([total(layer)(each) for each in x])
    torch.testing.assert_close(vmap(total(ours))(x), wanted, rtol=1e-5, atol=1e-5)


def test_gradients_for_each_sample_of_what_is_trained_beside() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(frozen(nn.Linear(6, 5)), nn.Linear(5, 2)), torch.randn(3, 6)
    head = {name: each for name, each in model.named_parameters() if name.startswith("1.")}

    def loss(parameters: dict[str, torch.Tensor], sample: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = functional_call(model, parameters, (sample,))
        return y.square().sum()

    found = vmap(grad(loss), (None, 0))(head, x)
    for number, sample in enumerate(x):
        model.zero_grad()
        model(sample).square().sum().backward()
        for name, each in head.items():
            torch.testing.assert_close(found[name][number], each.grad)


@pytest.mark.parametrize("base", [lambda: nn.Linear(6, 4), lambda: frozen(nn.Linear(6, 4))])
def test_adapted_layers_are_transformed(base: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    adapter, x = pl.nn.GatedAdapter(base(), rank=2, gate=0.5), torch.randn(3, 6)
    adapter.set_factors(torch.randn(4, 2), torch.randn(2, 6))
    torch.testing.assert_close(vmap(adapter)(x), adapter(x))
    wanted = torch.autograd.functional.jacobian(total(adapter), x)
    torch.testing.assert_close(grad(total(adapter))(x), wanted)


def test_trained_and_noisy_layers_are_refused() -> None:
    x = torch.randn(3, 6)
    trained = pl.nn.AnalogLinear(6, 4, config=IDEAL)
    message = r"torch.func .* is not available .*requires_grad_\(False\) or torch.no_grad\(\)"
    with pytest.raises(RuntimeError, match=message):
        vmap(trained)(x)
    with torch.no_grad():
        torch.testing.assert_close(vmap(trained)(x), trained(x))
    converters = pl.IdealConfig(forward=pl.IOParameters())
    for config in (pl.SingleConfig(), pl.LRTTConfig(rank=1), converters):
        noisy = pl.nn.AnalogLinear(6, 4, config=config).requires_grad_(requires_grad=False)
        with pytest.raises(RuntimeError, match=message):
            vmap(noisy)(x)


def test_functional_call_takes_the_digital_parameters() -> None:
    torch.manual_seed(0)
    model, x = (
        nn.Sequential(pl.nn.AnalogLinear(6, 5, config=IDEAL), nn.Linear(5, 2)),
        torch.ones(1, 6),
    )
    assert torch.equal(functional_call(model, dict(model.named_parameters()), (x,)), model(x))
    given = {"1.weight": torch.zeros(2, 5), "1.bias": torch.ones(2)}
    assert torch.equal(functional_call(model, given, (x,)), torch.ones(1, 2))
    with pytest.raises(RuntimeError, match="other weights than its tiles"):
        functional_call(model, {"0.analog_weight": torch.zeros(5, 6)}, (x,))
    images = pl.nn.AnalogConv2d(1, 2, 3, config=IDEAL)
    with pytest.raises(RuntimeError, match="other weights than its tiles"):
        functional_call(images, {"analog_weight": torch.zeros(2, 9)}, (torch.ones(1, 1, 4, 4),))
