"""Jumps: predicted moves of the weights, as far as a guard lets them pass."""

from __future__ import annotations

import copy
import dataclasses
from typing import TYPE_CHECKING, Any

from pulsora.forecast.history import BlockMeans, History, cosine, drift, match
from pulsora.forecast.report import Jump

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor, nn

    from pulsora.forecast.batches import Stream
    from pulsora.forecast.forecasters import Forecaster
    from pulsora.forecast.plan import Plan
    from pulsora.forecast.weights import Weights

    Values = list[Tensor]

__all__ = ["Guard", "Jumper"]

_BATCHES = 4
_LIMIT = 0.03  # largest relative rise of the loss at the moved mean
_HALVINGS = 2


class Guard:
    """Tries moves of the weights on a copy of the model, by forward passes of four mini-batches.

    Args:
        model: The model.
        loss: A function of the model and a batch.
        weights: The weights of the model.
        stream: Source of the batches, which are used up.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[[nn.Module, Any], Tensor],
        weights: Weights,
        stream: Stream,
    ) -> None:
        self.passes = 0  # forward passes so far
        self._model = model
        self._loss = loss
        self._weights = weights
        self._stream = stream

    def __call__(self, mean: Values, deltas: Values) -> tuple[float, float, float]:
        """Accepted share of a move, and the losses at the mean of the weights and at its end."""
        twin = copy.deepcopy(self._model)
        batches = [self._stream.next() for _ in range(_BATCHES)]

        def loss_at(values: Values) -> float:
            self.passes += len(batches)
            return self._weights.loss_at(
                twin, values, lambda batch: self._loss(twin, batch), batches
            )

        before = loss_at(mean)
        for halvings in range(_HALVINGS + 1):
            share = 0.5**halvings
            moved = loss_at(
                [value + share * delta for value, delta in zip(mean, deltas, strict=True)]
            )
            if moved <= before + _LIMIT * abs(before):
                return share, before, moved
        return 0.0, before, before


class Jumper:
    """Keeps the history of the weights, and moves them as a forecaster predicts.

    Args:
        forecaster: Predicts the moves.
        plan: Times of the jumps.
        weights: The weights.
        guard: Tries each move before it is made; None makes all moves.

    Raises:
        ValueError: if the first jump comes before the forecaster has the blocks that it needs.
    """

    def __init__(
        self, forecaster: Forecaster, plan: Plan, weights: Weights, guard: Guard | None
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
        self._forecaster = forecaster
        self._plan = plan
        self._weights = weights
        self._guard = guard
        self._half = forecaster.blocks // 2  # half a cycle, in blocks
        self._blocks = BlockMeans(plan.block // plan.every, forecaster.kept)
        self._moved: Values = []

    @property
    def guard_passes(self) -> int:
        """Forward passes of the guard, in mini-batches."""
        return 0 if self._guard is None else self._guard.passes

    def look(self, values: Values, done: int) -> None:
        """Adds the weights after `done` passes to the history."""
        if self._blocks.add(values, done):
            self._follow_up(done)

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
    ) -> None:
        """Moves the weights by the prediction of the forecaster.

        Args:
            done: Passes made so far.
            steps: Steps that the jump replaces.
            losses: Losses of blocks, as in `History`.
            rates: Learning rates, as in `History`.
        """
        before = self._weights.pulses
        history = History(self._blocks, losses, self._plan.block, rates)
        deltas = self._forecaster(history, steps)
        jump = Jump(done, steps, 1.0)
        if self._guard is not None:
            jump = Jump(done, steps, *self._guard(self._blocks.latest(self._half), deltas))
        self._moved = []
        if jump.share > 0.0:
            self._moved = [jump.share * delta for delta in deltas]
            self._weights.move(self._moved)
            self._blocks.shift(self._moved)
        self._blocks.restart()
        self.jumps.append(jump)
        self.pulses += self._weights.pulses - before

    def state_dict(self) -> dict[str, Any]:
        """The state, as plain values and tensors."""
        return {
            "jumps": [dataclasses.astuple(jump) for jump in self.jumps],
            "guard_passes": self.guard_passes,
            "pulses": self.pulses,
            "moved": self._moved,
            "blocks": self._blocks.state_dict(),
        }

    def load_state_dict(self, saved: Mapping[str, Any], like: Values) -> None:
        """Restores a saved state, for weights like `like`.

        Raises:
            ValueError: if the state is of other weights; nothing has changed then.
        """
        moved, blocks = match(saved["moved"], like), self._blocks.loaded(saved["blocks"], like)
        jumps = [Jump(*values) for values in saved["jumps"]]
        self._moved, self._blocks, self.jumps = moved, blocks, jumps
        self.pulses = int(saved["pulses"])
        if self._guard is not None:
            self._guard.passes = int(saved["guard_passes"])
