"""Training with predicted steps: phases, jumps, average, guard, saved files, analog models."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import pulsora as pl
from pulsora.forecast import HybridTrainer
from pulsora.forecast.batches import Stream
from pulsora.forecast.guard import Trial
from pulsora.forecast.history import BlockMeans, drift
from pulsora.forecast.plan import Place, Plan
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
    steps_of = [Place(plan).step_of(done) for done in range(plan.passes + 1)]
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
    # The first prediction helps, but is the first that does.
    assert [jump.share for jump in report.jumps] == [0.0] + 9 * [1.0]
    assert report.jumps[0].needed is not None
    assert model.w.item() == pytest.approx(-0.01 * (400 - report.jumps[0].steps), rel=1e-4)
    assert all(jump.followed == pytest.approx(1.0) for jump in report.jumps[1:])


def test_the_schedule_counts_steps_and_jumps() -> None:
    trainer = make(average=False)
    trainer.train(batches, progress=False)
    assert lr_of(trainer) == pytest.approx(0.0, abs=1e-9)
    averaged = make()
    averaged.train(batches, progress=False)
    made = averaged.report().jumps
    assert any(jump.share for jump in made)
    at = 140 + sum(jump.steps for jump in made if jump.share)
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


@pytest.mark.parametrize("left_out", [[], [1], [1, 2, 3], [4, 7, 10], list(range(1, 11))])
def test_a_schedule_without_an_average_ends_with_the_passes(left_out: list[int]) -> None:
    plan = Plan.of(1000, 0.3, jumping=True, average=False)
    place, steps = Place(plan), []
    for done in range(1, plan.passes + 1):
        if plan.jump_after(done) and place.jumping and plan.jumps_by(done) in left_out:
            place.leave_out(done)
            if left_out == [1, 2, 3] and plan.jumps_by(done) == 3:
                place.stop(done)
        steps.append(place.step_of(done))
    assert steps[-1] == 1000
    assert steps == sorted(steps)
    skips = [b - a for a, b in itertools.pairwise(steps) if b - a > 5]
    assert len(skips) == (0 if left_out == [1, 2, 3] else 10 - len(left_out))


def test_with_an_average_only_jumps_skip_steps() -> None:
    plan = Plan.of(1000, 0.3, jumping=True, average=True)
    place = Place(plan)
    for done in range(1, plan.passes + 1):
        if plan.jumps_by(done) in {2, 5} and plan.jump_after(done):
            place.leave_out(done)
    stopped = Place(plan)
    stopped.stop(400)
    first = stopped.step_of(400)
    ahead = sum(plan.jumps[: plan.jumps_by(400)])
    assert first == 400 + ahead > 440
    assert stopped.step_of(401 + ahead) == first + (ahead + 1) // 2
    assert stopped.step_of(400 + 2 * ahead) == 400 + 2 * ahead
    assert stopped.step_of(plan.passes) == plan.passes
    again = Place(plan)
    again.load_state_dict(place.state_dict())
    made = sum(plan.jumps) - plan.jumps[1] - plan.jumps[4]
    assert again.step_of(plan.passes) == place.step_of(plan.passes) == plan.passes + made


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
