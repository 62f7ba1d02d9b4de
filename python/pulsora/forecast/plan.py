"""Plan of a training: which steps are made, predicted, or left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pulsora._internal.checks import require_at_least

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Place", "Plan"]

_WARM_UP = 0.1  # share of the steps before the first cycle
_FULL = 0.0375  # share of the steps between two jumps
_CYCLES = 10
_JUMPED = 0.6  # share of the saved steps that jumps replace where an average replaces the others
_AVERAGED = 0.1  # share of the passes at the end whose weights are averaged
_SAMPLES = 15  # samples of the weights in a block


@dataclass(frozen=True)
class Plan:
    """Phases of a training: warm-up, cycles of full training and a jump, full training to the end.

    Attributes:
        steps: Length of the training that is replaced, and of its schedule of learning rates.
        passes: Backward passes that are made instead.
        warm_up: Passes before the first cycle.
        full: Passes of a cycle, before its jump.
        jumps: For each cycle, the steps that its jump replaces.
        averaged: Passes at the end over whose weights the mean is taken; 0 for none.
        every: Passes from one sample of the weights to the next.
        block: Passes of a block, over which the mean of the weights is taken.
    """

    steps: int
    passes: int
    warm_up: int
    full: int
    jumps: tuple[int, ...]
    averaged: int
    every: int
    block: int

    @property
    def cycles(self) -> int:
        """Number of jumps."""
        return len(self.jumps)

    @classmethod
    def of(
        cls,
        steps: int,
        saved: float,
        *,
        jumping: bool,
        average: bool,
        warm_up: int | None = None,
        full: int | None = None,
        cycles: int | None = None,
        blocks: int = 2,
    ) -> Plan:
        """The plan for a training of that many steps.

        Args:
            steps: Length of the training.
            saved: The share of the backward passes that is to be saved.
            jumping: Whether there are jumps.
            average: Whether weights are averaged at the end.
            warm_up: Passes before the first cycle; by default a tenth of the steps.
            full: Passes between two jumps; by default 3.75 % of the steps.
            cycles: Number of jumps, 10 by default.
            blocks: Number of blocks of a cycle.

        Raises:
            ValueError: for numbers out of range, and for phases that are together longer than the
                passes.
        """
        require_at_least("steps", steps, 1)
        if not 0.0 <= saved < 1.0:
            raise ValueError(f"saved must be at least 0 and below 1 (got {saved})")
        passes = steps - round(saved * steps)
        warm_up = round(_WARM_UP * steps) if warm_up is None else warm_up
        full = max(round(_FULL * steps), blocks) if full is None else full
        cycles = _CYCLES if cycles is None else cycles
        require_at_least("warm_up", warm_up, 0)
        require_at_least("full", full, blocks)
        require_at_least("cycles", cycles, 1)
        averaged = max(round(_AVERAGED * passes), 1) if average else 0
        saved_steps = steps - passes
        jumped = round(_JUMPED * saved_steps) if average else saved_steps
        if not jumping:
            jumped = 0
        if jumped == 0:
            jumps: tuple[int, ...] = ()
        else:
            jumps = tuple(
                jumped * (cycle + 1) // cycles - jumped * cycle // cycles for cycle in range(cycles)
            )
            needed = warm_up + cycles * full + averaged
            if needed > passes:
                raise ValueError(
                    f"warm_up = {warm_up}, {cycles} cycles of full = {full} and {averaged} "
                    f"averaged passes take {needed} passes, but {passes} are left of steps = "
                    f"{steps} with saved = {saved:g}; make phases shorter, or save less"
                )
        block = max(full // blocks, 1)
        if warm_up + block > passes:
            raise ValueError(
                f"warm_up = {warm_up} and full = {full} leave no block of weights and losses in "
                f"{passes} passes; make them shorter"
            )
        every = max(block // _SAMPLES, 1)
        return cls(steps, passes, warm_up, full, jumps, averaged, every, block // every * every)

    def looks_after(self, done: int) -> bool:
        """Whether the weights are sampled for the history after pass `done`.

        Blocks end at the first jump, and begin at every jump.
        """
        first = self.warm_up + self.full
        start = first % self.block
        if done > first:
            start = self.warm_up + self.full * min(
                (done - 1 - self.warm_up) // self.full, self.cycles
            )
        return done > start and (done - start) % self.every == 0

    def jump_after(self, done: int) -> int:
        """Steps that the jump after pass `done` (counted from 1) replaces; 0 without a jump."""
        return sum(self.jumps[self.jumps_by(done - 1) : self.jumps_by(done)])

    def jumps_by(self, done: int) -> int:
        """Number of jumps planned after pass `done` or earlier."""
        return min(max((done - self.warm_up) // self.full, 0), self.cycles)

    def phase(self, done: int) -> str:
        """The phase after `done` passes, in a word or two."""
        if done >= self.passes:
            return "done"
        if self.averaged and done >= self.passes - self.averaged:
            return "averaging"
        if not self.jumps:
            return "training"
        if done < self.warm_up:
            return "warm-up"
        cycle = (done - self.warm_up) // self.full + 1
        return f"cycle {cycle} of {self.cycles}" if cycle <= self.cycles else "finish"


class Place:
    """The place in the schedule of learning rates, which passes and jumps advance.

    With an average, a pass is a step. Once jumping has stopped, a pass is half a step until there
    are no more steps than passes, as with averaging alone: the early jumps then do not shorten the
    schedule. Without an average, the steps that no jump replaces are spread over the passes that
    are left, so that the schedule ends with the last pass.

    Args:
        plan: The phases.
        jumping: Whether the jumps of the plan are to come.
    """

    def __init__(self, plan: Plan, *, jumping: bool = True) -> None:
        self.jumping = jumping
        self._plan = plan
        self._done, self._step = 0, 0  # the latest jump that was left out, and the step there

    def step_of(self, done: int) -> int:
        """The step after pass `done`, the latest or a later one, and the jump that follows it."""
        plan = self._plan
        first = plan.jumps_by(self._done)
        jumps = plan.jumps[first:] if self.jumping else ()
        made = sum(jumps[: plan.jumps_by(done) - first])
        passed = done - self._done
        if plan.averaged and not self.jumping:
            return max(self._step + passed // 2, done)
        if not plan.averaged and plan.passes > self._done:
            left = plan.steps - self._step - sum(jumps)
            passed = passed * left // (plan.passes - self._done)
        return self._step + passed + made

    def leave_out(self, done: int) -> None:
        """Notes that the jump after pass `done`, the latest, is not made."""
        self._step = self.step_of(done) - self._plan.jump_after(done)
        self._done = done

    def stop(self, done: int) -> None:
        """Notes that no jump follows pass `done`, the latest."""
        self._step, self._done = self.step_of(done), done
        self.jumping = False

    def state_dict(self) -> dict[str, Any]:
        """The state, as plain values."""
        return {"done": self._done, "step": self._step, "jumping": self.jumping}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restores a saved state."""
        self._done, self._step = int(saved["done"]), int(saved["step"])
        self.jumping = bool(saved["jumping"])
