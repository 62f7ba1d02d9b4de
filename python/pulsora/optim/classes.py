"""Classes of optimisers with pulses, one for each of torch's, which objects can be pickled by."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["with_pulses"]

_made: weakref.WeakValueDictionary[type[torch.optim.Optimizer], type[Any]] = (
    weakref.WeakValueDictionary()
)


def with_pulses(
    optimizer: type[torch.optim.Optimizer], pulses: type[Any], own: Mapping[type, type[Any]]
) -> type[Any]:
    """Returns the class that is this optimiser, with pulses for analog layers.

    It is the same class for the same optimiser. A class that has pulses already is returned as it
    is.

    Args:
        optimizer: A class of torch.optim, or one derived from it.
        pulses: The class that sends pulses, of which others are made with an optimiser.
        own: Classes with pulses that exist, by their optimisers.

    Raises:
        TypeError: if `optimizer` is no class of an optimiser.
        ValueError: if it is an LBFGS.
    """
    given: object = optimizer
    if not (isinstance(given, type) and issubclass(given, torch.optim.Optimizer)):
        raise TypeError(
            f"optimizer = {optimizer!r}: give a class of torch.optim, such as torch.optim.AdamW"
        )
    if issubclass(optimizer, torch.optim.LBFGS):
        raise ValueError(  # noqa: TRY004 - it is an optimiser
            "optimizer = LBFGS needs the gradient as one vector and goes back on its steps, "
            "which pulses cannot; choose one such as torch.optim.AdamW"
        )
    if issubclass(optimizer, pulses):
        return optimizer
    made = own.get(optimizer) or _made.get(optimizer)
    if made is None:
        contents = {"__module__": pulses.__module__, "__reduce_ex__": _reduced}
        made = type(f"Analog{optimizer.__name__}", (pulses, optimizer), contents)
        _made[optimizer] = made
    return made


def _reduced(self: Any, protocol: Any) -> Any:  # noqa: ANN401 - as in object
    """Names torch's class in copies and pickles, because no module has the class of `self`."""
    kind = self._kind
    if type(self) is not _made.get(kind):  # a class that is derived from it, and has a name
        return torch.optim.Optimizer.__reduce_ex__(self, protocol)
    return _without_state, (kind, type(self).__bases__[0]), self.__getstate__()


def _without_state(optimizer: type[Any], pulses: type[Any]) -> torch.optim.Optimizer:
    """Returns an object whose state a copy or an unpickler sets."""
    combined: Any = with_pulses(optimizer, pulses, {})
    made: torch.optim.Optimizer = combined.__new__(combined)
    return made
