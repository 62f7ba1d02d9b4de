"""Tools of torch and its surroundings that save a model: what works, and what says why not."""

from __future__ import annotations

import copy
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
    """Saved in parts, loaded from one file."""
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


def test_arrays_are_found_in_the_state_and_not_among_the_buffers() -> None:
    model, name = nn.Sequential(pl.nn.AnalogLinear(4, 5)), "0.tiles.0_0.weights"
    with pytest.raises(AttributeError, match="`tiles` is not an nn"):
        model.get_buffer(name)
    assert model.state_dict()[name].shape == (5, 4)


def test_a_state_that_is_kept_is_copied_first() -> None:
    """Arrays of a state are copies, but digital parameters of it follow the model, as in torch."""
    given: dict[str, Any] = {"config": pl.SingleConfig(), "seed": 1, "threads": 1}
    scaled = {**given, "weight_scaling": "abs_max", "learn_out_scaling": True}
    lstm, model = pl.nn.AnalogLSTM(6, 5, **given), nn.Sequential()
    model.append(pl.nn.AnalogConv1d(1, 2, 3, **given))
    model.append(nn.BatchNorm1d(2))
    model.append(nn.Flatten())
    model.append(pl.nn.AnalogLinear(6, 4, **scaled))
    both = nn.ModuleList([lstm, model])
    optimizer = pl.optim.AnalogSGD(both.parameters(), lr=0.1)

    def read() -> torch.Tensor:
        y: torch.Tensor = model(lstm(X)[0][:, None])
        return y

    def train() -> None:
        for _ in range(5):
            optimizer.zero_grad()
            read().square().sum().backward()
            optimizer.step()

    train()
    kept, copied = both.state_dict(), copy.deepcopy(both.state_dict())
    before = copy.deepcopy(both)
    train()
    digital = {*dict(both.named_parameters()), *dict(both.named_buffers())}
    digital -= {name for name in digital if name.endswith("analog_weight")}
    assert {name.rpartition(".")[2] for name in digital} >= {"bias", "out_scaling", "running_mean"}
    after = both.state_dict()
    for name, tensor in kept.items():
        follows = torch.equal(tensor, after[name])
        if name in digital:
            assert tensor.data_ptr() == after[name].data_ptr()
        else:
            assert torch.equal(tensor, copied[name])
            assert not (follows and name.endswith((".weights", ".counters")))
    both.load_state_dict(copied)
    loaded = both.state_dict()
    assert all(torch.equal(tensor, copied[name]) for name, tensor in loaded.items())
    ours = read()
    lstm, model = before  # type: ignore[assignment]
    assert torch.equal(ours, read())
