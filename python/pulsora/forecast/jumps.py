"""Jumps: predicted moves of the weights, as far as a guard lets them pass."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from pulsora.forecast.corrections import circumstances, compare
from pulsora.forecast.history import BlockMeans, History, cosine, drift, match, windows
from pulsora.forecast.report import Jump

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from pulsora.forecast.corrections import Corrector, Key
    from pulsora.forecast.forecasters import Forecaster
    from pulsora.forecast.guard import Guard
    from pulsora.forecast.plan import Plan
    from pulsora.forecast.weights import Weights

    Values = list[Tensor]

__all__ = ["Jumper"]

_REFUSALS = 3  # jumps in a row that do not help, after which there are no more


class Jumper:
    """Keeps the history of the weights, and moves them as a forecaster predicts where that helps.

    With a guard, a move is made if it helps and the prediction before would have helped, too.
    Three predictions in a row that do not help end the jumps. So does a jump after whose writing to
    tiles the loss is not lower. The history is dropped then. With a guard, tiles with adapters
    are not moved.

    Args:
        forecaster: Predicts the moves.
        plan: Times of the jumps.
        weights: The weights.
        guard: Tries each move before it is made; None makes all of them.
        corrector: Changes the size of moves; None leaves them as they are predicted.

    Raises:
        ValueError: if the first jump comes before the forecaster has the blocks that it needs.
    """

    def __init__(
        self,
        forecaster: Forecaster,
        plan: Plan,
        weights: Weights,
        guard: Guard | None,
        corrector: Corrector | None = None,
    ) -> None:
        blocks = (plan.warm_up + plan.full) // plan.block
        if blocks < forecaster.least:
            raise ValueError(
                f"warm_up = {plan.warm_up} and full = {plan.full} make {blocks} blocks of "
                f"{plan.block} passes before the first jump, but the forecaster "
                f"{forecaster.name!r} needs {forecaster.least}; make warm_up longer"
            )
        self.jumps: list[Jump] = []
        self.pulses = 0  # pulses that wrote jumps
        self.ended = ""  # why there are no more jumps
        if guard is not None and weights.adapted:
            self.ended = "each would end a cycle of the tiles' adapters early, at their cost"
        self._forecaster = forecaster
        self._plan = plan
        self._weights = weights
        self._guard = guard
        self._corrector = corrector
        self._half = forecaster.blocks // 2  # half a cycle, in blocks
        self._window = 2 * forecaster.blocks  # over which means are taken for the guard
        self._helped = False  # whether the latest prediction did, or would have done
        self._refused = 0  # latest predictions in a row that did not help
        self._blocks = BlockMeans(plan.block // plan.every, forecaster.kept)
        self._moved: Values = []
        # The latest prediction, per pass, and its circumstances, until the next block has come.
        self._predicted: Values = []
        self._key: Key | None = None

    @property
    def guard_passes(self) -> int:
        """Forward passes of the guard, in mini-batches."""
        return 0 if self._guard is None else self._guard.passes

    def look(self, values: Values, done: int) -> None:
        """Adds the weights after `done` passes to the history."""
        if not self.ended and self._blocks.add(values, done):
            self._compare()
            self._follow_up(done)

    def _compare(self) -> None:
        """Lets the corrector compare the latest prediction with the first block after it."""
        if self._corrector is not None and self._key is not None:
            ratio = compare(self._predicted, self._blocks)
            self._corrector.learn(self._key, self.jumps[-1].after, ratio)
        self._predicted, self._key = [], None

    def _follow_up(self, done: int) -> None:
        """Compares a jump with the drift of the weights in the cycle after it."""
        if not self._moved or done - self.jumps[-1].after < 2 * self._half * self._plan.block:
            return
        followed = cosine(self._moved, drift(self._blocks, self._half))
        self.jumps[-1] = dataclasses.replace(self.jumps[-1], followed=followed)
        self._moved = []

    def jump(
        self,
        done: int,
        steps: int,
        losses: list[float],
        rates: Callable[[Sequence[int]], list[float]],
    ) -> bool:
        """Moves the weights by the prediction of the forecaster if that helps; tells whether.

        Args:
            done: Passes made so far.
            steps: Steps that the jump replaces.
            losses: Losses of blocks, as in `History`.
            rates: Learning rates, as in `History`.
        """
        history = History(self._blocks, losses, self._plan.block, rates)
        deltas, factor = self._corrected(history, done, steps)
        jump = Jump(done, steps, 1.0, factor=factor)
        if self._guard is not None:
            early, late, passed = windows(self._blocks, self._window)
            trial = self._guard(early, late, deltas, steps / passed)
            share = 1.0 if trial.helps and self._helped else 0.0
            jump = dataclasses.replace(jump, share=share, **trial._asdict())
            self._helped = trial.helps
            self._refused = 0 if trial.helps else self._refused + 1
        self.jumps.append(jump)
        self._moved = []
        if jump.share:
            self._moved = deltas
            self._write(deltas)
            self._blocks.shift(deltas)
        self._blocks.restart()
        if self._refused == _REFUSALS:
            self.ended = f"{_REFUSALS} predictions in a row would not have lowered the loss enough"
        if self.ended:
            self._blocks = BlockMeans(self._blocks.samples, self._blocks.kept)
        return bool(jump.share)

    def _corrected(self, history: History, done: int, steps: int) -> tuple[Values, float]:
        """The predicted move, corrected, and the factor of the correction."""
        deltas = self._forecaster(history, steps)
        if self._corrector is None:
            return deltas, 1.0
        self._predicted = [delta / steps for delta in deltas]
        self._key = circumstances(history, done / self._plan.passes, steps)
        factor = self._corrector.factor(self._key, done)
        return [factor * delta for delta in deltas], factor

    def _write(self, deltas: Values) -> None:
        """Moves the weights; ends the jumps if pulses have spoilt the move."""
        tried = self._guard if self._weights.arrays else None
        start = self._weights.read() if tried else []
        before = self._weights.pulses
        self._weights.move(deltas)
        self.pulses += self._weights.pulses - before
        if tried:
            first, then = tried.losses(start, self._weights.read())
            if not bool(then.mean() < first.mean()):
                self.ended = "the latest jump, as pulses wrote it, did not lower the loss"

    def state_dict(self) -> dict[str, Any]:
        """The state, as plain values and tensors."""
        return {
            "jumps": [dataclasses.astuple(jump) for jump in self.jumps],
            "guard_passes": self.guard_passes,
            "pulses": self.pulses,
            "moved": self._moved,
            "refused": self._refused,
            "helped": self._helped,
            "ended": self.ended,
            "predicted": self._predicted,
            "key": None if self._key is None else self._key.tolist(),
            "corrector": None if self._corrector is None else self._corrector.state_dict(),
            "blocks": self._blocks.state_dict(),
        }

    def load_state_dict(self, saved: Mapping[str, Any], like: Values) -> None:
        """Restores a saved state, for weights like `like`.

        Raises:
            ValueError: if the state is of other weights; nothing has changed then.
        """
        moved, blocks = match(saved["moved"], like), self._blocks.loaded(saved["blocks"], like)
        predicted = match(saved.get("predicted", []), like)
        jumps = [Jump(*values) for values in saved["jumps"]]
        if self._corrector is not None:
            self._corrector.load_state_dict(saved["corrector"])
        key = saved.get("key")
        self._predicted, self._key = predicted, None if key is None else np.float32(key)
        self._moved, self._blocks, self.jumps = moved, blocks, jumps
        self.pulses = int(saved["pulses"])
        self._helped = bool(saved.get("helped", False))
        self._refused, self.ended = int(saved.get("refused", 0)), str(saved.get("ended", ""))
        if self._guard is not None:
            self._guard.passes = int(saved["guard_passes"])
