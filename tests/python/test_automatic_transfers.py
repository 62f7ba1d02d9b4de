"""Transfers that fall due by themselves: transfer_every="auto"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import pulsora as pl
from conftest import DEVICES
from pulsora.training.experiment import Experiment

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

D_SIZE, X_SIZE, SAMPLES = 24, 40, 8
DUE, EVERY = 0.6, 8


def config(**settings: Any) -> pl.LRTTConfig:
    """An adapter whose A is full after some tens of mini-batches."""
    chosen: dict[str, Any] = {"rank": 4, "visible": pl.presets.ReRamSB(), "transfer_every": "auto"}
    return pl.LRTTConfig(**{**chosen, **settings})


def batch(step: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    rng = np.random.default_rng(step)
    x = rng.normal(0.5, 1, (SAMPLES, X_SIZE)).astype(np.float32)
    d = rng.normal(0.002, 0.004, (SAMPLES, D_SIZE)).astype(np.float32)
    return x, d


def train(tile: pl.Tile, steps: int, start: int = 0, parts: int = 1) -> pl.Tile:
    for step in range(start, start + steps):
        x, d = batch(step)
        tile.forward(x)
        tile.backward(d)
        each = SAMPLES // parts
        for part in range(parts):
            rows = slice(part * each, (part + 1) * each)
            tile.update(x[rows], d[rows], 0.1, end_of_batch=part == parts - 1)
    return tile


def made(device: str = "cpu", threads: int = 1, **settings: Any) -> pl.Tile:
    tile = pl.Tile(D_SIZE, X_SIZE, config(**settings), seed=3, threads=threads, device=device)
    tile.weights = np.random.default_rng(1).normal(0, 0.1, (D_SIZE, X_SIZE)).astype(np.float32)
    return tile


def times(tile: pl.Tile) -> list[int]:
    found: list[int] = tile.statistics()["transfers_due_at"]
    return found


def shares(tile: pl.Tile) -> NDArray[np.float64]:
    """The means of |a| / reach and |b| / reach, by NumPy."""
    cells = tile.config.fast  # type: ignore[attr-defined]
    reach = min(cells.w_max, -cells.w_min)
    arrays = (np.asarray(each, np.float64) for each in (tile.adapter.a, tile.adapter.b))
    return np.array([np.minimum(np.abs(each) / reach, 1.0).mean() for each in arrays])


def same(one: pl.Tile, other: pl.Tile) -> bool:
    return all(
        np.array_equal(one.arrays[name], other.arrays[name])
        for name in ("visible", "fast_a", "fast_b")
    )


@pytest.mark.parametrize("settings", [{}, {"reinit": "kaiming"}, {"swap_xd": True}])
def test_transfers_happen_when_numpy_says_so(settings: dict[str, Any]) -> None:
    tile = train(made(**settings), 120)
    hand = made(transfer_every=0, **settings)
    start, since, due = shares(hand), 0, []
    for step in range(120):
        train(hand, 1, step)
        since += 1
        if since % EVERY:
            continue
        now = shares(hand)
        filling = np.sqrt(np.maximum(now - start, 0) / (1 - start))
        assert np.min(np.abs(filling - DUE)) > 1e-6  # a case that rounding decides tells nothing
        if filling.max() >= DUE:
            hand.adapter.transfer()
            start, since = shares(hand), 0
            due.append(step + 1)
    assert len(due) >= 2
    assert times(tile) == due
    assert tile.statistics()["transfers"] == len(due)
    assert same(tile, hand)


@pytest.mark.parametrize("parts", [2, 8])
def test_the_split_of_a_mini_batch_does_not_matter(parts: int) -> None:
    whole, cut = train(made(), 60), train(made(), 60, parts=parts)
    assert len(times(whole)) >= 1
    assert times(whole) == times(cut)
    assert same(whole, cut)


def test_the_number_of_threads_does_not_matter() -> None:
    one, three = train(made(), 60), train(made(threads=3), 60)
    assert times(one) == times(three)
    assert same(one, three)


@pytest.mark.parametrize("device", DEVICES)
def test_cpu_and_gpu_decide_alike(device: str) -> None:
    perfect = pl.IOParameters(is_perfect=True)
    host = made(forward=perfect, backward=perfect)
    other = made(device, forward=perfect, backward=perfect)
    other.gpu_products = "reproducible"
    for step in range(60):
        x, d = batch(step)
        host.update(x, d, 0.1)
        on_device = (torch.from_numpy(each).to(device) for each in (x, d))
        other.update(*on_device, 0.1)
    assert len(times(host)) >= 1
    assert times(other) == times(host)
    assert other.statistics()["filling"] == host.statistics()["filling"]
    assert same(host, other)


@pytest.mark.parametrize("steps", [5, 8, 41])
def test_a_resumed_tile_makes_the_same_transfers(steps: int, tmp_path: Path) -> None:
    path = tmp_path / "tile.safetensors"
    tile = train(made(), steps)
    tile.save(path)
    resumed = pl.Tile.load(path, threads=1)
    for each in (tile, resumed):
        train(each, 100 - steps, steps)
    assert times(tile)[-1] > steps
    assert times(tile) == times(resumed)
    assert tile.statistics() == resumed.statistics()
    assert same(tile, resumed)


def test_a_damaged_state_is_refused() -> None:
    tile = train(made(), 60)
    good = tile.state()
    before = tile.weights
    for name, value, message in [
        ("filling/start_a", 1.5, "'filling/start_a' is 1.5; it is between 0 and 1"),
        ("filling/start_b", None, "filling/start_b"),
        ("filling/since", -1, "no count 'filling/since'"),
        ("filling/times", [0] * 62 + [3, 2], "zeros before growing ones"),
        ("filling/times", [0] * 62 + [3, 0], "zeros before growing ones"),
        ("filling/times", list(range(1, 66)), "filling/times"),
        ("filling/times", [1.5] * 64, "filling/times"),
        ("filling/times", None, "filling/times"),
    ]:
        values = {**good.values, name: value}
        if value is None:
            del values[name]
        with pytest.raises(pl.StateError, match=message):
            tile.load_state(pl.State(good.tensors, values).signed())
        np.testing.assert_array_equal(tile.weights, before)
    tile.load_state(good)


def test_a_transfer_by_hand_and_a_write_begin_anew() -> None:
    tile = train(made(), 12)
    assert tile.statistics()["filling"]["a"] > 0.2
    tile.adapter.a = np.full(tile.adapter.a.shape, 0.5, np.float32)
    assert tile.statistics()["filling"]["a"] == 0.0
    train(tile, 3, 12)
    tile.adapter.transfer()
    assert tile.statistics()["filling"] == {"a": 0.0, "b": 0.0, "due": DUE}
    x, d = batch(0)
    assert tile.explain(x, d, 0.1)["since_transfer"] == 0
    assert times(tile) == []  # none was due


def test_explanations_and_statistics_say_how_far_it_is() -> None:
    tile = made()
    x, d = batch(0)
    said = tile.explain(x, d, 0.1)
    assert said["transfer_every"] == "auto"
    assert said["first_transfer"] == "no transfer before A or B has a filling of 0.6"
    train(tile, 12)
    said = tile.explain(x, d, 0.1)
    assert said["since_transfer"] == 12
    assert 0.0 < said["filling"]["a"] < 1.0
    train(tile, 60, 12)
    assert "first_transfer" not in tile.explain(x, d, 0.1)
    assert "filling" not in made(transfer_every=5).statistics()


def test_what_cannot_be_is_refused() -> None:
    def refused(message: str, **settings: Any) -> None:
        with pytest.raises(pl.ConfigError, match=message):
            pl.Tile(D_SIZE, X_SIZE, config(**settings))

    refused("units_in_mbatch is False, a schedule in samples", units_in_mbatch=False)
    refused("lrtt.fast reaches from 0 to 1", fast=pl.devices.ConstantStep(w_min=0.0, w_max=1.0))
    refused("write a number or 'auto'", transfer_every="never")
    refused("transfer_every", transfer_every=-1)
    with pytest.raises(pl.ConfigError, match="transfer_every"):
        pl.TikiTaka(pl.devices.SoftBounds(), transfer_every="auto")
    # Where no pulses are sent, A and B fill too.
    none = pl.UpdateParameters(pulse_type="none")
    assert len(times(train(made(update=none), 120))) >= 1
    assert "transfers" not in pl.Tile(4, 3, config(rank=0)).statistics()


def test_layers_and_experiments_take_it() -> None:
    settings = Experiment.from_dict({"transfer_every": "auto"})
    assert settings.tile_config().transfer_every == "auto"  # type: ignore[union-attr]
    torch.manual_seed(0)
    layer = pl.nn.AnalogLinear(30, 20, config=config(), seed=2, max_input_size=16)
    optimizer = pl.optim.AnalogSGD(layer.parameters(), lr=0.5)
    for step in range(64):
        optimizer.zero_grad()
        x = torch.randn(16, 30, generator=torch.Generator().manual_seed(step))
        (layer(x) - x[:, :20]).square().mean().backward()
        optimizer.step()
    each = [tile.statistics()["transfers_due_at"] for tile in layer.tiles]
    assert all(each)
