"""Steps that a signal interrupts at random instants, and that are taken again until they end."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any

from pulsora.nn.autograd.analog_parameter import AnalogParameter
from tests.fuzz import models

if TYPE_CHECKING:
    from types import FrameType

    import torch

    from tests.fuzz.models import Training
    from tests.fuzz.random_source import Draws

MOST_ATTEMPTS = 50
LATER = 20e-6
"""Seconds after which a signal comes again that came where nothing may be interrupted."""


class Interruption(KeyboardInterrupt):
    """Raised by the handler of the timer's signal."""


def run(draws: Draws) -> None:
    number = draws.integer(0, 2**40)
    undisturbed = _ready(draws.inner(number))
    if undisturbed is None:
        return
    begun = time.perf_counter()
    try:
        undisturbed.optimizer.step()
    except models.DOCUMENTED as error:
        draws.note("refused", type(error).__name__, str(error))
        return
    seconds = time.perf_counter() - begun
    wanted = models.everything(undisturbed.model, undisturbed.optimizer)
    training = _ready(draws.inner(number))
    assert training is not None
    ends = 0.0
    for attempt in range(MOST_ATTEMPTS):
        ends = seconds * draws.uniform(0.0, 1.2)
        draws.note("attempt", attempt, "interrupted after", ends)
        if _step(training, ends):
            break
    else:
        training.optimizer.step()
    found = models.everything(training.model, training.optimizer)
    models.require_equal(wanted, found, "a step that was interrupted ends otherwise")


def _ready(draws: Draws) -> Training | None:
    """A model before a step, or None if it is refused."""
    width = draws.pick((6, 60, 120))
    made = models.model(draws, width=width)
    training = models.training(draws, made, width=width, most=60)
    try:
        for _ in range(draws.pick((1, 1, 2))):
            training.backward()
    except models.DOCUMENTED as error:
        draws.note("refused", type(error).__name__, str(error))
        return None
    return training


def _step(training: Training, seconds: float) -> bool:
    """Whether a step ends, which is interrupted after so many seconds."""
    is_over = False
    digital = [p for p in training.model.parameters() if not isinstance(p, AnalogParameter)]
    versions = [parameter._version for parameter in digital]

    def handle(_number: int, frame: FrameType | None) -> None:
        # After torch's part nobody can tell a step that is to be repeated from the next one.
        if is_over or versions != [parameter._version for parameter in digital]:
            return
        if _may_be_interrupted(frame, training.optimizer):
            raise Interruption
        signal.setitimer(signal.ITIMER_REAL, LATER)

    signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))
        training.optimizer.step()
    except Interruption:
        return False
    finally:
        is_over = True
        signal.setitimer(signal.ITIMER_REAL, 0.0)
    return True


def _may_be_interrupted(frame: FrameType | None, optimizer: torch.optim.Optimizer) -> bool:
    """Whether a frame is within the step of the optimiser, but not within torch's own part."""
    own: Any = type(optimizer).step
    while hasattr(own, "__wrapped__"):
        own = own.__wrapped__
    while frame is not None and frame.f_code is not own.__code__:
        if "/torch/" in frame.f_code.co_filename:  # torch's part cannot be taken up by anybody
            return False
        frame = frame.f_back
    return frame is not None
