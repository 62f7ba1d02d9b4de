"""The plan of a training with predicted steps: phases, blocks, the schedule."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from forecast_training import STEPS, batches, lr_of, make
from pulsora.forecast.history import BlockMeans, drift
from pulsora.forecast.plan import Place, Plan


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
