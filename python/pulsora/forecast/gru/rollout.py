"""Rollouts of an ensemble: continuations of rows of features, and their uncertainties."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from pulsora import _core
from pulsora._internal.checks import require_at_least
from pulsora.forecast.arrays import Work
from pulsora.forecast.gru.ensemble import Ensemble

if TYPE_CHECKING:
    Array = Any

__all__ = ["Rollout", "rollout"]

# The order of weights that the core takes.
_CORE_ORDER = tuple(field.name for field in fields(Ensemble))
_MOST_SAMPLES = 1 << 24


class Rollout(NamedTuple):
    """Continuations of b rows over J steps by the E members of an ensemble.

    With dropout, each of the S samples of a member counts as a member: E S stands for E, with the
    samples of a member side by side.
    """

    mean: Array
    """The sum of a member's increments up to each step, [E, b, J]."""
    log_variance: Array
    """The logarithm of the variance that a member states for this sum, [E, b, J]."""
    state: Array
    """The last states, [E, b, H]."""
    states: Array | None
    """All states, [E, b, J, H]; None unless they were asked for."""
    predicted: Array | None = None
    """Predicted states, [E, b, J, W]; None for an ensemble without a projection."""
    samples: int = 1
    """S, the samples of each member."""

    @property
    def expected(self) -> Array:
        """The mean over the members, [b, J]."""
        return self.mean.mean(0)

    @property
    def expected_states(self) -> Array:
        """The mean of the predicted states over the members, [b, J, W].

        Raises:
            ValueError: for an ensemble without a projection.
        """
        if self.predicted is None:
            raise ValueError("the ensemble has no projection, and so predicts no states")
        return self.predicted.mean(0)

    @property
    def epistemic(self) -> Array:
        """The variance between the members and their samples, [b, J]; 0 for a single one."""
        return ((self.mean - self.mean.mean(0)) ** 2).mean(0)

    @property
    def between_samples(self) -> Array:
        """The variance between the samples of a member, [b, J]: dropout's part of `epistemic`."""
        of_members = self.mean.reshape(-1, self.samples, *self.mean.shape[1:])
        return ((of_members - of_members.mean(1)[:, None]) ** 2).mean(1).mean(0)

    @property
    def aleatoric(self) -> Array:
        """The mean of the variances that the members state, [b, J]."""
        values = self.log_variance
        return (values.exp() if hasattr(values, "exp") else np.exp(values)).mean(0)


def rollout(
    ensemble: Ensemble,
    features: Array,
    steps: int,
    *,
    state: Array | None = None,
    feedback: bool = True,
    states: bool = False,
    dropout: float = 0.0,
    samples: int = 1,
    seed: int = 0,
    precision: Literal["float32", "float16"] = "float32",
    threads: int | None = None,
) -> Rollout:
    """Continues rows of features over steps by every member of an ensemble.

    Each step reads an increment off the state. With feedback, the encoder sees it at the next step
    as its feature 0, which is 0 at first.

    Args:
        ensemble: The weights.
        features: [b, features].
        steps: J, from 1 to 75. The first steps do not depend on how many follow.
        state: Initial states of the members, [E, b, H]; 0 by default.
        feedback: Whether increments are fed back, see above.
        states: Whether to return all states.
        dropout: Share of units that are dropped, from 0 to below 1: of the encoder's outputs, and
            of the state where it is read. The others are divided by 1 - dropout. A row of a sample
            keeps its mask over all steps (Monte Carlo dropout of Gal and Ghahramani).
        samples: Continuations of each row by each member, with masks of their own.
        seed: Of the masks, from 0 up. A mask depends on seed, member, sample and row alone.
        precision: "float16" rounds weights, features, activations and states to 16 bits before
            every product; sums, and the state that a step moves, have 32 bits.
        threads: CPU threads; all that the process may run on by default.

    Features on a GPU are continued there, in one launch (in several per step with a layer
    normalisation), by an ensemble that `Ensemble.to` has brought there. Sums are of another order
    than on the CPU, and agree to some 1e-5 a step; masks are equal.

    Raises:
        DeviceError: if features and ensemble are not on one device.
        InputError: for shapes that do not fit, more than 512 hidden units, and numbers out of
            range.
        TypeError: for anything but floating-point arrays.
        ValueError: for another precision, and for weights that 16 bits do not hold.
    """
    if precision not in ("float32", "float16"):
        raise ValueError(f"precision must be float32 or float16 (got {precision!r})")
    require_at_least("samples", samples, 1)
    require_at_least("seed", seed, 0)
    if samples > _MOST_SAMPLES:
        raise _core.InputError(f"samples is {samples}; it must be at most {_MOST_SAMPLES}")
    if not 0.0 <= dropout < 1.0:
        raise _core.InputError(f"dropout is {dropout}; it must be at least 0 and below 1")
    if samples > 1 and dropout == 0.0:
        raise _core.InputError(f"samples is {samples}, but without dropout all are equal")
    chosen = ensemble.to_half() if precision == "float16" else ensemble
    given = {name: getattr(chosen, name) for name in _CORE_ORDER}
    work = Work(threads, features=features, state=state, **given)
    shape = tuple(work["features"].shape)
    if len(shape) != 2:
        raise _core.InputError(f"features has shape {list(shape)}; it must be [rows, features]")
    most = _core.most_rollout_steps()
    if not 1 <= steps <= most:
        raise _core.InputError(f"steps is {steps}; it must be from 1 to {most}")
    heads = tuple(work["heads"].shape)
    if len(heads) != 3:
        raise _core.InputError(f"heads has shape {list(heads)}; it must be [members, hidden, 2]")
    members, hidden, _ = heads
    rows = shape[0] * samples
    firsts = work["state"]
    if firsts is not None and tuple(firsts.shape) != (members, shape[0], hidden):
        wanted = [members, shape[0], hidden]
        raise _core.InputError(f"state has shape {list(firsts.shape)}; it must be {wanted}")
    mean, log_variance = (work.empty(members, rows, steps) for _ in range(2))
    last = work.empty(members, rows, hidden)
    every = work.empty(members, rows, steps, hidden) if states else None
    bias = work["projection_bias"]
    predicted = None if bias is None else work.empty(members, rows, steps, bias.shape[-1])
    _core.forecast_rollout(
        [work[name] for name in _CORE_ORDER], _repeated(work["features"], samples, 0),
        None if firsts is None else _repeated(firsts, samples, 1), feedback,
        mean, log_variance, last, every, predicted, dropout, seed, shape[0],
        precision == "float16", *work.place,
    )  # fmt: skip
    count = members * samples
    mean, log_variance, last, every, predicted = (
        None if array is None else work.result(array.reshape(count, shape[0], *array.shape[2:]))
        for array in (mean, log_variance, last, every, predicted)
    )
    return Rollout(mean, log_variance, last, every, predicted, samples)


def _repeated(array: Array, times: int, axis: int) -> Array:
    """The rows along an axis, again and again; a contiguous array."""
    if times == 1:
        return array
    many = [1] * array.ndim
    many[axis] = times
    return np.tile(array, many) if isinstance(array, np.ndarray) else array.repeat(*many)
