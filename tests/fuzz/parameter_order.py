"""Models that are moved, copied, pickled or converted: one order of parameters, one training.

torch's optimisers keep their states by the position of parameters, so that a state loaded into a
model with another order would belong to other parameters.
"""

from __future__ import annotations

import contextlib
import copy
import io
import pickle
from typing import TYPE_CHECKING, Any

import torch

import pulsora as pl
from tests.fuzz import models
from tests.fuzz.checks import Planted, require

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from tests.fuzz.models import Training
    from tests.fuzz.random_source import Draws


def run(draws: Draws) -> None:
    number = draws.integer(0, 2**40)
    first = _training(draws.inner(number))
    if refused := _steps(first, 2):
        draws.note("refused", refused)
        return
    other = _training(draws.inner(number))
    order = _order(first.model)
    for _ in range(draws.integer(1, 4)):
        name = draws.pick(list(WAYS))
        draws.note(name)
        changed = WAYS[name](other.model)
        require(_order(changed) == order, f"{name} changes the order of parameters")
        other = other._replace(model=changed)
    _require_digital_order(first.model)
    second = _training(draws.inner(number), other.model)
    require(
        list(second.model.state_dict()) == list(first.model.state_dict()),
        "the order of the state differs",
    )
    second.model.load_state_dict(_through_a_file(first.model.state_dict()))
    second.optimizer.load_state_dict(_through_a_file(first.optimizer.state_dict()))
    require(_steps(first, 2) == _steps(second, 2), "a training that was loaded is refused")
    models.require_equal(
        models.everything(first.model, first.optimizer),
        models.everything(second.model, second.optimizer),
        "a training that was loaded continues otherwise",
    )


def _training(draws: Draws, made: nn.Sequential | None = None) -> Training:
    """The training of these draws, of their own model or of another one."""
    own = models.model(draws)
    return models.training(draws, own if made is None else made)


def _steps(training: Training, count: int) -> str:
    """The refusal that steps end with, if any."""
    try:
        for _ in range(count):
            training.optimizer.zero_grad()
            training.backward()
            training.optimizer.step()
    except models.DOCUMENTED as error:
        return str(error)
    finally:
        training.optimizer.zero_grad()
    return ""


def _order(made: nn.Module) -> list[tuple[str, tuple[int, ...]]]:
    return [(name, tuple(parameter.shape)) for name, parameter in made.named_parameters()]


def _require_digital_order(made: nn.Sequential) -> None:
    """Requires that an analog layer has its parameters in the order of torch's own layer."""
    plain = torch.nn.Sequential(
        *(block for block in made if not isinstance(block, models.Recurrent))
    )
    names = [
        name.replace("analog_weight", "weight")
        for name, _ in plain.named_parameters()
        if "out_scaling" not in name
    ]
    digital = [name for name, _ in pl.convert_to_digital(plain).named_parameters()]
    # Biases in cells are no parameters of the analog layer.
    order = [name for name in digital if name in names]
    require(order == names, "the order of parameters is not that of torch's layers")


def _through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file, weights_only=True)
    return loaded


def _saved_whole(made: nn.Sequential) -> nn.Sequential:
    file = io.BytesIO()
    torch.save(made, file)
    file.seek(0)
    loaded: nn.Sequential = torch.load(file, weights_only=False)
    return loaded


def _refused_move(made: nn.Sequential) -> nn.Sequential:
    """A move that fails, at the first parameter or a later one."""
    moved = 0

    def move(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal moved
        moved += 1
        if moved == 3:
            raise Planted("no memory there")
        return tensor

    with contextlib.suppress(Planted):
        made._apply(move)  # type: ignore[no-untyped-call]
    return made


def _refused_place(made: nn.Sequential) -> nn.Sequential:
    # torch without CUDA raises an AssertionError.
    with contextlib.suppress(AssertionError, RuntimeError, ValueError):
        made.to("cuda:77")
    return made


def _shared(made: nn.Sequential) -> nn.Sequential:
    with contextlib.suppress(RuntimeError):
        made.share_memory()  # type: ignore[no-untyped-call]
    return made


def _other_type(made: nn.Sequential) -> nn.Sequential:
    return made.double().float()


def _new_weights(made: nn.Sequential) -> nn.Sequential:
    for layer in models.analog_layers(made):
        layer.set_weights(*layer.get_weights())
    return made


def _new_parameter(made: nn.Sequential) -> nn.Sequential:
    """Parameters that are assigned again, as for ties."""
    for layer in models.analog_layers(made):
        for name, parameter in list(layer.named_parameters(recurse=False)):
            setattr(layer, name, parameter)
    return made


WAYS: dict[str, Callable[[nn.Sequential], nn.Sequential]] = {
    "to": lambda made: made.to("cpu"),
    "float": lambda made: made.float(),
    "double, float": _other_type,
    "deepcopy": copy.deepcopy,
    "pickle": lambda made: pickle.loads(pickle.dumps(made)),  # noqa: S301
    "torch.save": _saved_whole,
    "refused move": _refused_move,
    "refused place": _refused_place,
    "share_memory": _shared,
    "requires_grad_": lambda made: made.requires_grad_(requires_grad=False).requires_grad_(),
    "set_weights": _new_weights,
    "assigned": _new_parameter,
}
"""Ways to change a model, after which it has its parameters in the same order."""
