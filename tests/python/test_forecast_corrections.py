"""Corrections of predicted moves: ratios by NumPy, factors, and saved trainings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from forecast_training import batches, bits, make
from pulsora.forecast import HybridTrainer, ResidualMemory
from pulsora.forecast.corrections import MemoryCorrector, ScaleCorrector, circumstances, compare
from pulsora.forecast.history import BlockMeans, History

if TYPE_CHECKING:
    from pathlib import Path


def test_ratios_are_least_squares() -> None:
    rng = np.random.default_rng(1)
    blocks = BlockMeans(samples=2, kept=4)
    path = rng.standard_normal((4, 6)).astype(np.float32)
    for i, point in enumerate(path):
        blocks.add([torch.tensor(point[:2]), torch.tensor(point[2:])], 5.0 * i)
    before, after = path[:2].mean(0), path[2:].mean(0)
    move = (after - before) / 10.0  # two samples of 5 passes later
    prediction = rng.standard_normal(6).astype(np.float32)
    expected = move @ prediction / (prediction @ prediction)
    given = [torch.tensor(prediction[:2]), torch.tensor(prediction[2:])]
    assert compare(given, blocks) == pytest.approx(expected, rel=1e-5)
    assert compare([torch.zeros(2), torch.zeros(4)], blocks) == 1.0


def test_scales_are_means_that_forget() -> None:
    corrector, key = ScaleCorrector(), np.zeros(4, np.float32)
    assert corrector.factor(key, 0) == 1.0
    for ratio in (0.4, 0.8, 0.2):
        corrector.learn(key, 0, ratio)
    assert corrector.factor(key, 0) == pytest.approx((0.25 * 0.4 + 0.5 * 0.8 + 0.2) / 1.75)
    again = ScaleCorrector()
    again.load_state_dict(corrector.state_dict())
    assert again.factor(key, 0) == corrector.factor(key, 0)
    for ratio, limit in ((-9.0, 0.0), (99.0, 2.0)):
        corrector.learn(key, 0, ratio)
        assert corrector.factor(key, 0) == limit


def test_memories_hold_residuals() -> None:
    corrector, memory = MemoryCorrector(), ResidualMemory(4)
    rng = np.random.default_rng(2)
    for step in range(12):
        key = rng.standard_normal(4).astype(np.float32)
        ratio = float(rng.uniform(0.8, 1.3))
        corrector.learn(key, step, ratio)
        memory.remember(key, ratio - 1.0, step)
    key = rng.standard_normal(4).astype(np.float32)
    expected = 1.0 + memory.corrections(key[None], [1.0], 20.0)[0]
    assert corrector.factor(key, 20) == expected != 1.0
    again = MemoryCorrector()
    again.load_state_dict(corrector.state_dict())
    assert again.factor(key, 20) == expected


def test_circumstances_are_logarithms_of_losses() -> None:
    history = History(BlockMeans(1, 1), [8.0, 4.0, 4.0, 4.0, 4.0, 2.0, 1.0], 5, lambda _: [0.5])
    key = circumstances(history, 0.25, 7)
    np.testing.assert_allclose(key, [0.25, np.log(1 / 8), np.log(1 / 4), 0.5], rtol=1e-6)


class Half:
    """Predicts twice the move that will come."""

    name, blocks, kept, least = "half", 2, 8, 2

    def __call__(self, history: History, steps: int) -> list[torch.Tensor]:
        return [torch.full_like(value, -0.02 * steps) for value in history.blocks.means[-1]]

    def __repr__(self) -> str:
        return "half"


def test_a_wrong_size_is_corrected() -> None:
    """A weight that moves by -0.01 a pass, and a forecaster that predicts -0.02."""

    class Slope(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.zeros(1))

    model = Slope()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    trainer = HybridTrainer(
        model, optimizer, lambda model, x: 100.0 + (model.w * x).sum(),
        steps=400, forecaster=Half(), corrections="scale", average=False, guard=False,
    )  # fmt: skip
    report = trainer.train([torch.ones(1)], progress=False)
    assert [jump.factor for jump in report.jumps] == pytest.approx([1.0] + 9 * [0.5], rel=1e-3)
    assert "sizes of moves after corrections, beside predicted: 1.00, 0.50" in str(report)
    assert model.w.item() == pytest.approx(-0.01 * (400 + report.jumps[0].steps), rel=1e-3)


@pytest.mark.parametrize("corrections", ["scale", "memory"])
def test_property_38_a_corrected_training_goes_on_to_the_bit(
    corrections: str, tmp_path: Path
) -> None:
    def made() -> HybridTrainer:
        torch.manual_seed(7)
        return make(corrections=corrections, guard=False)

    whole = made()
    report = whole.train(batches, progress=False)
    assert len({jump.factor for jump in report.jumps}) > (5 if corrections == "scale" else 1)
    for at in (28, 30, 60):
        first = made()
        first.train(batches, passes=at, progress=False)
        first.save(tmp_path / "training.pt")
        second = made()
        second.load(tmp_path / "training.pt")
        assert second.train(batches, progress=False) == report
        assert bits(second.model) == bits(whole.model)
    with pytest.raises(ValueError, match="trainer with other settings"):
        make(guard=False).load(tmp_path / "training.pt")


def test_unknown_corrections_are_refused() -> None:
    with pytest.raises(ValueError, match=r"corrections must be one of none, scale, memory"):
        make(corrections="magic")
