"""Steps of models in which one layer refuses: nothing changes, and the remedy continues exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

import pulsora as pl
from pulsora.nn.autograd.analog_parameter import AnalogParameter
from tests.fuzz import models
from tests.fuzz.checks import Planted, require

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsora.nn.autograd.factored_gradient import AnalogGradient
    from tests.fuzz.models import Training
    from tests.fuzz.random_source import Draws

    Remedy = Callable[[], object]
    Fault = Callable[[Draws, Training], Remedy]

EXACT = pl.IOParameters(is_perfect=True)
ADAPTER: dict[str, Any] = {"rank": 2, "transfer_every": 1, "forward": EXACT, "backward": EXACT}


def run(draws: Draws) -> None:
    number, attempts = draws.integer(0, 2**40), draws.pick((1, 2))
    undisturbed = _sequence(draws.inner(number), 0)
    if undisturbed is None:
        return
    refused = _sequence(draws.inner(number), attempts)
    require(refused is not None, "the model is refused where the fault is")
    assert refused is not None
    models.require_equal(undisturbed, refused, "a step that was refused first ends otherwise")


def _sequence(draws: Draws, attempts: int) -> dict[str, Any] | None:
    """Everything after a fault, so many refused steps, the remedy, and a step.

    None if this model is refused without a fault.
    """
    fault: Fault = draws.pick(FAULTS)
    made = models.model(draws)
    if fault in OF_ADAPTERS:
        layer = models.analog_layer(
            draws, draws.pick(models.KINDS), pl.LRTTConfig(**ADAPTER, **OF_ADAPTERS[fault])
        )
        made.insert(draws.integer(0, len(made)), layer)
    if not any(isinstance(each, AnalogParameter) for each in made.parameters()):
        made.append(models.analog_layer(draws, draws.pick(models.KINDS), pl.SingleConfig()))
    training = models.training(draws, made)
    draws.note(fault.__name__)
    try:
        for _ in range(1 if fault is _other_reads else draws.pick((1, 1, 2))):
            training.backward()
        remedy = fault(draws, training)
    except models.DOCUMENTED as error:
        draws.note("refused", type(error).__name__, str(error))
        return None
    before = models.everything(training.model, training.optimizer)
    for _ in range(attempts):
        _refused(draws, training)
        if fault is not _sparse:
            after = models.everything(training.model, training.optimizer)
            models.require_equal(before, after, "a step was refused, but has changed")
    remedy()
    try:
        training.optimizer.step()
    except models.DOCUMENTED as error:
        require(not attempts, f"the remedy is refused: {error}")
        draws.note("refused", type(error).__name__, str(error))
        return None
    return models.everything(training.model, training.optimizer)


def _refused(draws: Draws, training: Training) -> None:
    try:
        training.optimizer.step()
    except (*models.DOCUMENTED, Planted) as error:
        draws.note("refused", type(error).__name__, str(error))
        require(str(error), "a refusal without a word")
        return
    require(holds=False, what="a step with a fault was not refused")


def _victim(draws: Draws, training: Training) -> AnalogParameter:
    return draws.pick([p for p in training.model.parameters() if isinstance(p, AnalogParameter)])


def _group(training: Training, parameter: torch.nn.Parameter) -> dict[str, Any]:
    """The group of the optimiser that a parameter is in."""
    return next(
        group
        for group in training.optimizer.param_groups
        if any(each is parameter for each in group["params"])
    )


def _no_directions(draws: Draws, training: Training) -> Remedy:
    """A transfer that needs directions for B, and has none."""
    del draws

    def remedy() -> None:
        for layer in models.analog_layers(training.model):
            for tile in layer.tiles:
                if tile.adapter is not None and tile.config.reinit == "svd":
                    inputs = tile.d_size if tile.config.swap_xd else tile.x_size
                    tile.adapter.set_reinit_vectors(torch.eye(tile.adapter.rank, inputs) + 0.1)

    return remedy


def _other_reads(draws: Draws, training: Training) -> Remedy:
    """An update that reuses reads, which the tiles no longer have."""
    del draws
    for layer in models.analog_layers(training.model):
        for tile in layer.tiles:
            if tile.config.facts.reuses_reads:
                tile.load_state(tile.state())

    def remedy() -> None:
        training.optimizer.zero_grad()
        training.backward()

    return remedy


def _rate(draws: Draws, training: Training) -> Remedy:
    group = _group(training, _victim(draws, training))
    lr = group["lr"]
    group["lr"] = draws.pick((float("nan"), float("inf"), -float("inf"), 3e38))

    def remedy() -> None:
        group["lr"] = lr

    return remedy


def _overflow(draws: Draws, training: Training) -> Remedy:
    """A finite learning rate with which weights would overflow."""
    group = _group(training, parameter := _victim(draws, training))
    lr, gradient = group["lr"], parameter.grad
    parameter.grad = _large(parameter, 1e30)
    group["lr"] = 1e15

    def remedy() -> None:
        group["lr"], parameter.grad = lr, gradient

    return remedy


def _large(parameter: AnalogParameter, value: float) -> AnalogGradient:
    """A gradient whose factors are 1, but for one value of d."""
    array = parameter.array
    d = torch.ones(2, array.shape[0])
    d[1, -1] = value
    return parameter.gradient(torch.ones(2, array.groups * array.shape[1]), d)


def _not_finite(draws: Draws, training: Training) -> Remedy:
    bad = draws.pick((float("nan"), float("inf")))
    return _with_gradient(draws, training, lambda parameter: _large(parameter, bad))


def _other_gradient(draws: Draws, training: Training) -> Remedy:
    return _with_gradient(draws, training, lambda parameter: torch.zeros(parameter.shape))


def _written(draws: Draws, training: Training) -> Remedy:
    """Factors that are written to after the backward pass."""

    def make(parameter: AnalogParameter) -> AnalogGradient:
        made = _large(parameter, 1.0)
        draws.pick(made.pairs[0][:2]).add_(0.0)
        return made

    return _with_gradient(draws, training, make)


def _dropped(draws: Draws, training: Training) -> Remedy:
    def make(parameter: AnalogParameter) -> AnalogGradient:
        made = _large(parameter, 1.0)
        made.factors.drop("dropped by the test")
        return made

    return _with_gradient(draws, training, make)


def _with_gradient(
    draws: Draws, training: Training, make: Callable[[AnalogParameter], torch.Tensor]
) -> Remedy:
    parameter = _victim(draws, training)
    gradient = parameter.grad
    parameter.grad = make(parameter)

    def remedy() -> None:
        parameter.grad = gradient

    return remedy


def _sparse(draws: Draws, training: Training) -> Remedy:
    """A digital gradient that torch's part of the step refuses.

    torch is not asked before it works, so that pulses are made then; the next step goes on there.
    """
    digital = [p for p in training.model.parameters() if not isinstance(p, AnalogParameter)]
    # Of several groups, torch steps the first ones before it looks at the next.
    groups = len(training.optimizer.param_groups)
    if not digital or groups > 1 or isinstance(training.optimizer, torch.optim.SGD):
        return _rate(draws, training)
    parameter = draws.pick(digital)
    gradient = parameter.grad
    parameter.grad = torch.ones(parameter.shape).to_sparse()

    def remedy() -> None:
        parameter.grad = gradient

    return remedy


def _hook(draws: Draws, training: Training) -> Remedy:
    """A hook before the step that raises."""
    del draws

    def raise_planted(*_: object) -> None:
        raise Planted("a hook raises")

    return training.optimizer.register_step_pre_hook(raise_planted).remove


OF_ADAPTERS: dict[Fault, dict[str, Any]] = {
    _no_directions: {"reinit": "svd"},
    _other_reads: {"projection": "reuse"},
}
"""Settings of an adapter that a fault needs."""
FAULTS: tuple[Fault, ...] = (
    _no_directions, _no_directions, _other_reads, _rate, _overflow, _not_finite, _other_gradient,
    _written, _dropped, _sparse, _hook,
)  # fmt: skip
