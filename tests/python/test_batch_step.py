"""Training steps with batches of any structure, which keep other numbers than the loss."""

from __future__ import annotations

from collections import UserDict
from typing import NamedTuple

import pytest
import torch

import pulsora as pl
from pulsora.graphs.batch_parts import put_together, taken_apart
from pulsora.graphs.batch_step import BatchStep
from pulsora.nn import AnalogLinear
from pulsora.optim import AnalogSGD
from replayed_steps import replay


class Pair(NamedTuple):
    x: torch.Tensor
    target: torch.Tensor


def test_batches_of_any_structure_are_taken_apart_and_put_together() -> None:
    one, two = torch.ones(2), torch.zeros(3)
    batches = [
        one,
        (one, [two, {"a": one, "b": None}], 3, "name", torch.float32),
        Pair(one, two),
        UserDict({"x": one, "deep": (two,)}),
    ]
    for batch in batches:
        tensors: list[torch.Tensor] = []
        structure = taken_apart(batch, tensors)
        again = put_together(structure, iter(tensors))
        assert type(again) is type(batch)
        assert str(again) == str(batch)
        assert hash(structure) == hash(taken_apart(batch, []))
    assert taken_apart({"n": 1}, []) != taken_apart({"n": True}, [])
    with pytest.raises(TypeError, match="a batch has an object of type object"):
        taken_apart({"x": one, "other": object()}, [])


def test_a_batch_step_keeps_numbers_of_all_types_exactly() -> None:
    model = AnalogLinear(3, 2, config=pl.SingleConfig(), seed=1)
    optimizer = AnalogSGD(model.parameters(), lr=0.1)
    given = [torch.tensor([2**40 + 1]), torch.tensor([2]).bool(), torch.tensor(1 / 3).double()]

    def loss_of(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        for number, each in enumerate(given):
            step.keep(number, each)
        return model(batch["x"]).square().sum()

    step = BatchStep(model, optimizer, loss_of)
    loss, kept = step.step({"x": torch.ones(4, 3)})
    assert loss.dtype == torch.float32
    assert loss.shape == ()
    for number, (label, value) in enumerate(kept):
        assert label == number
        assert value.dtype == given[number].dtype
        assert torch.equal(value, given[number])
    with pytest.raises(TypeError, match="a batch of type dict has no tensor"):
        step.step({"x": 1})


def test_constants_that_change_forever_end_the_search_for_graphs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replayed = replay(monkeypatch)
    model = AnalogLinear(3, 2, config=pl.SingleConfig(), seed=1)
    optimizer = AnalogSGD(model.parameters(), lr=0.1)
    step = BatchStep(model, optimizer, lambda batch: model(batch[0]).square().mean() + batch[1])
    x = torch.ones(4, 3)
    losses = [float(step.step((x, 100 * (number % 2)))[0]) for number in range(10)]
    assert replayed.made == [True, True]
    assert [loss > 50 for loss in losses] == [False, True] * 5
    for number in range(62):
        step.step((x, -1 - number))
    with pytest.warns(RuntimeWarning, match="more than 64 shapes and constants"):
        step.step((x, -100))
