"""New seeds for the tiles of a model, warnings about copies, and another periphery."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import pulsora as pl
from pulsora.nn import AnalogLinear
from pulsora.optim import AnalogSGD

pytestmark = pytest.mark.filterwarnings("ignore:.*bounds of their cells")

WIDE = pl.devices.ConstantStep(w_max=2.0, w_min=-2.0, write_noise_std=0.0)
CONFIGS = {
    "ideal": pl.IdealConfig(),
    "single": pl.SingleConfig(device=WIDE),
    "lrtt": pl.LRTTConfig(rank=2, transfer_every=3, visible=WIDE),
    "reference": pl.LRTTConfig(
        rank=2, transfer_every=3, visible=WIDE, fast=pl.devices.SoftBounds(write_noise_std=1.0)
    ),
}


def _model(config: pl.TileConfig) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 4))
    made = pl.convert_to_analog(model, config, seed=1, max_input_size=7)
    assert isinstance(made, nn.Sequential)
    return made


def _train(model: nn.Module, steps: int) -> None:
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(10, 12, generator=generator).to(device)
    labels = torch.randint(4, (10,), generator=generator).to(device)
    optimizer = AnalogSGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        optimizer.step()


def _same(one: nn.Module, other: nn.Module) -> bool:
    first, second = one.state_dict(), other.state_dict()
    return all(torch.equal(first[name], second[name]) for name in first)


def _tensors(model: nn.Module, end: str) -> list[torch.Tensor]:
    return [each for name, each in model.state_dict().items() if name.endswith(end)]


@pytest.mark.parametrize("kind", list(CONFIGS))
@pytest.mark.parametrize("steps", [0, 4])  # 4: in the middle of a cycle of transfers
def test_new_noise_keeps_cells_weights_and_counters(kind: str, steps: int, device: str) -> None:
    model = _model(CONFIGS[kind]).to(device)
    _train(model, steps)
    before, *again = (copy.deepcopy(model) for _ in range(3))
    x = torch.randn(5, 12).to(device)
    assert pl.reseed(model, 7) is model
    for one, other in zip(model[0].tiles, before[0].tiles, strict=True):
        assert one.counters == other.counters
        assert (one.seed, one.tile_id) != (other.seed, other.tile_id)
        assert np.array_equal(one.weights, other.weights)
    for end in ("cells", "weights", "reference", "resets"):
        for one, other in zip(_tensors(model, end), _tensors(before, end), strict=True):
            assert torch.equal(one, other)
    assert not torch.equal(model(x), before(x)) or kind == "ideal"
    # Reproducible, another for another seed, and continued to the bit from a saved state.
    same, other = (pl.reseed(each, seed) for each, seed in zip(again, (7, 8), strict=True))
    same(x)
    restored = _model(CONFIGS[kind]).to(device)
    restored.load_state_dict(model.state_dict())
    for each in (model, same, other, restored):
        _train(each, 4)
    assert _same(model, same)
    assert _same(model, restored)
    assert not torch.equal(model[0].weight, other[0].weight) or kind == "ideal"


@pytest.mark.parametrize("kind", ["single", "lrtt", "reference"])
def test_new_cells_keep_the_weights(kind: str, device: str) -> None:
    model = _model(CONFIGS[kind]).to(device)
    _train(model, 4)
    before = copy.deepcopy(model)
    pl.reseed(model, 7, cells=True)
    for one, other in zip(_tensors(model, "cells"), _tensors(before, "cells"), strict=True):
        assert not torch.equal(one, other)
    if kind != "reference":  # whose cells have write noise
        torch.testing.assert_close(model[0].weight, before[0].weight, rtol=0, atol=1e-3)
    restored = _model(CONFIGS[kind]).to(device)
    restored.load_state_dict(model.state_dict())
    for each in (model, restored):
        _train(each, 4)
    assert _same(model, restored)


def test_new_cells_clip_with_a_warning() -> None:
    narrow = pl.devices.ConstantStep(w_max=0.1, w_min=-0.1, w_max_dtod=0.5, w_min_dtod=0.5)
    tile = pl.Tile(20, 20, pl.SingleConfig(device=narrow), seed=1)
    with pytest.warns(UserWarning, match="bounds of their cells"):
        tile.weights = np.full((20, 20), 0.2, np.float32)
    with pytest.warns(UserWarning, match="bounds of their cells"):
        tile.reseed(2, cells=True)
    cells = tile.describe_cells()
    assert np.all(tile.weights <= cells["w_max"])
    assert tile.seed == 2
    fresh = pl.Tile(20, 20, pl.SingleConfig(device=narrow), seed=2)
    assert np.array_equal(cells["w_max"], fresh.describe_cells()["w_max"])


def test_fixed_spreads_of_lines_stay_with_the_cells() -> None:
    io = pl.IOParameters(out_noise=0.0, out_res=0.0, out_nonlinearity=0.5, out_nonlinearity_std=0.5)
    tile = pl.Tile(6, 10, pl.SingleConfig(forward=io), seed=1)
    x = np.random.default_rng(0).normal(size=(4, 10)).astype(np.float32)
    tile.weights = np.random.default_rng(1).uniform(-0.2, 0.2, (6, 10)).astype(np.float32)
    before = tile.forward(x)
    tile.reseed(9)
    assert np.array_equal(tile.forward(x), before)
    restored = pl.Tile.from_state(tile.state())
    assert np.array_equal(restored.forward(x), before)
    assert restored.state().values["cell_seed"] == "1"
    with pytest.raises(pl.StateError, match="cell_seed"):
        pl.Tile(6, 10, pl.SingleConfig(forward=io), seed=9).load_state(tile.state())
    tile.reseed(1)  # the first seed again
    assert "cell_seed" not in tile.state().values
    tile.reseed(9, cells=True)
    assert not np.array_equal(tile.forward(x), before)


def test_shared_tiles_get_one_seed_and_other_layers_others() -> None:
    layers = nn.ModuleList([copy.deepcopy(AnalogLinear(4, 4)) for _ in range(2)])
    layers.append(AnalogLinear(4, 4))
    layers[2].analog_weight = layers[0].analog_weight
    torch.manual_seed(3)
    pl.reseed(layers)
    seeds = [layer.tiles.seed for layer in layers]
    assert seeds[0] == seeds[2] != seeds[1]
    assert [next(iter(layer.tiles)).seed for layer in layers] == seeds
    torch.manual_seed(3)
    pl.reseed(layers)
    assert [layer.tiles.seed for layer in layers] == seeds


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, True, "1"])
def test_a_bad_seed_is_refused(seed: object) -> None:
    layer = AnalogLinear(4, 3, seed=5)
    with pytest.raises(ValueError, match=r"seed = .*whole number"):
        pl.reseed(layer, seed)  # type: ignore[arg-type]
    assert layer.tiles.seed == 5
    with pytest.raises(ValueError, match="no analog layer"):
        pl.reseed(nn.Linear(2, 2), 1)
    with pytest.raises(pl.ConfigError, match="seed"):
        pl.Tile(2, 2).reseed(-1)


def test_copies_of_a_model_are_independent_once_reseeded() -> None:
    """The mean of 16 chips' reads has a quarter of the noise of one."""
    layer, x = AnalogLinear(32, 16, seed=1), torch.randn(256, 32)
    exact = pl.convert_to_digital(layer)(x)

    def deviation(chips: list[AnalogLinear]) -> float:
        mean = torch.stack([chip(x) for chip in chips]).mean(0)
        return float((mean - exact).detach().std())

    twins = [copy.deepcopy(layer) for _ in range(16)]
    chips = [pl.reseed(copy.deepcopy(layer), seed) for seed in range(16)]
    # Each deviation of 4096 values is within 5 / sqrt(8192) of its mean.
    assert deviation(chips) / deviation(twins) == pytest.approx(0.25, rel=0.12)


