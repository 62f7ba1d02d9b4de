"""Tools of torch and its surroundings that save a model: what works, and what says why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.distributed import checkpoint
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

import pulsora as pl

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

X = torch.linspace(-1.0, 1.0, 18).reshape(3, 6)


def make(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    layer = pl.nn.AnalogLinear(6, 5, config=pl.SingleConfig(), seed=1)
    return nn.Sequential(layer, nn.Linear(5, 2))


def by_torch(model: nn.Module, other: nn.Module, folder: Path) -> None:
    """checkpoint.load() asks for tensors of equal sizes, and counters of tiles change theirs."""
    checkpoint.save(model.state_dict(), checkpoint_id=folder / "parts")
    dcp_to_torch_save(folder / "parts", folder / "whole.pt")
    other.load_state_dict(torch.load(folder / "whole.pt", weights_only=True))


def by_safetensors(model: nn.Module, other: nn.Module, folder: Path) -> None:
    library = pytest.importorskip("safetensors.torch")
    library.save_model(model, str(folder / "model.safetensors"))
    library.load_model(other, str(folder / "model.safetensors"))


def by_torch_save(model: nn.Module, other: nn.Module, folder: Path) -> None:
    torch.save(model.state_dict(), folder / "model.pt")
    other.load_state_dict(torch.load(folder / "model.pt", weights_only=True))


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled, unavailable or uninitialized")
@pytest.mark.parametrize("copy", [by_torch, by_safetensors, by_torch_save])
def test_tools_that_take_a_state_copy_a_model_to_the_bit(
    copy: Callable[[nn.Module, nn.Module, Path], None], tmp_path: Path
) -> None:
    model, other = make(0), make(1)
    optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.1)
    model(X).square().sum().backward()
    optimizer.step()
    copy(model, other, tmp_path)
    assert torch.equal(model(X), other(X))


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
    with pytest.raises(RuntimeError, match=message), accelerate.init_empty_weights():
        make(0)
