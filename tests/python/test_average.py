"""pulsora.average: the mean of models, by the averages of torch."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import swa_utils

import pulsora as pl
from conftest import PERFECT

IDEAL = pl.IdealConfig(**PERFECT)


def digital(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    made = nn.Sequential(nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3), nn.Flatten(), nn.Linear(9, 4))
    made(torch.randn(5, 2, 4))  # running statistics
    return made


def pairs(**options: Any) -> tuple[list[nn.Sequential], list[nn.Sequential]]:
    plain = [digital(seed) for seed in range(3)]
    return plain, [pl.convert_to_analog(each, IDEAL, **options) for each in plain]


def require_equal(found: nn.Module, wanted: nn.Module) -> None:
    plain = pl.convert_to_digital(found).state_dict()
    for name, tensor in wanted.state_dict().items():
        torch.testing.assert_close(plain[name], tensor, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [{}, {"learn_out_scaling": True, "weight_scaling": 0.5}, {"digital_bias": False}],
)
def test_an_average_is_that_of_torch(options: dict[str, Any]) -> None:
    plain, analog = pairs(**options)
    swa = swa_utils.AveragedModel(plain[0], use_buffers=True)
    for each in plain:
        swa.update_parameters(each)
    wanted = swa.module
    wanted[1].num_batches_tracked.copy_(plain[0][1].num_batches_tracked)
    before = [copy.deepcopy(each.state_dict()) for each in analog]
    require_equal(pl.average(analog), wanted)
    require_equal(pl.average(plain), wanted)
    for each, state in zip(analog, before, strict=True):
        assert all(torch.equal(value, state[name]) for name, value in each.state_dict().items())


def test_a_moving_average_is_that_of_torch() -> None:
    plain, analog = pairs()
    average = swa_utils.get_ema_multi_avg_fn(0.9)
    ema = swa_utils.AveragedModel(plain[0], multi_avg_fn=average, use_buffers=True)
    averaged = analog[0]
    ema.update_parameters(plain[0])
    for i in (1, 2):
        ema.update_parameters(plain[i])
        averaged = pl.average([averaged, analog[i]], [0.9, 0.1])
    ema.module[1].num_batches_tracked.copy_(plain[0][1].num_batches_tracked)
    require_equal(averaged, ema.module)


def test_recurrent_and_tied_layers_are_averaged_once() -> None:
    def tied(seed: int) -> nn.ModuleList:
        torch.manual_seed(seed)
        lstm = pl.nn.AnalogLSTM(3, 4, config=IDEAL)
        one, other = (pl.nn.AnalogLinear(3, 2, config=IDEAL) for _ in range(2))
        other.analog_weight = one.analog_weight
        return nn.ModuleList([lstm, one, other])

    first, second = tied(0), tied(1)
    averaged = pl.average([first, second], (1, 3))
    assert averaged[1].tiles is averaged[2].tiles
    weights = (each[0].get_weights() for each in (first, second, averaged))
    for mine, theirs, mean in zip(*(each.values() for each in weights), strict=True):
        torch.testing.assert_close(mean, 0.25 * mine + 0.75 * theirs)
    for i in (1, 2):
        for mine, theirs, mean in zip(
            *(each[i].get_weights() for each in (first, second, averaged)), strict=True
        ):
            torch.testing.assert_close(mean, 0.25 * mine + 0.75 * theirs)


def test_pulsed_cells_take_the_mean_within_their_bounds() -> None:
    config = pl.SingleConfig(**PERFECT)
    first, second = (pl.nn.AnalogLinear(4, 3, config=config, seed=seed) for seed in (1, 2))
    averaged = pl.average([first, second])
    torch.testing.assert_close(averaged.weight, 0.5 * (first.weight + second.weight))
    optimizer = pl.optim.AnalogSGD(averaged.parameters(), lr=0.1)
    averaged(torch.ones(2, 4)).sum().backward()
    optimizer.step()  # and it can be trained further


def linear(columns: int = 3, **options: Any) -> nn.Sequential:
    return nn.Sequential(pl.nn.AnalogLinear(columns, 2, config=IDEAL, **options), nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("models", "weights", "error", "message"),
    [
        ([], None, ValueError, "models is empty"),
        (linear(), None, TypeError, "models is one Sequential: give a list"),
        ([linear(), "x"], None, TypeError, r"models\[1\] is of type str"),
        ([linear()], [1, 2], ValueError, "weights has 2 numbers, but there are 1 models"),
        ([linear()] * 2, [1, -1], ValueError, "weights = .*0 or larger"),
        ([linear()] * 2, [0, 0], ValueError, "not all 0"),
        (
            [linear(), linear(4)],
            None,
            ValueError,
            r"'0' is an analog layer of shape \[2, 3\] .* but .* \[2, 4\] .* in models\[1\]",
        ),
        ([linear(), linear(bias=False)], None, ValueError, "'0' is .* but .* without a bias"),
        (
            [linear(), nn.Sequential(linear()[0], nn.Linear(2, 5))],
            None,
            ValueError,
            r"'1.weight' is a digital tensor of shape \[2, 2\] in models\[0\]",
        ),
        ([linear(), linear().append(nn.Linear(2, 2))], None, ValueError, "'2.weight' is missing"),
        ([linear(), nn.Linear(3, 2)], None, ValueError, r"missing in models\[1\]"),
    ],
)
def test_models_that_have_no_average_are_refused(
    models: list[Any],
    weights: Any,  # noqa: ANN401
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        pl.average(models, weights)