def test_an_optimiser_names_the_remedy_for_copies_once() -> None:
    block = pl.convert_to_analog(
        nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        pl.SingleConfig(device=WIDE),
        exclude=["self_attn"],
    )
    assert isinstance(block, nn.TransformerEncoderLayer)
    stack = nn.TransformerEncoder(block, 3, enable_nested_tensor=False)
    groups = [{"params": layer.parameters()} for layer in stack.layers]
    with pytest.warns(
        UserWarning, match=r"shape \[16, 8\] has the seed .*pulsora\.reseed"
    ) as caught:
        AnalogSGD(groups, lr=0.1)
    assert len(caught) == 1
    pl.reseed(stack, 0, cells=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AnalogSGD(stack.parameters(), lr=0.1)
    cells = [each for name, each in stack.state_dict().items() if name.endswith("cells")]
    assert not any(torch.equal(one, other) for one in cells for other in cells if one is not other)


def test_layers_converted_after_copying_are_no_copies() -> None:
    block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    stack = nn.TransformerEncoder(block, 3, enable_nested_tensor=False)
    names = [f"layers.{i}.self_attn" for i in range(3)]
    model = pl.convert_to_analog(stack, pl.SingleConfig(device=WIDE), exclude=names, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AnalogSGD(model.parameters(), lr=0.1)


def test_perfect_copies_and_other_shapes_are_not_warned_of() -> None:
    perfect = pl.IOParameters(is_perfect=True)
    ideal = pl.IdealConfig(forward=perfect, backward=perfect)
    layers = [AnalogLinear(4, 4, config=ideal, seed=1) for _ in range(2)]
    layers += [AnalogLinear(4, 4, seed=1), AnalogLinear(5, 4, seed=1)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AnalogSGD(nn.ModuleList(layers).parameters(), lr=0.1)


@pytest.mark.parametrize("kind", list(CONFIGS))
def test_another_periphery_around_the_same_cells(kind: str, device: str) -> None:
    model = _model(CONFIGS[kind]).to(device)
    _train(model, 4)
    saved = {name: each.clone() for name, each in model.state_dict().items()}
    noisy = pl.with_io(model, forward=lambda io: io.replace(out_noise=0.3, is_perfect=False))
    assert noisy is not model
    for name, tensor in noisy.state_dict().items():
        assert torch.equal(tensor, saved[name]) != name.endswith("values")
    assert noisy[0].config.forward.out_noise == pytest.approx(0.3)
    assert next(iter(noisy[0].tiles)).config == noisy[0].config
    assert _same_as(model, saved)
    back = pl.with_io(noisy, forward=model[0].config.forward)
    assert _same(back, model)
    x = torch.randn(4, 12).to(device)
    torch.testing.assert_close(back(x), copy.deepcopy(model)(x))
    _train(noisy, 2)  # goes on, and is saved and restored
    restored = pl.with_io(_model(CONFIGS[kind]).to(device), forward=noisy[0].config.forward)
    restored.load_state_dict(noisy.state_dict())
    assert _same(restored, noisy)


def _same_as(model: nn.Module, saved: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(each, saved[name]) for name, each in model.state_dict().items())


def test_a_running_mean_comes_and_goes_with_its_periphery() -> None:
    model = _model(CONFIGS["lrtt"])
    follows = model[0].config.forward.replace(noise_management="average_abs_max")
    changed = pl.with_io(model, forward=follows)
    _train(changed, 2)
    assert any(name.endswith("average_abs_max") for name in changed.state_dict())
    back = pl.with_io(changed, forward=model[0].config.forward)
    assert back.state_dict().keys() == model.state_dict().keys()


def test_what_is_no_periphery_is_refused() -> None:
    model = _model(CONFIGS["ideal"])
    with pytest.raises(TypeError, match="forward is of type dict"):
        pl.with_io(model, forward={"out_noise": 1.0})  # type: ignore[type-var]
    with pytest.raises(pl.ConfigError, match="no parameter 'update'"):
        pl.with_io(model, update=pl.UpdateParameters())
    with pytest.raises(ValueError, match="no analog layer"):
        pl.with_io(nn.Linear(2, 2))


class Reads(Dataset[torch.Tensor]):
    """Items that are reads of one layer for one input."""

    def __init__(self) -> None:
        self.layer = AnalogLinear(6, 4, config=CONFIGS["single"], seed=1, threads=1)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        with torch.no_grad():
            return self.layer(torch.ones(1, 6))[0]


@pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker:UserWarning")
@pytest.mark.parametrize("reseeds", [False, True])
def test_workers_of_a_loader_have_noise_of_their_own_once_reseeded(reseeds: bool) -> None:
    items = Reads()

    def start(_: int) -> None:
        pl.reseed(items.layer, torch.initial_seed() % 2**63)

    loader = DataLoader(items, num_workers=2, worker_init_fn=start if reseeds else None)
    first, second = (torch.cat(list(loader)) for _ in range(2))
    assert torch.equal(first, second) != reseeds
    # Without new seeds, both workers begin with the noise of the layer.
    assert len(first.unique(dim=0)) == (8 if reseeds else 4)
