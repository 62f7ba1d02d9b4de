"""Calls on layers and optimisers that fail late leave everything as it was."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch

import pulsora as pl


class FailingOwner(torch.Tensor):
    """A bias whose numbers cannot be had."""

    def detach(self) -> torch.Tensor:
        raise MemoryError("its memory is gone")


def state(module: torch.nn.Module) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in module.state_dict().items()}


def test_a_bias_that_cannot_be_read_leaves_a_layer_as_it_was() -> None:
    layer = pl.nn.AnalogLinear(5, 3, seed=1, threads=1)
    before = state(layer)
    bias: Any = torch.zeros(3).as_subclass(FailingOwner)
    with pytest.raises(MemoryError, match="its memory is gone"):
        layer.set_weights(torch.zeros(3, 5), bias)
    assert state(layer) == before


def test_a_bias_that_cannot_be_read_leaves_a_recurrent_layer_as_it_was() -> None:
    layer = pl.nn.AnalogLSTM(4, 3, seed=1, threads=1)
    before = state(layer)
    weights: dict[str, Any] = {n: torch.zeros_like(v) for n, v in layer.get_weights().items()}
    weights["bias_hh_l0"] = weights["bias_hh_l0"].as_subclass(FailingOwner)
    with pytest.raises(MemoryError, match="its memory is gone"):
        layer.set_weights(weights)
    assert state(layer) == before


def test_a_group_whose_warning_is_an_error_is_not_added() -> None:
    first, second = (pl.nn.AnalogLinear(5, 3, seed=seed, threads=1) for seed in (1, 2))
    optimizer = pl.optim.AnalogSGD(first.parameters(), lr=0.1)
    group = {"params": list(second.parameters()), "momentum": 0.9}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):  # it is told again, because nothing was added
            with pytest.raises(UserWarning, match=r"analog layers ignore momentum=0\.9"):
                optimizer.add_param_group(dict(group))
    assert len(optimizer.param_groups) == 1
    with pytest.warns(UserWarning, match="ignore momentum"):
        optimizer.add_param_group(dict(group))
    assert len(optimizer.param_groups) == 2


class OwnTensor(torch.Tensor):
    """A class of tensors of the user's own."""


def test_weights_of_an_own_class_leave_plain_tensors_in_a_layer() -> None:
    layer = pl.nn.AnalogLinear(5, 3, seed=1, threads=1, weight_scaling=0.3)
    layer.set_weights(
        torch.ones(3, 5).as_subclass(OwnTensor), torch.zeros(3).as_subclass(OwnTensor)
    )
    assert {type(value) for value in layer.state_dict().values()} == {torch.Tensor}
    assert type(layer(torch.ones(2, 5))) is torch.Tensor
    assert state(copy.deepcopy(layer)) == state(layer)
