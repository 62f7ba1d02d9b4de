"""The guard of a training with predicted steps: jumps that harm are left out."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import pulsora as pl
from forecast_training import batches, bits, lr_of, make, squares
from pulsora.forecast import HybridTrainer
from pulsora.forecast.batches import Stream
from pulsora.forecast.guard import Trial


def test_jumps_that_harm_are_left_out() -> None:
    wild = make(alpha=1e4)
    report = wild.train(batches, progress=False)
    assert [jump.share for jump in report.jumps] == [0.0] * 3
    assert all(jump.followed is None for jump in report.jumps)
    assert report.guard_passes == 3 * 3 * 4
    assert "3 predictions in a row would not have lowered the loss enough" in str(report)
    assert "so this run is averaging alone" in str(report)
    assert wild._jumper is not None
    assert wild._jumper._blocks.means == []
    blind = make(alpha=1e4, guard=False, average=False)
    with pytest.raises(ValueError, match="training diverged; lower the learning rate"):
        blind.train(batches, progress=False)


def test_without_a_jump_it_is_averaging_alone_to_the_bit() -> None:
    """Neither the measurement nor the plan of jumps leaves a trace."""
    for options in ({}, {"steps": 331, "full": 17}):
        measured, averaged = make(alpha=1e4, **options), make(forecaster="none", **options)
        for trainer in (measured, averaged):
            torch.manual_seed(11)
            trainer.train(batches, progress=False)
        assert bits(measured.model) == bits(averaged.model)
        assert lr_of(measured) == lr_of(averaged)


def test_batches_that_were_looked_at_still_come() -> None:
    source = lambda epoch: [10 * epoch + i for i in range(3)]  # noqa: E731
    stream = Stream()
    stream.open(source)
    seen = [stream.next()]
    assert stream.peek(4) == [1, 2, 10, 11]
    assert (stream.epoch, stream.taken) == (0, 1)
    seen += [stream.next() for _ in range(3)]
    assert (stream.epoch, stream.taken) == (1, 1)
    assert stream.peek(1) == [11]
    stream.close()
    stream.open(source)  # as after loading a state
    assert seen + [stream.next() for _ in range(3)] == [0, 1, 2, 10, 11, 12, 20]
    stream.open([])
    with pytest.raises(ValueError, match="batches gives none in epoch"):
        stream.peek(1)
    loader = torch.utils.data.DataLoader(torch.arange(6.0), batch_size=2, shuffle=True)
    stream = Stream()
    stream.open(loader)
    stream.next()  # an epoch draws its order
    state = torch.get_rng_state()
    assert len(stream.peek(5)) == 5
    assert torch.equal(torch.get_rng_state(), state)


def test_a_guard_measures_gains_as_documented() -> None:
    """Losses (w - c)^2 of one weight, by hand."""

    class Weight(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.tensor([5.0]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return ((self.w - x) ** 2).sum()

    model = Weight()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = HybridTrainer(model, optimizer, lambda m, x: m(x), steps=100)
    centres = [0.0, 0.5, -0.5, 1.0]
    trainer._stream.open([torch.tensor([centre]) for centre in centres])
    assert trainer._jumper is not None
    guard = trainer._jumper._guard
    early, late, share = 4.0, 3.0, 0.5

    def losses(w: float) -> list[float]:
        return [(w - centre) ** 2 for centre in centres]

    for move in (-0.5, -0.05, -2.0, 1.0):
        values = [[torch.tensor([value])] for value in (early, late, move)]
        got = guard(*values, share)
        gains = [a - b for a, b in zip(losses(late), losses(late + move), strict=True)]
        mean = sum(gains) / 4
        error = math.sqrt(sum((gain - mean) ** 2 for gain in gains) / 3 / 4)
        progress = (sum(losses(early)) - sum(losses(late))) / 4
        needed = max(2.0 * error, 0.5 * share * progress)
        assert got.before == pytest.approx(sum(losses(late)) / 4)
        assert got.moved == pytest.approx(sum(losses(late + move)) / 4)
        assert got.needed == pytest.approx(needed, rel=1e-5)
        assert got.helps == (mean > needed)
    assert guard.passes == 4 * 3 * 4
    assert not Trial(1.0, math.nan, 0.0).helps
    assert model.w.item() == 5.0


def test_losses_may_be_negative_or_zero() -> None:
    trainer = make()
    trainer.loss = lambda model, batch: squares(model, batch) - 40.0
    assert trainer._jumper is not None
    trainer._jumper._guard._loss = trainer.loss
    report = trainer.train(batches, progress=False)
    plain = make().train(batches, progress=False)
    assert [jump.share for jump in report.jumps] == [jump.share for jump in plain.jumps]
    trainer.loss = lambda model, batch: 0.0 * squares(model, batch)
    assert str(trainer.report(batches(1000))).count("of the average") == 1


def test_a_guard_leaves_model_and_random_numbers_alone() -> None:
    trainer = make()
    trainer.train(batches, passes=30, progress=False)
    before, state = bits(trainer.model), torch.get_rng_state()
    mean = trainer._jumper._blocks.means[-1]
    trainer._stream.open(batches)
    trainer._jumper._guard(mean, mean, [torch.ones_like(value) for value in mean], 1.0)
    assert bits(trainer.model) == before
    assert torch.equal(torch.get_rng_state(), state)


def test_jumps_that_pulses_spoil_are_the_last() -> None:
    """A written move that leaves the loss where it was, or raises it, ends the jumps."""
    torch.manual_seed(1)
    layers = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3))
    cells = pl.devices.ConstantStep(dw_min=1e-4, w_max_dtod=0.0, w_min_dtod=0.0)
    config = pl.SingleConfig(device=cells)

    def written(factor: float) -> str:
        """Why jumps ended after a move along the way of the latest 20 passes."""
        trainer = make(pl.convert_to_analog(layers, config, threads=1), lr=0.1)
        trainer.train(batches, passes=5, progress=False)
        jumper = trainer._jumper
        assert jumper is not None
        start = trainer._weights.read()
        trainer.train(batches, passes=20, progress=False)
        trainer._stream.open(batches)
        gone = [end - begin for end, begin in zip(trainer._weights.read(), start, strict=True)]
        jumper._write([factor * value for value in gone])
        assert jumper.pulses > 0
        return jumper.ended

    assert not written(0.2)
    assert written(-0.9).startswith("the latest jump, as pulses wrote it, did not lower the loss")
