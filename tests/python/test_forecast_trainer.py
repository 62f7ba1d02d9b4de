"""Training with predicted steps: phases, jumps, average, guard, saved files, analog models."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import pulsora as pl
from pulsora.forecast import HybridTrainer
from pulsora.forecast.history import BlockMeans, drift
from pulsora.forecast.plan import Plan
from pulsora.forecast.weights import Weights

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STEPS = 200


def batches(epoch: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """A linear task, 25 batches of 16; the same for the same epoch."""
    generator = torch.Generator().manual_seed(epoch)
    teacher = torch.randn(8, 3, generator=torch.Generator().manual_seed(99))
    for _ in range(25):
        x = torch.randn(16, 8, generator=generator)
        yield x, x @ teacher + 0.1 * torch.randn(16, 3, generator=generator)


def squares(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return nn.functional.mse_loss(model(batch[0]), batch[1])


def make(model: nn.Module | None = None, lr: float = 0.05, **options: Any) -> HybridTrainer:
    if model is None:
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Dropout(0.1), nn.Linear(12, 3))
    optimizer = pl.optim.AnalogSGD(model.parameters(), lr=lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    return HybridTrainer(
        model, optimizer, squares, scheduler=scheduler, **({"steps": STEPS} | options)
    )


def lr_of(trainer: HybridTrainer) -> float:
    return float(trainer.optimizer.param_groups[0]["lr"])


def bits(model: nn.Module) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("steps", [200, 1000, 3001, 4000])
@pytest.mark.parametrize("saved", [0.0, 0.1, 0.3])
@pytest.mark.parametrize(
    ("jumping", "average"), [(True, True), (True, False), (False, True), (False, False)]
)
def test_phases_add_up(steps: int, saved: float, jumping: bool, average: bool) -> None:
    plan = Plan.of(steps, saved, jumping=jumping, average=average)
    assert plan.passes == steps - round(saved * steps)
    jumps = {done: plan.jump_after(done) for done in range(1, plan.passes + 1)}
    assert sum(jumps.values()) == sum(plan.jumps)
    assert [jump for jump in jumps.values() if jump] == [jump for jump in plan.jumps if jump]
    steps_of = [plan.step_of(done) for done in range(plan.passes + 1)]
    assert steps_of[0] == 0
    assert steps_of == sorted(steps_of)
    # Without an average the schedule is gone through to its end.
    assert (
        (steps_of[-1] == steps) if not average else (steps_of[-1] == plan.passes + sum(plan.jumps))
    )
    if jumping and saved:
        # Between two jumps lie two whole blocks, which begin at the jump.
        first = plan.warm_up + plan.full
        looks = [d for d in range(first + 1, first + plan.full + 1) if plan.looks_after(d)]
        assert len(looks) >= 2 * (plan.block // plan.every)
        assert looks[0] == first + plan.every
        assert plan.looks_after(first)


def test_phases_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="take 470 passes, but 350 are left of steps = 500"):
        Plan.of(500, 0.3, jumping=True, average=True, warm_up=35, full=40)
    for name, options in (
        ("saved must be at least 0 and below 1", {"saved": 1.0}),
        ("steps must be at least 1", {"steps": 0}),
        ("cycles must be at least 1", {"cycles": 0}),
        ("forecaster must be one of linear, gru, none", {"forecaster": "magic"}),
        ("alpha must be a positive number", {"alpha": -1.0}),
        ("rank must be at least 1", {"rank": 0}),
    ):
        with pytest.raises(ValueError, match=name):
            make(**options)


def test_blocks_longer_than_the_training_are_refused() -> None:
    """They would leave nothing to average, without a word."""
    with pytest.raises(ValueError, match="leave no block of weights and losses in 140 passes"):
        make(forecaster="none", full=1000)


def test_drift_of_a_straight_way_is_its_step() -> None:
    blocks = BlockMeans(samples=3, kept=8)
    direction = torch.tensor([1.0, -2.0])
    for sample in range(30):
        blocks.add([sample * direction], sample)
    assert len(blocks.means) == 8
    (found,) = drift(blocks, 4)
    torch.testing.assert_close(found, direction)
    blocks.shift([torch.tensor([5.0, 5.0])])  # a jump leaves the drift as it is
    torch.testing.assert_close(drift(blocks, 4)[0], direction)


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
    assert model.w.item() == pytest.approx(-0.01 * 400, rel=1e-4)
    assert all(jump.share == 1.0 for jump in report.jumps)
    assert all(jump.followed == pytest.approx(1.0) for jump in report.jumps)


def test_the_schedule_counts_steps_and_jumps() -> None:
    trainer = make(average=False)
    trainer.train(batches, progress=False)
    assert lr_of(trainer) == pytest.approx(0.0, abs=1e-9)
    averaged = make()
    averaged.train(batches, progress=False)
    at = 140 + sum(averaged.plan.jumps)
    assert lr_of(averaged) == pytest.approx(0.025 * (1 + math.cos(math.pi * at / STEPS)), rel=1e-4)
    stretched = make(forecaster="none", average=False)
    stretched.train(batches, passes=70, progress=False)
    assert lr_of(stretched) == pytest.approx(0.025, rel=1e-4)


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


def test_a_guard_stops_moves_that_harm() -> None:
    wild = make(alpha=1e4, average=False)
    report = wild.train(batches, progress=False)
    assert [jump.share for jump in report.jumps] == [0.0] * 10
    assert all(jump.followed is None for jump in report.jumps)
    assert report.guard_passes == 10 * 4 * 4
    blind = make(alpha=1e4, guard=False, average=False)
    with pytest.raises(ValueError, match="training diverged; lower the learning rate"):
        blind.train(batches, progress=False)


def test_losses_may_be_negative_or_zero() -> None:
    trainer = make()
    trainer.loss = lambda model, batch: squares(model, batch) - 40.0
    assert trainer._jumper is not None
    trainer._jumper._guard._loss = trainer.loss
    report = trainer.train(batches, progress=False)
    assert [jump.share for jump in report.jumps] == [1.0] * 10
    trainer.loss = lambda model, batch: 0.0 * squares(model, batch)
    assert str(trainer.report(batches(1000))).count("of the average") == 1


def test_a_guard_leaves_model_and_random_numbers_alone() -> None:
    trainer = make()
    trainer.train(batches, passes=30, progress=False)
    before, state = bits(trainer.model), torch.get_rng_state()
    mean = trainer._jumper._blocks.means[-1]
    trainer._jumper._guard(mean, [torch.ones_like(value) for value in mean])
    assert bits(trainer.model) == before
    assert torch.equal(torch.get_rng_state(), state)


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
    for part in ("140 of 140 backward passes, in place of 200 (30% saved)", "10 jumps (linear)",
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
    make(model, forecaster="none", average=False)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_training_on_a_gpu_saves_and_goes_on(tmp_path: Path) -> None:
    def made() -> HybridTrainer:
        torch.manual_seed(1)
        layers = nn.Sequential(nn.Linear(8, 6), nn.Dropout(0.1), nn.Linear(6, 3)).cuda()
        device = pl.devices.ConstantStep(w_max_dtod=0.0, w_min_dtod=0.0)
        model = pl.convert_to_analog(layers, pl.SingleConfig(device=device), exclude=["0"])
        return make(model, rank=2)

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
