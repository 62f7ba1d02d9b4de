"""Models from their C++ source: what devices and noise models have in common."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pulsora import _core
from pulsora._internal.checks import reading
from pulsora._internal.models import KINDS
from pulsora._internal.parameters import MODELS, Parameters, parameter_class, register_model

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Sources"]

_lock = threading.Lock()
_M = TypeVar("_M", bound=Parameters)


class Sources(Generic[_M]):
    """Compiles and registers the models of one kind.

    Args:
        kind: "device" or "noise_model".
        base: The class of which the models are subclasses.
        saved: Name of the value of a saved state that holds the sources.
    """

    def __init__(self, kind: str, base: type[_M], saved: str) -> None:
        self.kind, self.base, self.saved = kind, base, saved
        self.what, self.package = KINDS[kind]

    def made(self, source: str | os.PathLike[str], name: str | None) -> type[_M]:
        """Returns the class of a source: the path of a header, or its text."""
        text, file = _read(source)
        return self._registered(text, name or "", file)

    def compiled_ahead(
        self, source: str | os.PathLike[str], name: str | None, isa: str | None, arch: str | None
    ) -> list[Path]:
        """Compiles a source into the folder of compiled models; returns the files."""
        text, file = _read(source)
        given = (text, name or "", file)
        files = [_core.compile_ahead(*given, isa or "", self.kind)]
        if arch is not None:
            files += _core.compile_ahead_for_gpu(*given, arch, self.kind)
        return [Path(each) for each in files]

    def of_state(self, values: Mapping[str, Any]) -> list[type[_M]]:
        """Compiles and registers the models whose sources the values of a saved state carry."""
        sources: Any = values.get(self.saved, {})
        if not isinstance(sources, dict):
            raise _core.StateError(
                f"the state's sources of {self.what}s are no table; it is damaged"
            )
        return [self._trusted(name, entry) for name, entry in sources.items()]

    def _registered(self, source: str, name: str, file: str) -> type[_M]:
        if not isinstance(name, str):
            raise TypeError(f"name is of type {type(name).__name__}; pass the name of the struct")
        wanted, text, digest = _core.read_source(source, name, self.kind)
        with _lock:
            package = sys.modules[self.package]
            known = MODELS[self.kind].get(wanted)
            others = [kind for kind in MODELS if kind != self.kind and wanted in MODELS[kind]]
            taken = f"a {KINDS[others[0]][0]}" if others else "something else"
            if known is None and (others or hasattr(package, wanted)):
                where = KINDS[others[0]][1] if others else self.package
                raise _core.ConfigError(
                    f"{where}.{wanted} is {taken} already; give the struct another name"
                )
            entry = _core.register_source(text, wanted, file, self.kind)
            if known is None:
                known = parameter_class(
                    wanted, entry["fields"], entry["doc"], self.base, self.package,
                    source_sha256=digest,
                )  # fmt: skip
                setattr(package, wanted, known)
                register_model(self.kind, known)
        assert issubclass(known, self.base)  # noqa: S101 - for the type checker
        return known

    def _trusted(self, name: str, entry: Any) -> type[_M]:  # noqa: ANN401 - whatever a file has
        text = entry.get("source") if isinstance(entry, dict) else None
        digest = entry.get("sha256") if isinstance(entry, dict) else None
        if not isinstance(text, str) or hashlib.sha256(text.encode()).hexdigest() != digest:
            raise _core.StateError(
                f"the state's source of the {self.what} {name!r} does not have the SHA-256 that "
                "stands beside it; the state is damaged"
            )
        try:
            return self._registered(text, name, "")
        except _core.ConfigError as error:
            raise _core.StateError(
                f"the state's source of the {self.what} {name!r} cannot be used: {error}"
            ) from None


def _read(source: str | os.PathLike[str]) -> tuple[str, str]:
    """The text of a source, and the name of its file."""
    if isinstance(source, str) and ("\n" in source or "kName" in source):
        return source, ""
    if not isinstance(source, str | os.PathLike):
        raise TypeError(
            f"source is of type {type(source).__name__}; pass the path of a header, or its text"
        )
    path = Path(source)
    with reading("source", path, "give the path of a header, or its text of several lines"):
        content = path.read_bytes()
    try:
        return content.decode(), path.name
    except UnicodeDecodeError as error:
        raise _core.ConfigError(f"{path} is not text in UTF-8 ({error})") from None
