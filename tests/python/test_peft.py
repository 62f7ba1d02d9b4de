"""Adapters on models, and PEFT's files: read, written, and compared with PEFT itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import pulsora as pl
from conftest import PERFECT
from peft_files import ARRAYS, CELLS, LRTT, MODES, SHAPES, Net, changed, inputs, write_file
from pulsora.nn import (
    AnalogLinear,
    GatedAdapter,
    LearnedGate,
    MixtureGate,
    TaskGate,
    adapter_init,
    select_task,
)
from pulsora.peft import load

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def model() -> Net:
    torch.manual_seed(0)
    return Net()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("use_rslora", [False, True])
def test_a_file_becomes_arrays_that_compute_the_same(
    mode: str, use_rslora: bool, model: Net, tmp_path: Path, device: str
) -> None:
    wanted = changed(model, write_file(tmp_path, use_rslora=use_rslora)).to(device)
    model.to(device)
    made, report = pl.peft.load_adapter(model, tmp_path, mode, seed=1, **MODES[mode])
    x = inputs(device)
    torch.testing.assert_close(made(x), wanted(x), rtol=1e-5, atol=1e-5)
    assert (made(x) - model(x)).abs().max() > 0.1
    assert report.error < 1e-6
    assert report.clipped == 0
    assert [row.name for row in report] == list(SHAPES)
    assert [row.rank for row in report] == [2, 3]
    assert str(report).splitlines()[0].split() == [
        "layer", "class", "rank", "alpha", "error", "clipped", "how",
    ]  # fmt: skip
    assert type(made.head) is nn.Linear
    trained = {name for name, p in made.named_parameters() if p.requires_grad}
    assert trained
    assert not any("bias" in name or "head" in name or "base" in name for name in trained)


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({"swap_xd": True}, {"max_input_size": 4}),
        ({"projection": "reuse"}, {}),
        ({"rank_scaling": "rslora", "lora_alpha": 3.0}, {"weight_scaling": None}),
        ({}, {"scaling_per": "output", "digital_bias": False}),
    ],
)
def test_adapters_in_tiles_of_other_settings(
    changes: dict[str, Any], options: dict[str, Any], model: Net, tmp_path: Path
) -> None:
    wanted = changed(model, write_file(tmp_path))
    config = pl.TileConfig.from_dict({**LRTT.to_dict(), **changes})
    made, report = pl.peft.load_adapter(
        model, tmp_path, "analog_base", config=config, seed=1, **options
    )
    torch.testing.assert_close(made(inputs()), wanted(inputs()), rtol=1e-5, atol=1e-5)
    assert report.error < 1e-6
    pl.peft.save_adapter(made, tmp_path / "back")
    again, _ = pl.peft.load_adapter(model, tmp_path / "back", config=ARRAYS)
    torch.testing.assert_close(again(inputs()), wanted(inputs()), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", MODES)
def test_a_file_goes_through_arrays_and_back(
    mode: str, model: Net, tmp_path: Path, device: str
) -> None:
    deltas = write_file(tmp_path / "there")
    # Several tiles for each array; each has an adapter of its own in 'analog_base'.
    made, _ = pl.peft.load_adapter(
        model.to(device), tmp_path / "there", mode, seed=1, max_input_size=4, **MODES[mode]
    )
    report = pl.peft.save_adapter(made, tmp_path / "back", base_model="mine", task_type="CAUSAL_LM")
    assert report.error < 1e-5
    tensors = load_file(tmp_path / "back" / "adapter_model.safetensors")
    values = json.loads((tmp_path / "back" / "adapter_config.json").read_text())
    assert values["target_modules"] == ["block.mix", "block.q_proj"]
    assert (values["base_model_name_or_path"], values["task_type"]) == ("mine", "CAUSAL_LM")
    again, _ = pl.peft.load_adapter(
        model, tmp_path / "back", "analog_base_digital_adapter", base_config=ARRAYS,
    )  # fmt: skip
    for name, delta in deltas.items():
        a, b = (tensors[f"base_model.model.{name}.lora_{side}.weight"] for side in "BA")
        layer = again.get_submodule(name)
        assert isinstance(layer, GatedAdapter)
        torch.testing.assert_close(layer.alpha * a @ b, delta, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        again(inputs(device)), changed(model, deltas).to(device)(inputs(device)), rtol=1e-4,
        atol=1e-4,
    )  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_merging_gives_the_model_of_torch_by_its_own_names(
    mode: str, model: Net, tmp_path: Path, device: str
) -> None:
    wanted = changed(model, write_file(tmp_path)).to(device)
    made, _ = pl.peft.load_adapter(model.to(device), tmp_path, mode, seed=1, **MODES[mode])
    merged = pl.peft.merge_adapters(made)
    assert [type(layer) for layer in merged.modules()] == [type(each) for each in model.modules()]
    state = merged.state_dict()
    assert list(state) == list(model.state_dict())
    for name, values in wanted.state_dict().items():
        torch.testing.assert_close(state[name], values, rtol=1e-4, atol=1e-5)


def train(
    made: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, steps: int = 20,
) -> list[float]:  # fmt: skip
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (made(x) - x[:, :3]).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("span", ["tile", "layer"])
@pytest.mark.parametrize("mode", MODES)
def test_each_mode_trains_its_adapters_alone(mode: str, span: str, model: Net, device: str) -> None:
    settings: dict[str, Any] = {**MODES[mode], "adapter_span": span}
    if mode == "analog_base" and span == "layer":
        settings |= {"config": ARRAYS, "base_config": ARRAYS}
    made = pl.peft.add_adapters(
        model.to(device), mode, rank=2, seed=1, targets=["q_proj", "mix"], **settings,
    )  # fmt: skip
    base = {name: values.clone() for name, values in model.state_dict().items()}
    x = inputs(device)
    torch.testing.assert_close(made(x), model(x), rtol=1e-5, atol=1e-5)
    trained = [p for p in made.parameters() if p.requires_grad]
    optimizer: torch.optim.Optimizer
    if mode == "analog_base_digital_adapter":
        optimizer = torch.optim.Adam(trained, lr=0.02)
    else:
        optimizer = pl.optim.AnalogSGD(trained, lr=0.5)
    losses = train(made, optimizer, x, 60)
    assert losses[-1] < 0.8 * losses[0]
    for name, values in model.state_dict().items():
        assert torch.equal(values, base[name])
    arrays = [layer for layer in made.modules() if isinstance(layer, AnalogLinear)]
    for layer in arrays:
        pulses = sum(table["pulses"] for table in layer.statistics())
        assert (pulses > 0) == layer.analog_weight.requires_grad
    assert made.head.weight is not model.head.weight
    assert torch.equal(made.head.weight, model.head.weight)


def test_transfers_are_saved_as_the_change_since_the_base(model: Net, tmp_path: Path) -> None:
    config = pl.LRTTConfig(
        rank=2, visible=CELLS, fast=CELLS, transfer_every=4, transfer_mode="exact",
        reinit="kaiming", **PERFECT
    )  # fmt: skip
    made = pl.peft.add_adapters(
        model, "analog_base", rank=2, config=config, seed=1, targets=["q_proj"],
    )  # fmt: skip
    train(
        made,
        pl.optim.AnalogSGD([p for p in made.parameters() if p.requires_grad], lr=0.3),
        inputs(),
    )
    with pytest.raises(ValueError, match=r"layer 'block.q_proj' has had 5 transfers"):
        pl.peft.save_adapter(made, tmp_path)
    change = pl.peft.merge_adapters(made).block["q_proj"].weight - model.block["q_proj"].weight
    for rank, largest in ((1, 1.0), (3, 0.5), (6, 1e-5)):
        (row,) = pl.peft.save_adapter(made, tmp_path, base=model, rank=rank)
        tensors = load_file(tmp_path / "adapter_model.safetensors")
        a, b = (tensors[f"base_model.model.block.q_proj.lora_{side}.weight"] for side in "BA")
        lost = float(((a @ b - change).norm() / change.norm()).detach())
        assert row.error == pytest.approx(lost, rel=1e-3, abs=1e-5)
        assert row.error < largest
        assert row.how == "SVD of W - W0 + alpha A B"
        assert row.rank == rank


def test_a_pool_of_files_is_chosen_from_or_mixed(model: Net, tmp_path: Path, device: str) -> None:
    deltas = [write_file(tmp_path / name, seed) for name, seed in (("first", 2), ("second", 5))]
    folders = [tmp_path / "first", tmp_path / "second"]
    wanted = [changed(model, each).to(device) for each in deltas]
    x = inputs(device)
    model.to(device)
    made, _ = pl.peft.load_adapter(model, folders, config=ARRAYS, gate=TaskGate(2), seed=1)
    for task in range(2):
        select_task(made, task)
        torch.testing.assert_close(made(x), wanted[task](x), rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match=r"has a TaskGate, .* choose one by adapter"):
        pl.peft.save_adapter(made, tmp_path / "back")
    pl.peft.save_adapter(made, tmp_path / "back", adapter=1)
    again, _ = pl.peft.load_adapter(model, tmp_path / "back", config=ARRAYS)
    torch.testing.assert_close(again(x), wanted[1](x), rtol=1e-4, atol=1e-4)
    lrtt = pl.LRTTConfig(visible=CELLS, fast=CELLS, transfer_every=0, **PERFECT)
    with pytest.raises(ValueError, match="rank is 6; for a tile"):
        pl.peft.load_adapter(model, folders, "analog_base", config=lrtt)
    mixed, _ = pl.peft.load_adapter(
        model, folders, config=ARRAYS, gate=MixtureGate(2), trainable=False,
    )  # fmt: skip
    mixed.block["mix"].gate.coefficients.data = torch.tensor([0.3, 0.7], device=device)
    mean = {name: 0.3 * deltas[0][name] + 0.7 * deltas[1][name] for name in SHAPES}
    torch.testing.assert_close(
        mixed(x), changed(model.cpu(), mean).to(device)(x), rtol=1e-4, atol=1e-4,
    )  # fmt: skip
    assert {n for n, p in mixed.named_parameters() if p.requires_grad} == {
        "block.q_proj.gate.coefficients"
    }


@pytest.mark.parametrize("mode", ["digital_base", "analog_base"])
def test_elements_that_cells_confine_are_reported(
    mode: str, model: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deltas = write_file(tmp_path)
    for module in (adapter_init, load):
        monkeypatch.setattr(module, "FILL", 2.0)  # the largest elements are twice what cells hold
    made, report = pl.peft.load_adapter(model, tmp_path, mode, seed=1, **MODES[mode])
    merged = pl.peft.merge_adapters(made)
    for row in report:
        layer, old = merged.get_submodule(row.name), model.get_submodule(row.name)
        change = layer.weight - old.weight
        change = change.T if row.name == "block.mix" else change
        lost = (change - deltas[row.name]).norm() / deltas[row.name].norm()
        assert row.error == pytest.approx(lost.item(), rel=1e-3)
        assert row.error > 0.1
        assert 2 <= row.clipped < deltas[row.name].numel()
    assert report.clipped == sum(row.clipped for row in report)


def test_targets_heads_gates_and_what_stays_trainable(model: Net, tmp_path: Path) -> None:
    made = pl.peft.add_adapters(
        model, rank=2, exclude=["head"], trainable=["head"], seed=1, config=ARRAYS,
        gate=lambda _, layer: LearnedGate(
            layer.in_features if isinstance(layer, nn.Linear) else 8, 2
        ),
    )  # fmt: skip
    assert isinstance(made.block["mix"], GatedAdapter)
    assert {name.split(".")[0] for name, p in made.named_parameters() if p.requires_grad} == {
        "block",
        "head",
    }
    tiles = [tile for m in made.modules() if isinstance(m, AnalogLinear) for tile in m.tiles]
    assert sorted(tile.tile_id for tile in tiles) == list(range(4))
    assert {tile.seed for tile in tiles} == {1}
    with pytest.raises(ValueError, match="has a LearnedGate, whose weights are not the same"):
        pl.peft.merge_adapters(made)
    with pytest.raises(ValueError, match="model has no adapters"):
        pl.peft.save_adapter(model, tmp_path)
    write_file(tmp_path)
    with pytest.raises(
        ValueError, match="is a GatedAdapter, which cannot have an adapter besides its own",
    ):  # fmt: skip
        pl.peft.load_adapter(made, tmp_path)
    report = pl.conversion_report(made)
    assert report.digital["block.q_proj.gate"].startswith("weights for the components")
    torch.testing.assert_close(
        pl.convert_to_digital(made)(inputs()), made(inputs()), rtol=1e-5, atol=1e-5
    )
    tied = nn.Sequential(nn.Embedding(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    tied[1].weight = tied[0].weight
    assert type(pl.peft.add_adapters(tied, rank=2)[1]) is nn.Linear


def test_gates_constant_in_tiles_are_part_of_what_is_saved_and_merged(
    model: Net, tmp_path: Path
) -> None:
    deltas = write_file(tmp_path)
    made, _ = pl.peft.load_adapter(model, tmp_path, "analog_base", config=LRTT, gate=0.5, seed=1)
    half = changed(model, {name: 0.5 * delta for name, delta in deltas.items()})
    torch.testing.assert_close(made(inputs()), half(inputs()), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="have a gate, which no digital layer has"):
        pl.convert_to_digital(made)
    torch.testing.assert_close(
        pl.peft.merge_adapters(made)(inputs()), half(inputs()), rtol=1e-4, atol=1e-5
    )
    pl.peft.save_adapter(made, tmp_path / "back")
    again, _ = pl.peft.load_adapter(model, tmp_path / "back", config=ARRAYS)
    torch.testing.assert_close(again(inputs()), half(inputs()), rtol=1e-4, atol=1e-5)
