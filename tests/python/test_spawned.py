"""A model as an argument of a process that is started by "spawn"."""

from __future__ import annotations

import pickle

import torch
from torch import multiprocessing as mp
from torch import nn

import pulsora as pl


def reads(model: nn.Module, queue: mp.SimpleQueue) -> None:
    """Runs in the other process."""
    torch.set_num_threads(1)
    queue.put(model(torch.ones(3, 6)).tolist())


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        pl.nn.AnalogLinear(6, 5, weight_scaling=0.1, max_input_size=4), nn.Linear(5, 2)
    )


def test_a_spawned_process_takes_a_model() -> None:
    context = mp.get_context("spawn")
    queue = context.SimpleQueue()
    given = model()
    process = context.Process(target=reads, args=(given, queue))
    process.start()
    found = queue.get()
    process.join(60)
    assert process.exitcode == 0
    assert found == given(torch.ones(3, 6)).tolist()


def test_states_with_tensors_of_earlier_versions_still_load() -> None:
    array = model()[0].tiles
    state = array.__getstate__()
    state["state"] = {name: torch.as_tensor(value) for name, value in state["state"].items()}
    state["options"].pop("has_bias")
    again = array.__class__.__new__(array.__class__)
    again.__setstate__(pickle.loads(pickle.dumps(state)))  # noqa: S301 - our own
    assert torch.equal(again.get_weights(), array.get_weights())
    assert torch.equal(again.scales, array.scales)
