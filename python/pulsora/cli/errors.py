"""What a user can put right, and warnings, as one line each."""

from __future__ import annotations

import functools
import re
import warnings
from typing import TYPE_CHECKING, ParamSpec, get_type_hints

import typer
from rich.console import Console
from typer.models import ArgumentInfo

from pulsora import _core

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["errors", "one_line_errors"]

errors = Console(stderr=True, soft_wrap=True)

_P = ParamSpec("_P")


def one_line_errors(command: Callable[_P, None]) -> Callable[_P, None]:
    """Shows what a user can put right as one line; everything else is a traceback."""

    @functools.wraps(command)
    def run(*args: _P.args, **options: _P.kwargs) -> None:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                command(*args, **options)
        except (
            ValueError,
            TypeError,
            OSError,
            ImportError,
            _core.DeviceError,
            _core.CompilerNotFound,
            MemoryError,
        ) as error:
            given = {name for name, value in options.items() if value is not None}
            line = " ".join(_as_option(str(error), given - _arguments(command)).split())
            errors.print(f"error: {line}", style="bold red", markup=False, highlight=False)
            raise typer.Exit(2) from error
        except _core.CompileError as error:  # with the lines that the compiler wrote
            errors.print(f"error: {error}", style="bold red", markup=False, highlight=False)
            raise typer.Exit(2) from error

    return run


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    errors.print(f"warning: {message}", style="yellow", markup=False, highlight=False)


def _arguments(command: Callable[..., None]) -> set[str]:
    """Parameters that stand on the command line without their name."""
    hints = get_type_hints(command, include_extras=True)
    return {
        name
        for name, hint in hints.items()
        if any(isinstance(part, ArgumentInfo) for part in getattr(hint, "__metadata__", ()))
    }


def _as_option(message: str, options: set[str]) -> str:
    """The message with the name of the parameter at its start as an option, if it was given as one."""
    name = re.match(r"\w+(?=:| is | = | must )", message)
    if name is None or name[0] not in options:
        return message
    return f"--{name[0].replace('_', '-')}{message[name.end() :]}"
