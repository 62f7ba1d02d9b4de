"""Arguments that analog layers have in common: unknown ones, signatures, the device."""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import torch

from pulsora._internal.parameters import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = [
    "are_blank",
    "blank_weights",
    "place_of",
    "require_none",
    "require_size",
    "whole_signature",
]

_HINTS = {
    "rpu_config": "it is called config here",
    "dtype": "tiles are in single precision; layer.to(dtype) sets the type of its bias",
}


_blank: ContextVar[bool] = ContextVar("blank", default=False)


@contextmanager
def blank_weights() -> Iterator[None]:
    """Makes layers inside `with` begin with zeros, because their weights are written at once."""
    token = _blank.set(True)
    try:
        yield
    finally:
        _blank.reset(token)


def are_blank() -> bool:
    """Whether layers that are made now begin with zeros."""
    return _blank.get()


def require_none(layer: str, unknown: Mapping[str, object], known: Iterable[str]) -> None:
    """Raises TypeError, with a hint, for arguments that a layer does not have."""
    for name in unknown:
        hint = _HINTS.get(name)
        raise TypeError(
            f"{layer} has no argument {name!r}" + (f"; {hint}" if hint else suggestion(name, known))
        )


def require_size(layer: str, size: object) -> None:
    """Raises TypeError for a class in the place of a size, as for AIHWKit's recurrent layers."""
    if isinstance(size, type):
        raise TypeError(
            f"{layer} was given {size.__name__} in the place of its first size; its cells are "
            "chosen by the class: AnalogRNN, AnalogLSTM or AnalogGRU(input_size, hidden_size, "
            "num_layers, config=...)"
        )


def whole_signature(kind: type, further: type) -> inspect.Signature:
    """Returns the signature of a class with the arguments behind its **options written out.

    They are the arguments of the base classes, and the keyword arguments of `further`.
    """
    found: dict[str, inspect.Parameter] = {}
    for each in (*kind.__mro__, further):
        init: Any = vars(each).get("__init__")
        if init is None:
            continue
        own = list(inspect.signature(init).parameters.values())[1:]
        kinds = {parameter.kind for parameter in own}
        for parameter in own:
            if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
                continue
            if each is further and parameter.kind is not parameter.KEYWORD_ONLY:
                continue
            found.setdefault(parameter.name, parameter)
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            break
    return inspect.Signature(sorted(found.values(), key=lambda parameter: parameter.kind))


def place_of(device: torch.device) -> torch.device:
    """Returns the device in the form that tiles use, with the number of a GPU."""
    if device.type == "meta":
        raise ValueError(
            "an analog layer cannot be on the meta device, because its cells are sampled when it "
            "is made; make it on 'cpu' or 'cuda', or make a digital model on the meta device and "
            "convert it by pulsora.convert_to_analog(model, config, device='cpu')"
        )
    if device.type == "cuda" and str(device) == "cuda" and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return device if device.type == "cuda" else torch.device(device.type)
