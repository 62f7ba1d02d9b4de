"""Names of layers in errors of their tiles."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["described", "named_errors", "set_names"]

_NAMED = "_pulsora_names_layer"


class Named(Protocol):
    """The tiles of a layer, as far as errors name them (`TileArray`)."""

    name: str
    layer_type: str
    shape: tuple[int, int]


def set_names(arrays: Iterable[tuple[str, Named]]) -> None:
    """Gives arrays the names of their layers in a model; shared tiles get the first name."""
    seen: set[int] = set()
    for name, array in arrays:
        if name and id(array) not in seen:
            array.name = name
        seen.add(id(array))


def described(array: Named) -> str:
    """Returns the name of the layer of an array if it is known, its type and its sizes."""
    sizes = f"{array.layer_type} {list(array.shape)}"
    return f"layer '{array.name}' ({sizes})" if array.name else f"layer {sizes}"


class named_errors:  # noqa: N801 - used as a function, like contextlib.suppress
    """Puts the name of the layer before the text of an error that is raised inside `with`.

    A class, because a generator would cost microseconds in every read and every step.
    """

    __slots__ = ("_array",)

    def __init__(self, array: Named) -> None:
        self._array = array

    def __enter__(self) -> None:
        pass

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, (ValueError, RuntimeError)):
            # Errors of the user's own classes may have other arguments.
            has_text = len(error.args) == 1 and isinstance(error.args[0], str)
            if has_text and not hasattr(error, _NAMED):
                error.args = (f"{described(self._array)}: {error.args[0]}",)
                with contextlib.suppress(AttributeError):
                    setattr(error, _NAMED, True)
