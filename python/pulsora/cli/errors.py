"""Commands: errors that a user can put right, and warnings, as one line each; plain help pages."""

from __future__ import annotations

import warnings
from typing import Any

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperGroup

from pulsora import _core
from pulsora._internal import command_start

__all__ = ["Commands", "OneLineErrors", "errors"]

errors = Console(stderr=True, soft_wrap=True)

_AFTER_NAME = ("is ", "= ", "must ")
"""Continuations of a message that begins with the name of a parameter."""


class _PlainSwitches:
    """Help pages that name no type of options without a value."""

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401
        """The parameters, as a help page shows them."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc] # of the command
        for each in parameters:
            if getattr(each, "is_flag", False):
                each.metavar = ""
        return parameters


class Commands(_PlainSwitches, TyperGroup):
    """The commands of the program."""


class OneLineErrors(_PlainSwitches, TyperCommand):
    """A command that shows errors of its user in one line each, and others as tracebacks."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - typer's context, of click or its own
        """Runs the command."""
        command_start.loaded()
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                return super().invoke(ctx)
        except (
            ValueError,
            TypeError,
            OSError,
            ImportError,
            _core.DeviceError,
            _core.CompilerNotFound,
            MemoryError,
        ) as error:
            line = " ".join(self._as_option(str(error), ctx.params).split())
            errors.print(f"error: {line}", style="bold red", markup=False, highlight=False)
            raise typer.Exit(2) from error
        except KeyboardInterrupt as interrupt:
            errors.print(str(interrupt) or "stopped", style="yellow", markup=False, highlight=False)
            raise typer.Exit(130) from None
        except _core.CompileError as error:  # with the lines that the compiler wrote
            errors.print(f"error: {error}", style="bold red", markup=False, highlight=False)
            raise typer.Exit(2) from error

    def _as_option(self, message: str, given: dict[str, object]) -> str:
        """The message, in which an option replaces the parameter name at the start."""
        word, _, rest = message.partition(" ")
        name = word.removesuffix(":")
        if given.get(name) is None or (name == word and not rest.startswith(_AFTER_NAME)):
            return message
        options = {each.name: each.opts[0] for each in self.params if each.opts[0].startswith("-")}
        return options.get(name, name) + message[len(name) :]


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    errors.print(f"warning: {message}", style="yellow", markup=False, highlight=False)
