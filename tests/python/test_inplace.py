"""Conversion in place: the given model is changed, and digital weights are freed one by one."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import warnings
import weakref

import pytest
import torch
from torch import nn

import pulsora as pl
from conftest import CARRIERS, PERFECT
from pulsora.nn import AnalogLinear, AnalogModule

IDEAL = pl.IdealConfig(**PERFECT)


class Net(nn.Module):
    """Layers of all kinds, one of which occurs twice and two of which share their weight."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh())
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.second.weight = self.first.weight
        self.again = self.first
        self.memory = nn.LSTM(8, 6)
        self.norm = nn.LayerNorm(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.body(self.conv(x))
        y: torch.Tensor = self.norm(self.memory(self.again(self.second(self.first(h))))[0])
        return y


def net() -> Net:
    torch.manual_seed(0)
    return Net()


def same_state(one: nn.Module, other: nn.Module) -> bool:
    mine, its = one.state_dict(), other.state_dict()
    return mine.keys() == its.keys() and all(torch.equal(mine[name], its[name]) for name in mine)


@pytest.mark.parametrize("config", CARRIERS, ids=lambda each: type(each).__name__)
def test_in_place_has_the_bits_of_a_copy(config: pl.TileConfig) -> None:
    given = net()
    copied = pl.convert_to_analog(given, config, seed=3)
    assert type(given.first) is nn.Linear
    assert given.first.weight.shape == (8, 8)
    made = pl.convert_to_analog(given, config, seed=3, inplace=True)
    assert made is given
    assert same_state(made, copied)
    assert made.again is made.first
    assert made.second.carrier is made.first.carrier
    x = torch.rand(3, 1, 4, 4)
    assert torch.equal(made(x), copied(x))


def test_weights_go_and_biases_stay() -> None:
    model = net()
    digital, bias = model.first, model.first.bias
    weights = [weakref.ref(model.conv.weight), weakref.ref(model.memory.weight_ih_l0)]
    held = model.first.weight
    pl.convert_to_analog(model, IDEAL, inplace=True)
    assert [each() for each in weights] == [None, None]
    assert held.numel() == digital.weight.numel() == 0  # others hold the parameter, not its memory
    assert model.first.bias is bias
    assert bias.shape == (8,)


def test_a_single_layer_gives_its_twin() -> None:
    layer = nn.Linear(3, 2)
    weight = layer.weight.detach().clone()
    made = pl.convert_to_analog(layer, IDEAL, inplace=True)
    assert isinstance(made, AnalogLinear)
    assert torch.equal(made.get_weights()[0], weight)
    assert layer.weight.numel() == 0


def refused(model: nn.Module, error: type[Exception], text: str, **options: object) -> None:
    """A conversion in place raises an error, and the model stays as it was."""
    before = copy.deepcopy(model.state_dict())
    modules = list(model.modules())
    random = torch.random.get_rng_state()
    with pytest.raises(error, match=text):
        pl.convert_to_analog(model, inplace=True, seed=1, **options)  # type: ignore[arg-type]
    assert list(model.modules()) == modules
    after = model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name].nan_to_num(), before[name].nan_to_num()) for name in before)
    assert torch.equal(torch.random.get_rng_state(), random)


def test_what_a_later_layer_refuses_is_known_before_the_first_is_replaced() -> None:
    model = nn.Sequential(nn.Linear(24, 24), nn.Linear(24, 3))
    with pytest.raises(pl.ConfigError) as copying:
        pl.convert_to_analog(model, pl.LRTTConfig(rank=4))
    refused(model, pl.ConfigError, r"^layer '1': lrtt.rank is 4", config=pl.LRTTConfig(rank=4))
    with pytest.raises(pl.ConfigError) as changing:
        pl.convert_to_analog(model, pl.LRTTConfig(rank=4), inplace=True)
    assert str(changing.value) == str(copying.value)
    with torch.no_grad():
        model[1].weight[2, 5] = float("nan")
    refused(model, pl.InputError, r"layer '1', weight: weights\[2, 5\] is nan", config=IDEAL)
    refused(net(), ValueError, "weight_scaling", config=IDEAL, weight_scaling=-1.0)
    refused(net(), TypeError, "max_size", config=IDEAL, max_size=3)


def test_a_layer_that_computes_something_else_is_found_before() -> None:
    class Conv1D(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.nf = 3
            self.weight, self.bias = nn.Parameter(torch.rand(4, 3)), nn.Parameter(torch.rand(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2.0 * (x @ self.weight) + self.bias

    model = nn.Sequential(nn.Linear(4, 4), Conv1D())
    refused(model, ValueError, "layer '1': on random inputs", config=IDEAL)


def test_ties_return_after_an_error() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
            self.head.weight = self.table.weight

    model = Tied()
    refused(model, pl.ConfigError, "rank", config=pl.LRTTConfig(rank=40), untie=["head"])
    assert model.head.weight is model.table.weight
    pl.convert_to_analog(model, IDEAL, inplace=True, untie=["head"])
    assert torch.equal(model.head.get_weights()[0], model.table.weight)
    assert model.table.weight.shape == (5, 4)


def test_a_later_error_leaves_whole_layers() -> None:
    wide = nn.Linear(8, 8)
    nn.init.constant_(wide.weight, 5.0)
    model = nn.Sequential(nn.Linear(8, 8), wide, nn.Linear(8, 8))
    nn.init.uniform_(model[0].weight, -0.1, 0.1)
    config = pl.SingleConfig()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="lie outside"):
            pl.convert_to_analog(model, config, inplace=True)
    assert [type(layer) for layer in model] == [AnalogLinear, nn.Linear, nn.Linear]
    assert torch.equal(model[1].weight, torch.full((8, 8), 5.0))
    with pytest.warns(UserWarning, match="lie outside"):
        pl.convert_to_analog(model, config, inplace=True, seed=4)
    assert all(isinstance(layer, AnalogModule) for layer in model)


@pytest.mark.filterwarnings("ignore:these layers stay digital")
def test_functions_of_ones_own_keep_the_layers_that_they_use() -> None:
    class Mine(nn.Linear):
        pass

    class Around(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.inner(x)
            return y

    model = nn.Sequential(Mine(3, 3), nn.Linear(3, 3))
    weight = model[0].weight.detach().clone()
    pl.convert_to_analog(
        model, IDEAL, inplace=True, conversions={Mine: lambda layer, *_, **__: Around(layer)}
    )
    assert torch.equal(model[0].inner.weight, weight)


_PEAK = """
import re, sys, torch
from torch import nn
import pulsora as pl

def now(name):
    return int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024

inplace = sys.argv[1] == "True"
model = nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(24)))  # 96 MiB
pl.convert_to_analog(nn.Linear(1024, 1024, bias=False), pl.IdealConfig())  # what is used once
before = now("VmRSS")
made = pl.convert_to_analog(model, pl.IdealConfig(), inplace=inplace)
print(now("VmHWM") - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_peak_is_one_model_and_a_layer() -> None:
    def peak(*, inplace: bool) -> float:
        # Freed memory goes back at once: glibc would keep what it has, for the next time.
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-c", _PEAK, str(inplace)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"},
        )
        return float(done.stdout)

    # Tiles of IdealConfig take 4 bytes a weight, as the digital model: 96 MiB in all, 4 a layer.
    assert peak(inplace=False) > 90.0
    assert peak(inplace=True) < 40.0
