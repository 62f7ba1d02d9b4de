"""Report of a training with predicted steps, and the evidence for or against the prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulsora.forecast.plan import Plan

__all__ = ["Jump", "Report"]


@dataclass(frozen=True)
class Jump:
    """One predicted move of the weights.

    Attributes:
        after: Number of the pass that it followed.
        steps: Steps that the move replaces.
        share: The share of the predicted move that the guard accepted, 1 for all.
        before: Loss at the mean of the latest block, on the guard's batches; None without a guard.
        moved: Loss at that mean plus the accepted share of the move.
        followed: Cosine of the move with the drift of the weights thereafter; None until known.
    """

    after: int
    steps: int
    share: float
    before: float | None = None
    moved: float | None = None
    followed: float | None = None


@dataclass(frozen=True)
class Report:
    """Results of a training. Print it for a summary.

    Attributes:
        plan: The phases.
        forecaster: The forecaster that predicted the moves.
        passes: Backward passes made so far.
        guard_passes: Forward passes of the guard, in mini-batches.
        jumps: Every predicted move.
        pulses: Pulses of all tiles, 0 without tiles.
        pulses_of_jumps: Pulses that wrote predicted moves.
        pulses_of_average: Pulses that wrote the average.
        last: Loss of the last weights, on batches given for it; None without batches.
        averaged: Loss of the averaged weights on the same batches; None without an average.
        stopped: Whether the training ends early, because the forecast left too little to be gained.
    """

    plan: Plan
    forecaster: str
    passes: int
    guard_passes: int
    jumps: tuple[Jump, ...]
    pulses: int
    pulses_of_jumps: int
    pulses_of_average: int
    last: float | None = None
    averaged: float | None = None
    stopped: bool = False

    def __str__(self) -> str:
        return "\n".join([*self._done(), *self._moves(), *self._end(), *self._controls()])

    def _done(self) -> list[str]:
        plan = self.plan
        saved = 1.0 - plan.passes / plan.steps
        made = f"{self.passes} of {plan.passes} backward passes, in place of {plan.steps}"
        lines = [f"{made} ({saved:.0%} saved); {self.guard_passes} forward passes of the guard"]
        if self.stopped:
            lines.append("it ends early, because its forecast left too little to be gained")
        if self.pulses:
            lines.append(
                f"{self.pulses} pulses: {self.pulses_of_jumps} wrote jumps, "
                f"{self.pulses_of_average} the average"
            )
        return lines

    def _moves(self) -> list[str]:
        if not self.jumps:
            return ["no jumps"]
        steps = sum(jump.steps for jump in self.jumps)
        kept = sum(jump.share for jump in self.jumps) / len(self.jumps)
        lines = [f"{len(self.jumps)} jumps ({self.forecaster}) for {steps} steps"]
        guarded = [jump for jump in self.jumps if jump.before is not None]
        if guarded:
            lines.append(f"the guard let {kept:.0%} of them pass")
        seen = [
            (jump.moved - jump.before) / abs(jump.before)
            for jump in guarded
            if jump.before and jump.moved is not None and jump.share
        ]
        if seen:
            lines[-1] += (
                f"; on its batches a jump alone changed the loss by {sum(seen) / len(seen):+.1%} "
                "on average"
            )
        known = [jump.followed for jump in self.jumps if jump.followed is not None]
        if known:
            mean = sum(known) / len(known)
            lines.append(f"the weights then drifted the way they had jumped: cosine {mean:.2f}")
        return lines

    def _end(self) -> list[str]:
        if self.last is None:
            return []
        if self.averaged is None:
            return [f"loss of the last weights {self.last:.4g}"]
        text = (
            f"loss of the last weights {self.last:.4g}, of the average over the last "
            f"{self.plan.averaged} passes {self.averaged:.4g}"
        )
        if self.last:
            change = (self.averaged - self.last) / abs(self.last)
            text += f" ({abs(change):.1%} {'more' if change > 0.0 else 'less'})"
        return [text]

    def _controls(self) -> list[str]:
        lines = ["controls, each a run of its own with as many passes:"]
        if self.jumps:
            lines.append("  forecaster='none': averaging alone, which often comes close")
        if self.jumps and self.forecaster != "linear":
            lines.append("  forecaster='linear': the drift of block means, continued")
        if self.jumps or self.plan.averaged:
            lines.append(
                "  forecaster='none', average=False: the plain training with its schedule stretched"
            )
        return lines if len(lines) > 1 else ["this is a control itself: the plain training"]
