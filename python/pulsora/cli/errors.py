"""What a user can put right, as one line."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, ParamSpec

import typer
from rich.console import Console

from pulsora import _core

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["errors", "one_line_errors"]

errors = Console(stderr=True, soft_wrap=True)

_P = ParamSpec("_P")


def one_line_errors(command: Callable[_P, None]) -> Callable[_P, None]:
    """Shows what a user can put right as one line; everything else is a traceback."""

    @functools.wraps(command)
    def run(*args: _P.args, **options: _P.kwargs) -> None:
        try:
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
            line = " ".join(_as_option(str(error), options).split())
            errors.print(f"error: {line}", style="bold red", markup=False, highlight=False)
            raise typer.Exit(2) from error
        except _core.CompileError as error:  # with the lines that the compiler wrote
            errors.print(f"error: {error}", style="bold red", markup=False, highlight=False)
            raise typer.Exit(2) from error

    return run


def _as_option(message: str, options: Mapping[str, object]) -> str:
    """The message with the name of the parameter at its start as an option, if it was given as one."""
    name = re.match(r"\w+(?=:| is | = | must )", message)
    if name is None or options.get(name[0]) is None:
        return message
    return f"--{name[0].replace('_', '-')}{message[name.end() :]}"
