"""Tools of torch and its surroundings that save a model: what works, and what says why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributed import checkpoint
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
)

import pulsora as pl

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

X = torch.linspace(-1.0, 1.0, 18).reshape(3, 6)


def make(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    given: dict[str, Any] = {"seed": seed, "threads": 1}
    lrtt = pl.LRTTConfig(rank=2, transfer_every=1)
    return nn.Sequential(
        pl.nn.AnalogLinear(6, 5, config=lrtt, max_input_size=4, weight_scaling="abs_max", **given),
        nn.Linear(5, 5),
        pl.nn.GatedAdapter(pl.nn.AnalogLinear(5, 4, **given), 2, config=pl.SingleConfig()),
        pl.nn.AnalogLSTM(4, 3, config=pl.IdealConfig(), **given),
    )


def outputs(model: nn.Module) -> torch.Tensor:
    y: torch.Tensor = model(X)[0]
    return y


def by_torch(model: nn.Module, other: nn.Module, folder: Path) -> None:
    """As one file."""
    checkpoint.save(model.state_dict(), checkpoint_id=folder / "parts")
    dcp_to_torch_save(folder / "parts", folder / "whole.pt")
    other.load_state_dict(torch.load(folder / "whole.pt", weights_only=True))


def into_a_fresh_model(model: nn.Module, other: nn.Module, folder: Path) -> None:
    """checkpoint.load() asks for tensors of equal sizes."""
    checkpoint.save(model.state_dict(), checkpoint_id=folder / "parts")
    state = other.state_dict()
    checkpoint.load(state, checkpoint_id=folder / "parts")
    other.load_state_dict(state)


def by_model_state(model: nn.Module, other: nn.Module, folder: Path) -> None:
    checkpoint.save(get_model_state_dict(model), checkpoint_id=folder / "parts")
    state = get_model_state_dict(other)
    checkpoint.load(state, checkpoint_id=folder / "parts")
    set_model_state_dict(other, state)


def by_safetensors(model: nn.Module, other: nn.Module, folder: Path) -> None:
    library = pytest.importorskip("safetensors.torch")
    library.save_model(model, str(folder / "model.safetensors"))
    library.load_model(other, str(folder / "model.safetensors"))


def by_torch_save(model: nn.Module, other: nn.Module, folder: Path) -> None:
    torch.save(model.state_dict(), folder / "model.pt")
    other.load_state_dict(torch.load(folder / "model.pt", weights_only=True))


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled, unavailable or uninitialized")
@pytest.mark.parametrize(
    "copy", [by_torch, into_a_fresh_model, by_model_state, by_safetensors, by_torch_save]
)
def test_tools_that_take_a_state_copy_a_model_to_the_bit(
    copy: Callable[[nn.Module, nn.Module, Path], None], tmp_path: Path
) -> None:
    model, other = make(0), make(1)
    optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.1)
    for _ in range(12):  # counters of more than one digit
        optimizer.zero_grad()
        outputs(model).square().sum().backward()
        optimizer.step()
    copy(model, other, tmp_path)
    assert torch.equal(outputs(model), outputs(other))


def test_arrays_of_a_state_have_equal_sizes_whatever_was_counted() -> None:
    tiles = [pl.Tile(3, 4, pl.LRTTConfig(rank=1), seed=seed) for seed in (1, 2**62 + 7)]
    for _ in range(30):
        tiles[0].update(np.ones((3, 4), np.float32), np.ones((3, 3), np.float32), lr=0.1)
    one, two = (pl.state.to_tensors(tile.state()) for tile in tiles)
    assert {n: each.shape for n, each in one.items()} == {n: each.shape for n, each in two.items()}
    assert pl.state.from_tensors(one).values == tiles[0].state().values


def test_tools_that_go_from_parameter_to_parameter_are_told_what_works(tmp_path: Path) -> None:
    model = make(0)
    optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.1)
    message = r"Save model.state_dict\(\) and optimizer.state_dict\(\), and load them by load_state"
    with pytest.raises(RuntimeError, match=message):
        get_optimizer_state_dict(model, optimizer)
    accelerate = pytest.importorskip("accelerate")
    with pytest.raises(RuntimeError, match=message):
        accelerate.cpu_offload(make(0), execution_device=torch.device("cpu"))
    torch.save(model.state_dict(), tmp_path / "model.bin")
    with pytest.raises(RuntimeError, match=message):
        accelerate.load_checkpoint_in_model(model, str(tmp_path / "model.bin"))
    with pytest.raises(RuntimeError, match=r"load it by model.load_state_dict\(state\)"):
        accelerate.load_checkpoint_and_dispatch(
            model, str(tmp_path / "model.bin"), device_map={"": "cpu"}
        )
    with pytest.raises(RuntimeError, match=message), accelerate.init_empty_weights():
        make(0)
