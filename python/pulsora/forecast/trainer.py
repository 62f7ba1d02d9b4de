"""Training in which predicted moves of the weights, and an average, replace backward passes."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any, Literal

from pulsora._internal.checks import require_at_least, require_positive
from pulsora.forecast.batches import Stream, normalise_anew, require_finite_loss, require_scalar
from pulsora.forecast.checkpoint import load, save
from pulsora.forecast.corrections import corrector_of
from pulsora.forecast.forecasters import forecaster_of
from pulsora.forecast.guard import Guard
from pulsora.forecast.history import Mean, match
from pulsora.forecast.jumps import Jumper
from pulsora.forecast.loss_curve.forecast import forecast_loss, leaves_less
from pulsora.forecast.plan import Place, Plan
from pulsora.forecast.progress import bar, status
from pulsora.forecast.report import Report
from pulsora.forecast.schedule import rates_ahead, require_schedule
from pulsora.forecast.weights import Weights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from os import PathLike

    import torch
    from torch import Tensor, nn
    from torch.optim.lr_scheduler import LRScheduler

    from pulsora.forecast.checkpoint import Stateful
    from pulsora.forecast.forecasters import Forecaster
    from pulsora.forecast.gru.ensemble import Ensemble
    from pulsora.forecast.loss_curve.forecast import LossForecast

    Values = list[Tensor]

__all__ = ["HybridTrainer"]

_PLAIN = ("end", "passes", "step", "pulses_of_average")


class HybridTrainer:
    """Trains a model with fewer backward passes than the training it replaces.

    A warm-up is followed by cycles of full training, each with a predicted move of the weights
    ("jump") at its end, and then by full training to the end. The mean of the weights over the last
    tenth of the passes is the result. A jump advances the schedule of learning rates by the steps
    that it replaces. Models may be digital, analog or mixed: weights in tiles are moved by pulses.

    The default forecaster, "linear", continues the drift between the means of earlier and later
    blocks of training; nothing that was tried is better. "gru" lets a trained recurrent ensemble
    continue the main directions of these means (`GRUForecaster`), with 33 copies of the weights.
    A jump is made only if forward passes show that it helps; without any, the training is averaging
    alone (forecaster="none"). docs/explain/forecasts.md has results.

    Args:
        model: A module of torch, in training mode.
        optimizer: Its optimiser; one of pulsora.optim if the model has analog layers.
        loss: A function of the model and a batch that gives the loss, a tensor without dimensions.
        steps: Mini-batches of the training that is replaced, for which the scheduler is made.
        saved: The share of its backward passes that is saved, from 0 to below 1.
        scheduler: A scheduler of torch that counts mini-batches, if the learning rate changes.
        forecaster: "linear"; "gru"; another forecaster, such as `GRUForecaster(ensemble)`; or
            "none", which moves no weights: with `average`, the schedule then ends early; without,
            it is stretched over the passes.
        average: Whether the mean of the weights over the last tenth of the passes is the result.
        cycles: Number of jumps.
        warm_up: Passes before the first cycle; by default a tenth of the steps.
        full: Passes between two jumps; by default 3.75 % of the steps.
        alpha: Factor of the predicted moves; by default the forecaster's own.
        guard: Whether jumps that do not help are left out, and the schedule does not skip steps
            there; models with adapters get no jumps. A jump helps if it lowers the loss by more
            than two standard errors, and by at least half of what as many steps gained before. The
            loss is taken at means of the weights, with forward passes of the next four batches.
            The prediction before must have passed this test as well. Three in a row that do not
            end the jumps; so does a jump that pulses spoil.
        corrections: Factors for predicted moves, learned by comparing each prediction with the
            next block of training: "scale", the factor that fits all earlier ones best; "memory",
            up to a fifth more or less by circumstances (`ResidualMemory`); or "none".
        rank: None sends moves of weights in tiles column by column, which takes the fewest pulses.
            A number cuts them to this rank, sent as so many outer products, which takes fewer pulse
            trains.
        before_step: Called between each backward pass and the optimiser's step, as for clipping.
        stop_below: Stops early, after averaging, once the predicted further fall of the training
            loss is below this share of the loss; None: never.

    Raises:
        TypeError: for an optimiser or a scheduler that cannot go on mini-batch by mini-batch.
        ValueError: for values out of range, for phases that do not fit into the passes, for an
            optimiser of another model, and for a scheduler of another optimiser.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: Callable[[nn.Module, Any], Tensor],
        *,
        steps: int,
        saved: float = 0.3,
        scheduler: LRScheduler | None = None,
        forecaster: str | Forecaster = "linear",
        average: bool = True,
        cycles: int | None = None,
        warm_up: int | None = None,
        full: int | None = None,
        alpha: float | None = None,
        guard: bool = True,
        corrections: str = "none",
        rank: int | None = None,
        before_step: Callable[[], object] | None = None,
        stop_below: float | None = None,
    ) -> None:
        for name, value in {"alpha": alpha, "stop_below": stop_below}.items():
            if value is not None:
                require_positive(name, value)
        if rank is not None:
            require_at_least("rank", rank, 1)
        require_schedule(scheduler, optimizer)
        made, corrector = forecaster_of(forecaster, alpha), corrector_of(corrections)
        self.plan = Plan.of(
            steps, saved, jumping=made is not None, average=average,
            warm_up=warm_up, full=full, cycles=cycles, blocks=2 if made is None else made.blocks,
        )  # fmt: skip
        self.model = model
        self.optimizer = optimizer
        self.loss = loss
        self.scheduler = scheduler
        self.forecaster = "none" if made is None else made.name
        self._before_step = before_step
        self._stop_below = stop_below
        self._weights = Weights(model, optimizer, rank)
        if self.plan.averaged or (self.plan.jumps and not guard):
            self._weights.warn_of_adapters()
        self._stream = Stream()
        self._jumper: Jumper | None = None
        if made is not None and self.plan.jumps:
            tried = Guard(model, loss, self._weights, self._stream) if guard else None
            self._jumper = Jumper(made, self.plan, self._weights, tried, corrector)
        self._forecasts = repr(made) + ("" if corrector is None else f", {corrections=}")
        self._place = Place(self.plan, jumping=self._jumper is None or not self._jumper.ended)
        self._mean = Mean()
        self._last: Values = []
        self._end = self.plan.passes
        self._passes = 0
        self._step = 0
        self._losses: list[float] = []
        self._rates: list[float] = []  # learning rates of the last passes of these blocks
        self._running: Tensor | None = None
        self._pulses_of_average = 0

    @property
    def passes(self) -> int:
        """Backward passes made so far."""
        return self._passes

    @property
    def done(self) -> bool:
        """Whether the training is over."""
        return self._passes >= self._end

    @property
    def _rate(self) -> float:
        """The present learning rate, of the first group of parameters."""
        return float(self.optimizer.param_groups[0]["lr"])

    @property
    def losses(self) -> tuple[float, ...]:
        """Mean training losses of blocks of `plan.block` passes."""
        return tuple(self._losses)

    def train(
        self,
        batches: Iterable[Any] | Callable[[int], Iterable[Any]],
        *,
        passes: int | None = None,
        progress: bool = True,
    ) -> Report:
        """Trains to the end, or for a number of passes.

        Args:
            batches: An iterable that is gone through anew in every epoch, such as a DataLoader, or
                a function that gives the batches of an epoch, counted from 0. For an exact resume
                they must be the same for the same epoch.
            passes: How many more backward passes to make; None goes on to the end.
            progress: Whether to show a line with phase, passes and savings.

        Returns:
            The report so far.

        Raises:
            ValueError: if the loss is not finite (training diverged), or there are no batches.
        """
        if passes is not None:
            require_at_least("passes", passes, 1)
        until = self._end if passes is None else min(self._passes + passes, self._end)
        self._stream.open(batches)
        with contextlib.closing(self._stream), bar(self.plan.passes, shown=progress) as show:
            show(self._passes, status(self.plan, self._passes, self._step, self._losses))
            while self._passes < min(until, self._end):
                self._make_pass(self._stream.next())
                show(self._passes, status(self.plan, self._passes, self._step, self._losses))
        return self.report()

    def _make_pass(self, batch: Any) -> None:  # noqa: ANN401 - whatever the loss takes
        self.optimizer.zero_grad()
        loss = require_scalar(self.loss(self.model, batch))
        loss.backward()  # type: ignore[no-untyped-call]
        if self._before_step is not None:
            self._before_step()
        self.optimizer.step()
        self._passes += 1
        self._note(loss.detach())
        self._look()
        self._jump()
        self._advance(self._place.step_of(self._passes))
        if self.done:
            self._finish()

    def _jump(self) -> None:
        """Makes the jump that is due after this pass, if it helps."""
        steps, jumper = self.plan.jump_after(self._passes), self._jumper
        if not steps or jumper is None or not self._place.jumping:
            return
        goes_on = self._end == self.plan.passes
        if not goes_on or not jumper.jump(self._passes, steps, self._losses, self._rates_ahead):
            self._place.leave_out(self._passes)
        if jumper.ended:
            self._place.stop(self._passes)

    def _note(self, loss: Tensor) -> None:
        """Adds a loss to its block. Only the end of a block waits for a GPU."""
        self._running = loss if self._running is None else self._running + loss
        if self._passes % self.plan.block:
            return
        mean = float(self._running) / self.plan.block
        self._running = None
        self._losses.append(require_finite_loss(mean, self._passes))
        self._rates.append(self._rate)
        end, passes = self._passes + self.plan.averaged, self.plan.passes
        if self._stop_below is not None and self._end == passes and end < passes:
            ahead = (passes - self._passes) // self.plan.block
            if leaves_less(self._losses, ahead, self._stop_below):
                self._end = end  # too little is left to be gained

    def _look(self) -> None:
        """Samples the weights, for the average and for the history."""
        left = self._end - self._passes
        averaging = left < self.plan.averaged and left % self.plan.every == 0
        jumper = self._jumper if self.plan.looks_after(self._passes) else None
        if not averaging and (jumper is None or jumper.ended):
            return
        values = self._weights.read()
        if averaging:
            self._mean.add(values)
        if jumper is not None:
            jumper.look(values, self._passes)

    def _rates_ahead(self, steps: Sequence[int]) -> list[float]:
        """Learning rates after more steps, over the present rate; constant beyond the schedule."""
        left = self.plan.steps - self._step
        return rates_ahead(self.scheduler, [min(step, left) for step in steps])

    def _advance(self, step: int) -> None:
        """Advances the schedule of learning rates to a step."""
        if self.scheduler is not None:
            for _ in range(step - self._step):
                self.scheduler.step()
        self._step = step

    def _finish(self) -> None:
        self._last = self._weights.read()
        if self._mean.count == 0:
            return
        before = self._weights.pulses
        self._weights.approach(self._mean.value())
        self._pulses_of_average = self._weights.pulses - before
        normalise_anew(self.model, self.loss, self._stream)

    def forecast(
        self, *, level: float = 0.9, residual: Literal["gru"] | Ensemble | None = None
    ) -> LossForecast:
        """Forecasts the training loss to the end, in blocks of `plan.block` passes (see `losses`).

        Args:
            level: The probability with which a loss is to lie within the interval.
            residual: As in `forecast_loss`; the learning rates are the scheduler's.

        Raises:
            ValueError: before there are 10 blocks, or at the end.
        """
        ahead = (self._end - self._passes) // self.plan.block
        if ahead < 1:
            raise ValueError("there is no block left to forecast: the training is over")
        lasts = [self._passes + self.plan.block * number - 1 for number in range(1, ahead + 1)]
        rates = None
        if residual is not None and len(self._rates) == len(self._losses) and all(self._rates):
            factors = self._rates_ahead([self._place.step_of(last) - self._step for last in lasts])
            rates = [*self._rates, *(self._rate * factor for factor in factors)]
        return forecast_loss(self._losses, ahead, level=level, residual=residual, rates=rates)

    def report(self, batches: Iterable[Any] | None = None) -> Report:
        """Reports what was done so far, and its results.

        Args:
            batches: Batches, such as a validation set, for the losses of the last weights and of
                the average once the training is over.
        """
        jumper = self._jumper
        report = Report(
            plan=self.plan,
            forecaster=self.forecaster,
            passes=self._passes,
            guard_passes=0 if jumper is None else jumper.guard_passes,
            jumps=() if jumper is None else tuple(jumper.jumps),
            pulses=self._weights.pulses,
            pulses_of_jumps=0 if jumper is None else jumper.pulses,
            pulses_of_average=self._pulses_of_average,
            stopped=self._end < self.plan.passes,
            jumping_ended="" if jumper is None else jumper.ended,
        )
        if batches is None or not self.done:
            return report
        given = list(batches)
        if not given:
            raise ValueError("batches has none; give some, such as those of a validation set")
        points = [self._last, self._mean.value()] if self._mean.count else [self._last]
        found = self._weights.losses_at(points, self.model, self.loss, given)
        last, *averaged = [float(at.mean()) for at in found]
        return dataclasses.replace(report, last=last, averaged=averaged[0] if averaged else None)

    def state_dict(self) -> dict[str, Any]:
        """Progress of the training as plain values and tensors, without model and optimiser."""
        return {
            "settings": self._settings(),
            "plain": {name: getattr(self, f"_{name}") for name in _PLAIN},
            "epoch": [self._stream.epoch, self._stream.taken],
            "losses": list(self._losses),
            "rates": list(self._rates),
            "running": self._running,
            "last": self._last,
            "mean": self._mean.state_dict(),
            "place": self._place.state_dict(),
            "jumper": None if self._jumper is None else self._jumper.state_dict(),
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restores a saved state; model, optimiser and scheduler are loaded by the caller.

        Raises:
            ValueError: if the state is of a trainer with other settings, or of other weights;
                nothing has changed then.
        """
        if saved["settings"] != self._settings():
            theirs = f"the state is of a trainer with other settings ({saved['settings']})"
            raise ValueError(f"{theirs}; this one has {self._settings()}")
        like = self._weights.read()
        last, mean = match(saved["last"], like), Mean.loaded(saved["mean"], like)
        if self._jumper is not None:
            self._jumper.load_state_dict(saved["jumper"], like)
        self._last, self._mean = last, mean
        if "place" in saved:  # older states have none, and left out no jump
            self._place.load_state_dict(saved["place"])
        for name in _PLAIN:
            setattr(self, f"_{name}", saved["plain"][name])
        self._stream.epoch, self._stream.taken = saved["epoch"]
        self._losses = list(saved["losses"])
        self._rates = list(saved.get("rates", []))  # older states have none
        self._running = saved["running"]

    def _settings(self) -> str:
        return f"{self.plan}, forecaster={self._forecasts}, parameters={self._weights.shapes}"

    def save(self, path: str | PathLike[str]) -> None:
        """Writes a checkpoint: trainer, model, optimiser, scheduler and torch's random numbers.

        Raises:
            OSError: if the file cannot be written; a previous file is then as it was.
        """
        save(self._parts(), path)

    def load(self, path: str | PathLike[str]) -> None:
        """Resumes a saved training, to the bit if the batches are the same.

        The trainer must be made like the saved one. Loading executes nothing of the file.

        Raises:
            OSError: if the file cannot be read.
            ValueError: if the file is damaged or of another training; nothing has changed then.
        """
        load(self._parts(), path)

    def _parts(self) -> dict[str, Stateful | None]:
        """All parts of a checkpoint, in the order of loading."""
        parts = {name: getattr(self, name) for name in ("model", "optimizer", "scheduler")}
        return {"trainer": self, **parts}
