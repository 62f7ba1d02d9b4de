"""How a loop of another package makes its own steps, with one warning, where none is recorded."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["first_reason", "require_first", "warn_once"]


def first_reason(reasons: Mapping[str, object]) -> str | None:
    """Returns the first of the reasons that hold; None if none does."""
    return next((reason for reason, holds in reasons.items() if holds), None)


def warn_once(told: set[str], loop: str, reason: str) -> None:
    """Warns, once for each reason, that a loop makes its own steps."""
    if reason not in told:
        told.add(reason)
        warnings.warn(
            f"{loop} makes its own steps, and none is recorded: {reason}",
            RuntimeWarning,
            stacklevel=3,
        )


def require_first(cls: type, mixin: type, methods: Iterable[str], of: str) -> None:
    """Checks that a class has methods of a mixin, and that another class stands behind the mixin.

    Raises:
        TypeError: If a class that comes first has a method of the same name, or none comes behind.
    """
    for name in methods:
        owners = [each for each in cls.__mro__ if name in vars(each)]
        if owners[0] is not mixin:
            raise TypeError(
                f"{owners[0].__name__}.{name} hides that of {mixin.__name__}; write class "
                f"{cls.__name__}({mixin.__name__}, YourClass) with YourClass.{name} in a class of "
                "its own"
            )
        if len(owners) == 1:
            raise TypeError(
                f"class {cls.__name__}: {mixin.__name__} needs {of} behind it; write class "
                f"{cls.__name__}({mixin.__name__}, YourClass)"
            )
