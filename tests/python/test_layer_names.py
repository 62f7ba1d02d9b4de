"""Refusals of steps, backward passes and conversions name the layer."""

from __future__ import annotations

import copy
import pickle
import re
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import pulsora as pl
from pulsora.nn.tiles.layer_names import described

if TYPE_CHECKING:
    from collections.abc import Callable

EXACT = pl.IOParameters(is_perfect=True)
CONFIG = pl.SingleConfig(forward=EXACT, backward=EXACT)
REUSE = pl.LRTTConfig(rank=2, projection="reuse", forward=EXACT, backward=EXACT)
NO_VECTORS = pl.LRTTConfig(rank=2, reinit="svd", transfer_every=1)


def model(config: pl.TileConfig = CONFIG) -> nn.Sequential:
    """Two layers, of which the second has a configuration of its own."""
    torch.manual_seed(0)
    digital = nn.Sequential(nn.Linear(5, 4), nn.Sequential(nn.Tanh(), nn.Linear(4, 3)))
    return pl.convert_to_analog(digital, lambda name, _: config if name == "1.1" else CONFIG)


def read(made: nn.Module) -> torch.Tensor:
    return made(torch.ones(6, 5)).square().sum()


def bad_d(made: nn.Sequential) -> None:
    weight = made[1][1].analog_weight
    weight.grad = weight.gradient(torch.ones(2, 4), torch.full((2, 3), torch.nan))


def overwritten(made: nn.Sequential) -> None:
    weight = made[1][1].analog_weight
    weight.grad.pairs[0].d.add_(1.0)


def replaced(made: nn.Sequential) -> None:
    weight = made[1][1].analog_weight
    weight.grad = torch.zeros(3, 4)


def dropped(made: nn.Sequential) -> None:
    made[1][1].analog_weight.grad.factors.drop("dropped by the test")


STEPS: dict[str, tuple[pl.TileConfig, Callable[[nn.Sequential], None], type, str]] = {
    "not finite": (CONFIG, bad_d, pl.InputError, r"d\[0, 0\] is nan"),
    "overwritten": (CONFIG, overwritten, RuntimeError, "changed in place"),
    "replaced": (CONFIG, replaced, RuntimeError, "replaced by another tensor"),
    "dropped": (CONFIG, dropped, RuntimeError, "dropped by the test"),
    "no vectors": (NO_VECTORS, lambda _: None, pl.ConfigError, "no vectors were handed in"),
}


@pytest.mark.parametrize("case", STEPS)
def test_a_refused_step_names_the_layer(case: str) -> None:
    config, spoil, kind, text = STEPS[case]
    made = model(config)
    optimizer = pl.optim.AnalogSGD(made.parameters(), lr=0.1)
    read(made).backward()
    spoil(made)
    before = copy.deepcopy(made.state_dict())
    for _ in range(2):  # the second refusal has no second name
        with pytest.raises(
            kind, match=rf"^layer '1\.1' \(AnalogLinear \[3, 4\]\): (?!layer ).*{text}"
        ):
            optimizer.step()
    assert all(torch.equal(value, before[name]) for name, value in made.state_dict().items())


def test_a_reused_read_that_cannot_be_scaled_names_the_layer() -> None:
    made = model(REUSE)
    optimizer = pl.optim.AnalogSGD(made.parameters(), lr=0.1, maximize=True)
    read(made).backward()
    with pytest.raises(RuntimeError, match=r"^layer '1\.1'.*'reuse' cannot be scaled"):
        optimizer.step()


def test_a_bad_rate_names_a_layer_that_has_it() -> None:
    made = model()
    groups = [{"params": [each]} for each in made.parameters()]
    optimizer = pl.optim.AnalogSGD(groups, lr=0.1)
    read(made).backward()
    optimizer.param_groups[2]["lr"] = float("nan")
    with pytest.raises(ValueError, match=r"^layer '1\.1'.*: lr is nan"):
        optimizer.step()


