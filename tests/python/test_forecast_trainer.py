"""Training with predicted steps: jumps, average, saved files, analog models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import pulsora as pl
from forecast_training import STEPS, batches, bits, make, squares
from pulsora.forecast import HybridTrainer
from pulsora.forecast.weights import Weights

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_a_jump_moves_the_weights_along_their_drift() -> None:
    """A weight under a constant gradient: a pass moves it by -lr, a jump of n steps by -n lr."""

    class Slope(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.w

    model = Slope()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss = lambda model, x: 100.0 + model(x).sum()  # noqa: E731
    trainer = HybridTrainer(model, optimizer, loss, steps=400, saved=0.3, average=False)
    report = trainer.train([torch.ones(1)], progress=False)
    assert report.passes == 280
    assert sum(jump.steps for jump in report.jumps) == 120
    # The first prediction helps, but is the first that does.
    assert [jump.share for jump in report.jumps] == [0.0] + 9 * [1.0]
    assert report.jumps[0].needed is not None
    assert model.w.item() == pytest.approx(-0.01 * (400 - report.jumps[0].steps), rel=1e-4)
    assert all(jump.followed == pytest.approx(1.0) for jump in report.jumps[1:])


def test_without_saving_it_is_the_plain_training() -> None:
    trainer = make(saved=0.0, forecaster="none", average=False)
    trainer.train(batches, progress=False)
    plain = make()
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Dropout(0.1), nn.Linear(12, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for epoch in range(STEPS // 25):
        for batch in batches(epoch):
            optimizer.zero_grad()
            squares(model, batch).backward()
            optimizer.step()
            scheduler.step()
    assert bits(trainer.model) == bits(model)
    assert bits(plain.model) != bits(model)


def test_the_average_is_that_of_the_last_weights() -> None:
    seen = []
    trainer = make(forecaster="none", full=2, before_step=lambda: seen.append(None))
    plan = trainer.plan
    assert plan.averaged == 14
    trainer.train(batches, passes=plan.passes - 14, progress=False)
    weights = []
    first = next(trainer.model.parameters())
    while not trainer.done:
        trainer.train(batches, passes=1, progress=False)
        if not trainer.done:
            weights.append(first.detach().clone())
    assert len(seen) == plan.passes
    mean = first.detach() * 14 - sum(weights)  # what the last ones must have been
    last = trainer._last[0]
    torch.testing.assert_close(mean, last, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("analog", [False, True])
@pytest.mark.parametrize("at", [5, 29, 135])
def test_property_38_a_saved_training_goes_on_to_the_bit(
    analog: bool, at: int, tmp_path: Path
) -> None:
    def made() -> HybridTrainer:
        if not analog:
            return make()
        torch.manual_seed(1)
        layers = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3))
        device = pl.devices.ConstantStep(w_max_dtod=0.0, w_min_dtod=0.0)
        config = pl.SingleConfig(device=device)
        return make(pl.convert_to_analog(layers, config, threads=1), rank=2)

    whole = made()
    torch.manual_seed(7)
    whole.train(batches, progress=False)
    first = made()
    torch.manual_seed(7)
    first.train(batches, passes=at, progress=False)
    first.save(tmp_path / "training.pt")
    torch.manual_seed(12345)
    second = made()
    second.load(tmp_path / "training.pt")
    report = second.train(batches, progress=False)
    assert bits(second.model) == bits(whole.model)
    assert second.losses == whole.losses
    assert report == whole.report()


def test_files_of_other_trainings_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "training.pt"
    trainer = make()
    trainer.train(batches, passes=3, progress=False)
    trainer.save(path)
    with pytest.raises(ValueError, match="trainer with other settings"):
        make(saved=0.2).load(path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"is no file of HybridTrainer\.save, or is damaged"):
        make().load(path)


def test_batches_that_cannot_be_repeated_are_refused() -> None:
    with pytest.raises(TypeError, match="batches is an iterator"):
        make().train(batches(0), progress=False)
    with pytest.raises(TypeError, match="batches is of type int"):
        make().train(3, progress=False)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="batches gives none in epoch 0"):
        make().train([], progress=False)


def test_an_optimiser_of_another_model_is_refused() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    with pytest.raises(ValueError, match=r"parameters of shapes .*, which the model does not have"):
        HybridTrainer(model, optimizer, squares, steps=100)


def test_normalisations_follow_the_average() -> None:
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(8, 12), nn.BatchNorm1d(12), nn.Linear(12, 3))
    trainer = make(model)
    trainer.train(batches, progress=False)
    layer = model[1]
    assert layer.num_batches_tracked == 100
    assert layer.momentum == 0.1
    data = torch.cat([x for epoch in range(20) for x, _ in batches(epoch)])
    with torch.no_grad():
        torch.testing.assert_close(layer.running_mean, model[0](data).mean(0), atol=0.05, rtol=0.05)


def test_a_report_shows_the_controls() -> None:
    trainer = make()
    report = trainer.train(batches, progress=False)
    assert report.last is None
    report = trainer.report(batches(1000))
    assert report.last is not None
    assert report.averaged is not None
    text = str(report)
    made = sum(jump.share > 0.0 for jump in report.jumps)
    assert made > 2
    for part in ("140 of 140 backward passes, in place of 200 (30% saved)",
                 f"{made} jumps (linear)", "loss with a jump beside without, made: -",
                 "forecaster='none': averaging alone", "schedule stretched",
                 "of the average"):  # fmt: skip
        assert part in text
    assert "linear" in str(make().report()) or "no jumps" in str(make().report())


def test_training_stops_when_little_is_left() -> None:
    trainer = make(stop_below=0.5, steps=2000, lr=0.2)
    report = trainer.train(batches, progress=False)
    assert trainer.done
    assert trainer.plan.averaged < report.passes < trainer.plan.passes
    assert trainer._mean.count > 10
    assert trainer._passes == trainer._end
    assert "it ends early, because its forecast left too little" in str(report)


@pytest.mark.parametrize("rank", [None, 2])
@pytest.mark.parametrize("kind", ["single", "lrtt", "lrtt swapped", "tiles"])
def test_jumps_are_written_by_pulses(kind: str, rank: int | None) -> None:
    """A change of rank 2 arrives within the noise of its pulses, and as pulses."""
    fine = pl.devices.ConstantStep(
        dw_min=1e-3, dw_min_dtod=0.0, dw_min_std=0.0,
        up_down_dtod=0.0, w_max_dtod=0.0, w_min_dtod=0.0,
    )  # fmt: skip
    config: pl.TileConfig = pl.SingleConfig(device=fine)
    if kind.startswith("lrtt"):
        config = pl.LRTTConfig(rank=3, visible=fine, fast=fine, swap_xd=kind.endswith("swapped"))
    size = 10 if kind == "tiles" else 0
    layer = pl.nn.AnalogLinear(
        20, 15, config=config, seed=1, max_input_size=size, max_output_size=size, threads=1
    )
    model = nn.Sequential(layer)
    optimizer = pl.optim.AnalogSGD(model.parameters(), lr=0.1)
    weights = Weights(model, optimizer, rank)
    generator = torch.Generator().manual_seed(0)
    factors = torch.randn(2, 15, generator=generator), torch.randn(2, 20, generator=generator)
    delta = 0.05 * factors[0].T @ factors[1]
    before, pulses = weights.read(), weights.pulses
    weights.move([torch.zeros(15) if value.dim() == 1 else delta for value in before])
    moved = [after - old for after, old in zip(weights.read(), before, strict=True)]
    matrix = next(value for value in moved if value.dim() == 2)
    error = (matrix - delta).norm() / delta.norm()
    assert error < 0.15
    least = delta.abs().sum() / 1e-3
    assert weights.pulses - pulses > 0.9 * least
    if rank is None and kind in {"single", "tiles"}:
        assert weights.pulses - pulses < 1.1 * least  # column by column no pulse is taken back


def test_adapters_are_warned_of() -> None:
    model = nn.Sequential(pl.nn.AnalogLinear(8, 3, config=pl.LRTTConfig(rank=2), seed=1, threads=1))
    with pytest.warns(UserWarning, match="ends a cycle of theirs early"):
        make(model)
    with pytest.warns(UserWarning, match="ends a cycle of theirs early"):
        make(model, guard=False, average=False)
    make(model, forecaster="none", average=False)
    report = make(model, average=False).train(batches, progress=False)
    assert report.jumps == ()
    assert "no jumps: each would end a cycle of the tiles' adapters early" in str(report)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_training_on_a_gpu_saves_and_goes_on(tmp_path: Path) -> None:
    def made() -> HybridTrainer:
        torch.manual_seed(1)
        layers = nn.Sequential(nn.Linear(8, 6), nn.Dropout(0.1), nn.Linear(6, 3)).cuda()
        device = pl.devices.ConstantStep(w_max_dtod=0.0, w_min_dtod=0.0)
        model = pl.convert_to_analog(layers, pl.SingleConfig(device=device), exclude=["0"])
        return make(model, rank=2, guard=False)

    def there(epoch: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return ((x.cuda(), y.cuda()) for x, y in batches(epoch))

    whole = made()
    report = whole.train(there, progress=False)
    assert report.pulses_of_jumps > 0
    assert any(jump.share > 0.0 for jump in report.jumps)
    first = made()
    first.train(there, passes=60, progress=False)
    first.save(tmp_path / "training.pt")
    second = made()
    second.load(tmp_path / "training.pt")
    assert second.train(there, progress=False).pulses == report.pulses
    assert second.losses == pytest.approx(whole.losses, rel=1e-5)
