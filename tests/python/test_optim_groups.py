"""Groups of the optimisers: an lr for analog layers, settings set later, all of torch.optim."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import pulsora as pl
from conftest import PERFECT
from pulsora.nn import AnalogLinear
from pulsora.nn.autograd.analog_parameter import AnalogParameter
from pulsora.optim import AnalogAdam, AnalogOptimizer, AnalogSGD

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.optim.optimizer import ParamsT

OPTIMISERS = [
    each
    for each in vars(torch.optim).values()
    if isinstance(each, type) and each not in {torch.optim.Optimizer, torch.optim.LBFGS}
]


class Branches(nn.Module):
    """An analog and a digital layer side by side, so that neither acts on the other."""

    def __init__(self, sparse: bool = False) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.analog = AnalogLinear(4, 3, bias=False, config=pl.IdealConfig(**PERFECT), seed=1)
        self.digital = nn.Embedding(5, 4, sparse=True) if sparse else nn.Linear(4, 3, bias=False)

    def losses(self, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.randn(5, 4, generator=torch.Generator().manual_seed(seed))
        of_digital = torch.arange(3) if isinstance(self.digital, nn.Embedding) else x
        return self.analog(x).square().sum(), self.digital(of_digital).square().sum()


def step(model: Branches, optimizer: torch.optim.Optimizer, seed: int = 0) -> None:
    optimizer.zero_grad()
    sum(model.losses(seed)).backward()  # type: ignore[union-attr]
    optimizer.step()


@pytest.mark.parametrize("kind", OPTIMISERS)
def test_every_optimiser_of_torch_trains_digital_parameters_and_sgd_analog_ones(
    kind: type[torch.optim.Optimizer],
) -> None:
    model = Branches(sparse=kind is torch.optim.SparseAdam)
    alone, by_sgd = copy.deepcopy(model.digital), copy.deepcopy(model.analog)
    optimizer = AnalogOptimizer(kind, model.parameters(), lr=0.01, analog_lr=0.02)
    twin = kind(alone.parameters(), lr=0.01)  # type: ignore[call-arg]
    sgd = AnalogSGD(by_sgd.parameters(), lr=0.02)
    for seed in range(4):
        step(model, optimizer, seed)
        branches = Branches(sparse=kind is torch.optim.SparseAdam)
        branches.digital, branches.analog = alone, by_sgd
        twin.zero_grad()
        sum(branches.losses(seed)).backward()  # type: ignore[union-attr]
        twin.step()
        sgd.step()
    assert torch.equal(model.digital.weight, alone.weight)
    assert not torch.equal(
        model.digital.weight, Branches(isinstance(alone, nn.Embedding)).digital.weight
    )
    assert torch.equal(model.analog.weight, by_sgd.weight)
    assert all(not isinstance(each, AnalogParameter) for each in optimizer.state)
    saved = copy.deepcopy(optimizer.state_dict())
    again = AnalogOptimizer(kind, model.parameters(), lr=0.1, analog_lr=0.1)
    again.load_state_dict(saved)
    assert [group["lr"] for group in again.param_groups] == [0.01, 0.02]


@pytest.mark.filterwarnings("ignore:analog layers train")
@pytest.mark.parametrize("kind", OPTIMISERS)
def test_groups_of_both_kinds_keep_the_order_of_their_parameters(
    kind: type[torch.optim.Optimizer],
) -> None:
    model = Branches()
    optimizer = AnalogOptimizer(kind, model.parameters(), lr=0.01)
    (group,) = optimizer.param_groups
    assert [id(each) for each in group["params"]] == [id(each) for each in model.parameters()]
    with pytest.raises(ValueError, match="more than one parameter group"):
        AnalogOptimizer(kind, [{"params": [p]} for p in 2 * [model.analog.analog_weight]], lr=0.1)


def test_a_refused_optimiser_leaves_parameters_untouched() -> None:
    model = Branches()
    no_rate = type("NoRate", (torch.optim.Optimizer,), {})
    for kind, settings in ((no_rate, {"defaults": {}}), (torch.optim.LBFGS, {})):
        with pytest.raises(ValueError, match=r"choose one such as torch\.optim\.AdamW"):
            AnalogOptimizer(kind, model.parameters(), **settings)
    with pytest.raises(ValueError, match=r"analog_lr = -1: give a finite number"):
        AnalogAdam(model.parameters(), analog_lr=-1)
    assert not model.analog.analog_weight.is_trained


MAKERS: list[Callable[..., torch.optim.Optimizer]] = [
    AnalogAdam,
    AnalogSGD,
    lambda *args, **settings: AnalogOptimizer(torch.optim.AdamW, *args, **settings),
    lambda *args, **settings: AnalogOptimizer(AnalogAdam, *args, **settings),
]


@pytest.mark.parametrize("make", MAKERS)
def test_analog_parameters_have_groups_and_an_lr_of_their_own(
    make: Callable[..., torch.optim.Optimizer],
) -> None:
    model, other = Branches(), Branches()
    optimizer = make(model.named_parameters(), lr=1e-3, analog_lr=0.4)
    optimizer.add_param_group({"params": other.named_parameters(), "analog_lr": 0.2})
    third = Branches().analog.analog_weight
    optimizer.add_param_group({"params": [("third", third)], "lr": 0.1})
    found = [(group["lr"], group["param_names"]) for group in optimizer.param_groups]
    assert found == [
        (1e-3, ["digital.weight"]),
        (0.4, ["analog.analog_weight"]),
        (1e-3, ["digital.weight"]),
        (0.2, ["analog.analog_weight"]),
        (0.1, ["third"]),
    ]
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    step(model, optimizer)
    scheduler.step()
    assert [group["lr"] for group in optimizer.param_groups] == [5e-4, 0.2, 5e-4, 0.1, 0.05]


def test_a_refused_group_leaves_the_groups_as_they_were() -> None:
    model = Branches()
    optimizer = AnalogAdam(model.parameters(), analog_lr=0.4)
    fresh = Branches().digital.weight
    with pytest.raises(ValueError, match="more than one parameter group"):
        optimizer.add_param_group({"params": [fresh, model.analog.analog_weight]})
    assert len(optimizer.param_groups) == 2


def test_copies_of_an_optimiser_keep_analog_lr() -> None:
    for again in (copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))):  # noqa: S301
        optimizer = again(AnalogAdam(Branches().parameters(), lr=1e-3, analog_lr=0.4))
        optimizer.add_param_group({"params": Branches().parameters()})
        assert [group["lr"] for group in optimizer.param_groups] == [1e-3, 0.4, 1e-3, 0.4]


class OwnAdamW(torch.optim.AdamW):
    """An optimiser of a user."""


@pytest.mark.parametrize("kind", [*OPTIMISERS, AnalogSGD, OwnAdamW])
def test_optimisers_of_any_class_are_pickled_and_copied(kind: type[torch.optim.Optimizer]) -> None:
    model = Branches(sparse=kind is torch.optim.SparseAdam)
    optimizer = AnalogOptimizer(kind, model.parameters(), lr=1e-3, analog_lr=0.4)
    step(model, optimizer)
    file = io.BytesIO()
    torch.save((model, optimizer), file)
    file.seek(0)
    others = [torch.load(file, weights_only=False), copy.deepcopy((model, optimizer))]
    step(model, optimizer, seed=1)
    for again, its_optimizer in others:
        assert type(its_optimizer) is type(optimizer)
        assert its_optimizer.analog_lr == 0.4
        step(again, its_optimizer, seed=1)
        assert torch.equal(again.analog.weight, model.analog.weight)
        assert torch.equal(again.digital.weight, model.digital.weight)


def test_each_optimiser_has_one_class() -> None:
    for kind, own in ((torch.optim.SGD, AnalogSGD), (torch.optim.Adam, AnalogAdam)):
        assert type(AnalogOptimizer(kind, Branches().parameters(), lr=0.1, analog_lr=0.1)) is own
    made = [
        AnalogOptimizer(torch.optim.AdamW, Branches().parameters(), lr=0.1, analog_lr=0.1)
        for _ in range(2)
    ]
    assert type(made[0]) is type(made[1])
    assert isinstance(made[0], torch.optim.AdamW)


@pytest.mark.parametrize("kind", OPTIMISERS)
def test_one_lr_for_both_kinds_is_warned_of_once_where_steps_are_adaptive(
    kind: type[torch.optim.Optimizer],
) -> None:
    model = Branches()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer = AnalogOptimizer(kind, model.parameters(), lr=0.01)
        optimizer.add_param_group({"params": Branches().parameters()})
        AnalogOptimizer(kind, model.parameters(), lr=0.01, analog_lr=0.01)
        analog, digital = model.analog.analog_weight, model.digital.weight
        AnalogOptimizer(kind, [{"params": [analog], "lr": 0.01}, {"params": [digital]}], lr=0.01)
    expected = 0 if kind in {torch.optim.SGD, torch.optim.ASGD} else 1
    assert len(caught) == expected
    assert all(f"the lr of {kind.__name__}," in str(each.message) for each in caught)


def set_by(**settings: object) -> Callable[[torch.optim.Optimizer], None]:
    return lambda optimizer: optimizer.param_groups[0].update(settings)


def one_cycle(optimizer: torch.optim.Optimizer) -> None:
    torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.5, total_steps=8)


def cyclic(optimizer: torch.optim.Optimizer) -> None:
    torch.optim.lr_scheduler.CyclicLR(optimizer, base_lr=0.1, max_lr=0.5, step_size_up=4)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (one_cycle, "momentum=0.95"),
        (cyclic, "momentum=0.9"),
        *(
            (set_by(**{name: 0.5}), f"{name}=0.5")
            for name in ("momentum", "weight_decay", "dampening")
        ),
        (set_by(nesterov=True), "nesterov=True"),
    ],
)
def test_settings_made_after_construction_are_named_once_at_a_step(
    change: Callable[[torch.optim.Optimizer], None], named: str
) -> None:
    model = Branches()
    optimizer = AnalogSGD(model.parameters(), lr=0.1)
    change(optimizer)
    with pytest.warns(UserWarning, match=f"analog layers ignore {named}: pulses follow plain SGD"):
        step(model, optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if optimizer.param_groups[0]["momentum"] != 0:
            optimizer.param_groups[0]["momentum"] = 0.7
        step(model, optimizer)


def test_settings_of_digital_groups_alone_are_not_named() -> None:
    model = Branches()
    optimizer = AnalogSGD(model.parameters(), lr=0.1, analog_lr=0.4)
    optimizer.param_groups[0]["momentum"] = 0.9
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step(model, optimizer)


def test_help_shows_the_arguments_of_torch_and_analog_lr() -> None:
    arguments = list(inspect.signature(AnalogSGD).parameters)
    assert arguments == [*inspect.signature(torch.optim.SGD).parameters, "analog_lr", "in_backward"]


def test_optimisers_with_any_further_arguments_take_analog_lr() -> None:
    class Own(torch.optim.SGD):
        def __init__(self, params: ParamsT, *, lr: float, **further: Any) -> None:
            super().__init__(params, lr, **further)

    optimizer = AnalogOptimizer(Own, Branches().parameters(), lr=0.1, analog_lr=0.4, momentum=0)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.4]


def test_a_group_whose_warning_is_an_error_is_not_added() -> None:
    optimizer = AnalogSGD(Branches().parameters(), lr=0.1)
    group = {"params": list(Branches().parameters()), "momentum": 0.9}
    for _ in range(2):
        with pytest.raises(UserWarning, match=r"analog layers ignore momentum=0\.9"):
            optimizer.add_param_group(dict(group))
        assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize(
    "make", [AnalogSGD, AnalogAdam, partial(AnalogOptimizer, torch.optim.Adam)]
)
def test_warnings_name_the_line_that_makes_an_optimiser_or_adds_a_group(
    make: Callable[..., torch.optim.Optimizer],
) -> None:
    """Copies, a setting that pulses do not follow, and the lr of an adaptive optimiser."""
    twins = nn.ModuleList(AnalogLinear(4, 3, seed=1) for _ in range(2))
    with warnings.catch_warnings(record=True) as made:
        warnings.simplefilter("always")
        make(twins.parameters(), lr=0.1, weight_decay=0.1)
    texts = " ".join(str(each.message) for each in made)
    assert "has the seed of another one" in texts
    assert "analog layers ignore weight_decay=0.1" in texts
    assert ("analog layers train by plain SGD" in texts) == (make is not AnalogSGD)
    with warnings.catch_warnings(record=True) as added:
        warnings.simplefilter("always")
        plain = make(Branches().parameters(), lr=0.1, analog_lr=0.1)
        plain.add_param_group({"params": twins.parameters(), "weight_decay": 0.1})
    assert len(added) == 2
    assert {each.filename for each in made + added} == {__file__}