def test_a_refused_backward_pass_names_the_layer() -> None:
    """The pass of a frozen layer; of a trained one, the step refuses what is not finite."""
    made = model()
    made[1][1].analog_weight.requires_grad_(requires_grad=False)
    hidden = made(torch.ones(6, 5))
    with pytest.raises(
        pl.InputError, match=r"^layer '1\.1' \(AnalogLinear \[3, 4\]\): d\[0, 0\] is inf"
    ):
        hidden.backward(torch.full((6, 3), torch.inf))
    made[1][1].analog_weight.requires_grad_()
    optimizer = pl.optim.AnalogSGD(made.parameters(), lr=0.1)
    made(torch.ones(6, 5)).backward(torch.full((6, 3), torch.inf))
    with pytest.raises(pl.InputError, match=r"d\[0, 0\] is (inf|nan)"):
        optimizer.step()
    optimizer.zero_grad()
    loss = read(made)
    made[1][1].tiles.set_weights(torch.zeros(3, 4))
    with pytest.raises(RuntimeError, match=r"layer '1\.1' .*modified by an inplace"):
        loss.backward()


@pytest.mark.parametrize(
    "config",
    [pl.IdealConfig(), pl.SingleConfig(), pl.LRTTConfig(rank=2), pl.InferenceConfig(),
     pl.MixedPrecisionConfig()],
    ids=lambda config: type(config).__name__,
)  # fmt: skip
def test_a_refused_read_names_the_layer(config: pl.config.TileConfig) -> None:
    net = nn.Sequential(nn.Linear(6, 6), nn.Hardtanh(), nn.Linear(6, 4))
    model = pl.convert_to_analog(net, config, seed=1)
    x = torch.ones(2, 6)
    x[1, 3] = torch.inf
    with pytest.raises(
        pl.InputError, match=r"layer '0' \(AnalogLinear \[6, 6\]\): x\[1, 3\] is inf"
    ):
        model(x)


def test_weights_that_cannot_be_written_name_the_layer() -> None:
    net = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 4))
    model = pl.convert_to_analog(net, pl.InferenceConfig(), seed=1)
    with torch.no_grad():
        model[1].weight[2, 1] = torch.nan
    text = r"layer '1' \(AnalogLinear \[4, 6\]\): weights\[2, 1\] is nan"
    with pytest.raises(pl.InputError, match=text):
        model(torch.ones(2, 6))
    with pytest.raises(pl.InputError, match=text):
        pl.program(model.eval())


def test_a_refused_conversion_names_the_layer() -> None:
    digital = nn.Sequential(nn.Linear(30, 24), nn.Sequential(nn.Linear(24, 3)))
    config = pl.LRTTConfig(rank=4)
    with pytest.raises(pl.ConfigError, match=r"^layer '1\.0': .*rank is 4; .*\[3, 24\]"):
        pl.convert_to_analog(digital, config)
    with pytest.raises(pl.ConfigError, match=r"^layer 'Linear': .*rank is 4; .*\[3, 24\]"):
        pl.convert_to_analog(nn.Linear(24, 3), config)


def test_layers_are_named_by_whoever_knows_them() -> None:
    layer = pl.nn.AnalogLinear(4, 3, config=CONFIG, seed=1)
    made = nn.Sequential(nn.Identity(), layer)
    assert described(layer.tiles) == "layer AnalogLinear [3, 4]"
    pl.optim.AnalogSGD(made.named_parameters(), lr=0.1)
    assert described(layer.tiles) == "layer '1' (AnalogLinear [3, 4])"
    for copied in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):  # noqa: S301
        assert described(copied.tiles) == "layer '1' (AnalogLinear [3, 4])"
    inner = pl.nn.AnalogLinear(4, 3, config=CONFIG, seed=1)
    whole = nn.ModuleDict({"head": inner})
    optimizer = pl.optim.AnalogSGD(whole.parameters(), lr=0.1)
    pl.training_step.TrainingStep(whole, optimizer, nn.functional.mse_loss)
    assert re.match("layer 'head'", described(inner.tiles))


def test_an_error_of_no_layer_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    made = model()
    optimizer = pl.optim.AnalogSGD(made.parameters(), lr=0.1)
    read(made).backward()

    def fail(*_: object, ask_only: bool = False) -> None:
        if not ask_only:
            raise RuntimeError("the machine")

    monkeypatch.setattr("pulsora.nn.tiles.layer_update._core.apply_updates", fail)
    with pytest.raises(RuntimeError, match=r"^the machine$"):
        optimizer.step()
