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
        share: 1 for a move that was made, 0 for one that was left out.
        before: Loss at the mean of the weights over the latest blocks, on the guard's batches; None
            without a guard.
        moved: Loss at that mean plus the move.
        followed: Cosine of the move with the drift of the weights thereafter; None until known, and
            for moves that were left out.
        needed: The fall from `before` to `moved` that the move needed to be made.
        factor: By which corrections changed the size of the predicted move.
    """

    after: int
    steps: int
    share: float
    before: float | None = None
    moved: float | None = None
    followed: float | None = None
    needed: float | None = None
    factor: float = 1.0


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
        jumping_ended: Why no more jumps were made from some pass on; empty if they were.
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
    jumping_ended: str = ""

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
            return [f"no jumps: {self.jumping_ended}" if self.jumping_ended else "no jumps"]
        made = [jump for jump in self.jumps if jump.share]
        steps = sum(jump.steps for jump in made)
        lines = [f"{len(made)} jumps ({self.forecaster}) for {steps} steps"]
        if len(made) < len(self.jumps):
            left_out = len(self.jumps) - len(made)
            lines[0] += f"; {left_out} left out (two predictions in a row must help)"
        if self.jumping_ended:
            last = self.jumps[-1].after
            lines.append(f"no jumps after pass {last}: {self.jumping_ended}")
        gains = [
            (f"{(jump.moved - jump.before) / abs(jump.before):+.1%}", jump)
            for jump in self.jumps
            if jump.before and jump.moved is not None
        ]
        for text, those in (("made", True), ("left out", False)):
            found = [gain for gain, jump in gains if bool(jump.share) == those]
            if found:
                lines.append(f"loss with a jump beside without, {text}: {', '.join(found)}")
        factors = [jump.factor for jump in self.jumps]
        if any(factor != 1.0 for factor in factors):
            shown = ", ".join(f"{factor:.2f}" for factor in factors)
            lines.append(f"sizes of moves after corrections, beside predicted: {shown}")
        known = [jump.followed for jump in self.jumps if jump.followed is not None]
        if known:
            mean = sum(known) / len(known)
            lines.append(f"the weights then drifted the way they had jumped: cosine {mean:.2f}")
        if not made and self.plan.averaged:
            lines.append("so this run is averaging alone (forecaster='none')")
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
        if any(jump.share for jump in self.jumps):
            lines.append("  forecaster='none': averaging alone, which often comes close")
        if self.jumps and self.forecaster != "linear":
            lines.append("  forecaster='linear': the drift of block means, continued")
        if self.jumps or self.plan.averaged:
            lines.append(
                "  forecaster='none', average=False: the plain training with its schedule stretched"
            )
        return lines if len(lines) > 1 else ["this is a control itself: the plain training"]
