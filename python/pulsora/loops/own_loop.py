"""How a loop of another package makes its own steps, with one warning, where none is recorded."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["first_reason", "require_behind", "warn_once"]


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


def require_behind(cls: type, mixin: type, method: str, of: str) -> None:
    """Checks that a class has another one with a method behind a mixin.

    Raises:
        TypeError: If there is none.
    """
    behind = cls.__mro__[cls.__mro__.index(mixin) + 1 :]
    if not any(method in vars(each) for each in behind):
        raise TypeError(
            f"class {cls.__name__}: {mixin.__name__} needs {of} behind it; write class "
            f"{cls.__name__}({mixin.__name__}, YourClass)"
        )
