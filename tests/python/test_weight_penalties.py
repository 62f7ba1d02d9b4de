"""Terms of a loss on `layer.weight` act on tiles as they act on weights of torch."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import pulsora as pl

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    Penalty = Callable[[Tensor, nn.Module], Tensor]

IDEAL = pl.IdealConfig()


def l2(w: Tensor, _m: nn.Module) -> Tensor:
    return 0.1 * w.pow(2).sum()


def l1(w: Tensor, _m: nn.Module) -> Tensor:
    return 0.1 * w.abs().sum()


def orthogonal(w: Tensor, _m: nn.Module) -> Tensor:
    w = w.flatten(1)
    return (w @ w.T - torch.eye(len(w))).pow(2).sum()


def spectral(w: Tensor, _m: nn.Module) -> Tensor:
    return torch.linalg.matrix_norm(w.flatten(1), 2)


def cosine(w: Tensor, _m: nn.Module) -> Tensor:
    w = w.flatten(1)
    return functional.cosine_similarity(w[0], w[1], dim=0)


PENALTIES = {each.__name__: each for each in (l2, l1, orthogonal, spectral, cosine)}
LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], str]] = {
    "linear": (lambda: nn.Linear(6, 4), (5, 6), "weight"),
    "conv": (lambda: nn.Conv2d(4, 6, 3), (2, 4, 5, 5), "weight"),
    "groups": (lambda: nn.Conv2d(4, 6, 3, groups=2), (2, 4, 5, 5), "weight"),
    "lstm": (lambda: nn.LSTM(5, 3, 2), (4, 2, 5), "weight_hh_l1"),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "tiles": {"max_input_size": 4, "max_output_size": 3},
    "bias in cells": {"digital_bias": False},
    "scaled": {"weight_scaling": 0.5, "scaling_per": "output"},
}


def trained(model: nn.Module, name: str, shape: tuple[int, ...], term: Penalty) -> None:
    made = torch.optim.SGD if not _is_analog(model) else pl.optim.AnalogSGD
    optimizer = made(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(3)
    for _ in range(4):
        x = torch.randn(shape, generator=generator)
        optimizer.zero_grad()
        y = model(x)
        y = y[0] if isinstance(y, tuple) else y
        (y.pow(2).mean() + term(getattr(model, name), model)).backward()
        optimizer.step()


def _is_analog(model: nn.Module) -> bool:
    return any(isinstance(each, pl.nn.AnalogModule) for each in model.modules())


def gap(digital: nn.Module, analog: nn.Module) -> float:
    back = pl.convert_to_digital(analog)
    return max(
        float((p - q).abs().max().detach())
        for p, q in zip(digital.parameters(), back.parameters(), strict=True)
    )


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_penalty_acts_as_in_torch(penalty: str, layer: str, options: str) -> None:
    torch.manual_seed(0)
    make, shape, name = LAYERS[layer]
    digital = make()
    analog = pl.convert_to_analog(digital, IDEAL, **OPTIONS[options])
    for model in (digital, analog):
        trained(model, name, shape, PENALTIES[penalty])
    assert gap(digital, analog) < 2e-6


def test_a_penalty_alone_shrinks_each_weight() -> None:
    torch.manual_seed(0)
    layer = pl.nn.AnalogLinear(6, 4, config=IDEAL)
    optimizer = pl.optim.AnalogSGD(layer.parameters(), lr=0.1)
    before = layer.weight.detach().clone()
    (0.5 * (layer.weight**2).sum()).backward()
    torch.testing.assert_close(layer.analog_weight.grad.dense(), before)
    optimizer.step()
    torch.testing.assert_close(layer.weight.detach().clone(), 0.9 * before)


def test_learned_scales_get_their_gradient() -> None:
    torch.manual_seed(0)
    layer = pl.nn.AnalogLinear(6, 4, config=IDEAL, learn_out_scaling=True, scaling_per="output")
    with torch.no_grad():
        layer.out_scaling.copy_(torch.tensor([1.0, 2.0, 0.5, 3.0]))
    w = layer.tiles.get_weights().requires_grad_()
    s = layer.out_scaling.detach().clone().requires_grad_()
    (w * s[:, None]).pow(3).sum().backward()
    layer.weight.pow(3).sum().backward()
    torch.testing.assert_close(layer.analog_weight.grad.dense(), w.grad)
    torch.testing.assert_close(layer.out_scaling.grad, s.grad)


@pytest.mark.parametrize("form", ["matmul", "einsum", "addmm", "mask", "mm"])
def test_a_tied_autoencoder_equals_torch(form: str) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enc = nn.Linear(6, 4)
            self.mask = torch.ones(4, 6).tril()

        def forward(self, x: Tensor) -> Tensor:
            h, w = torch.tanh(self.enc(x)), self.enc.weight
            if form == "matmul":
                return h @ w
            if form == "einsum":
                return torch.einsum("bi,ij->bj", h, w)
            if form == "addmm":
                return torch.addmm(x, h, w)
            if form == "mm":
                return h.mm(w)
            return functional.linear(h, (w * self.mask).T)

    torch.manual_seed(0)
    digital = Tied()
    analog = pl.convert_to_analog(digital, IDEAL)
    expected = 0 if form == "mask" else 1  # a product with w * mask cannot be told from others
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for model in (digital, analog):
            made = torch.optim.SGD if model is digital else pl.optim.AnalogSGD
            optimizer = made(model.parameters(), lr=0.3)
            x = torch.randn(8, 6, generator=torch.Generator().manual_seed(1))
            for _ in range(5):
                optimizer.zero_grad()
                (model(x) - x).pow(2).mean().backward()
                optimizer.step()
    assert gap(digital, analog) < 2e-6
    messages = [str(each.message) for each in told]
    assert len(messages) == expected
    assert all("perfect read" in each for each in messages)


def test_pulses_shrink_weights_by_the_penalty_on_average() -> None:
    torch.manual_seed(0)
    device = pl.devices.Idealized().replace(dw_min=0.002, w_max_dtod=0.0, w_min_dtod=0.0)
    weight = torch.linspace(-0.5, 0.5, 12).reshape(3, 4)
    moved = []
    for seed in range(200):
        layer = pl.nn.AnalogLinear(
            4, 3, config=pl.SingleConfig(device=device), seed=seed, max_input_size=2
        )
        layer.set_weights(weight, torch.zeros(3))
        (0.5 * layer.weight.pow(2).sum()).backward()
        pl.optim.AnalogSGD(layer.parameters(), lr=0.05).step()
        moved.append((layer.weight.detach() - weight).numpy().copy())
    mean, deviation = np.mean(moved, axis=0), np.std(moved, axis=0) / np.sqrt(len(moved))
    assert np.all(np.abs(mean + 0.05 * weight.numpy()) < 5 * deviation + 1e-6)
    assert np.abs(mean).max() > 0.02


def test_reused_reads_refuse_a_penalty() -> None:
    config = pl.LRTTConfig(rank=2, projection="reuse")
    layer = pl.nn.AnalogLinear(6, 4, config=config)
    with pytest.raises(RuntimeError, match="projection = 'reuse'"):
        layer.weight.pow(2).sum().backward()


def test_without_gradients_the_copy_has_none() -> None:
    layer = pl.nn.AnalogLinear(6, 4, config=IDEAL)
    with torch.no_grad():
        assert not layer.weight.requires_grad
    layer.analog_weight.requires_grad_(requires_grad=False)
    assert not layer.weight.requires_grad
    layer.analog_weight.requires_grad_(requires_grad=True)
    assert layer.weight.requires_grad


@pytest.mark.parametrize("name", ["linear", "lstm"])
def test_idioms_of_logging_go_on_without_a_word(name: str) -> None:
    made = {
        "linear": lambda: pl.nn.AnalogLinear(6, 4, config=IDEAL).weight,
        "lstm": lambda: pl.nn.AnalogLSTM(6, 4, config=IDEAL).weight_hh_l0,
    }
    w = made[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "WeightCopy" in repr(w)
        assert np.asarray(w).shape == w.numpy().shape == tuple(w.shape)
        assert not w.numpy().flags.writeable
        assert w.tolist()[0][0] == float(w[0, 0]) == w[0, 0].item()
        assert f"{w[0, 0]:.3f}" == f"{w[0, 0].item():.3f}"
        assert w.norm().item() > 0.0
        assert w.abs().max() > 0.0
        assert bool((w[0, 0] == w[0, 0]).all())
        assert float(w.detach().norm()) > 0.0
        assert torch.equal(pickle.loads(pickle.dumps(w)), w)  # noqa: S301 - our own
        assert not copy.deepcopy(w).requires_grad
        tile = pl.Tile(*w.shape, IDEAL)
        tile.weights = w


def test_writes_are_still_refused() -> None:
    w = pl.nn.AnalogLinear(6, 4, config=IDEAL).weight
    for write in (
        lambda: w.mul_(2.0),
        lambda: w.__setitem__(0, 1.0),
        w[0].zero_,
        lambda: torch.add(w, 1.0, out=w),
        lambda: nn.init.zeros_(w),
    ):
        with pytest.raises(RuntimeError, match="set_weights"):
            write()
    with pytest.raises(RuntimeError, match="call the layer itself"):
        functional.linear(torch.ones(1, 6), w.reshape(4, 6))


def test_several_layers_warn_once_each() -> None:
    layers = [pl.nn.AnalogLinear(6, 4, config=IDEAL) for _ in range(2)]
    x = torch.ones(3, 6, requires_grad=True)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for layer in [*layers, *layers]:
            _ = x @ layer.weight.detach().T
            _ = x @ layer.weight.T
            _ = x.detach() @ layer.weight.T
            _ = layer.weight @ layer.weight.T
            with torch.no_grad():
                _ = x @ layer.weight.T
    assert len(told) == 2
    assert told[0].filename == __file__


PRODUCTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "linear": functional.linear,
    "operator": lambda x, w: x @ w.T,
    "right": lambda x, w: w @ x.T,
    "matmul": lambda x, w: torch.matmul(x, w.t()),
    "linalg": lambda x, w: torch.linalg.matmul(x, w.mT),
    "mm": lambda x, w: x.mm(w.T),
    "addmm": lambda x, w: torch.addmm(torch.zeros(4), x, w.T),
    "einsum": lambda x, w: torch.einsum("bi,oi->bo", x, w),
    "baddbmm": lambda x, w: torch.baddbmm(torch.zeros(1, 1, 1), x[None], w.T[None]),
    "bmm": lambda x, w: torch.bmm(x[None], w.T[None]),
    "mv": lambda x, w: torch.mv(w, x[0]),
    "tensordot": lambda x, w: torch.tensordot(x, w, ([1], [1])),
    "inner": torch.inner,
    "converted": lambda x, w: x.double() @ w.to(torch.float64).T.contiguous(),
}


@pytest.mark.parametrize("mode", ["digital_base", "analog_base_digital_adapter"])
@pytest.mark.parametrize("product", PRODUCTS)
def test_products_with_the_weight_of_an_adapted_base_are_refused(product: str, mode: str) -> None:
    options = {"base_config": IDEAL} if mode == "analog_base_digital_adapter" else {"config": IDEAL}
    model = pl.peft.add_adapters(nn.Sequential(nn.Linear(6, 4)), mode, rank=2, **options)
    weight = model[0].weight
    with pytest.raises(RuntimeError, match="adapter would be left out"):
        PRODUCTS[product](torch.ones(3, 6), weight)
    assert weight.dtype == torch.float32
    assert weight.norm().item() > 0.0


def test_a_penalty_on_a_trained_base_reaches_it() -> None:
    base = nn.Linear(6, 4)
    adapter = pl.nn.GatedAdapter(base, rank=2)
    adapter.weight.pow(2).sum().backward()
    torch.testing.assert_close(base.weight.grad, 2.0 * base.weight.detach())


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_a_compiled_loss_has_the_penalty() -> None:
    layer = pl.nn.AnalogLinear(6, 4, config=IDEAL)

    def loss(x: Tensor) -> Tensor:
        return layer(x).pow(2).mean() + 0.1 * layer.weight.pow(2).sum()

    x = torch.ones(3, 6)
    gradients = []
    for call in (loss, torch.compile(loss, backend="aot_eager")):
        layer.zero_grad()
        call(x).backward()
        gradients.append(layer.analog_weight.grad.dense())
    torch.testing.assert_close(*gradients)
    with pytest.raises(RuntimeError, match="call the layer itself"):
        torch.compile(lambda x: functional.linear(x, layer.weight), backend="aot_eager")(x)
