"""Models: parameters that say which model they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, SupportsIndex, cast

from pulsora import _core
from pulsora._internal.parameters import (
    MODELS,
    SOURCE_KEY,
    Parameters,
    require_mapping,
    suggestion,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

__all__ = ["KINDS", "Model", "model_from_dict", "require_source"]

KINDS = {
    "device": ("device model", "pulsora.devices"),
    "noise_model": ("noise model", "pulsora.noise_models"),
}
"""What a kind of models is called, and the package of its classes."""


def model_from_dict(kind: str, values: Mapping[str, object]) -> Parameters:
    """The model of that kind, "device" or "noise_model", whose name is `values["model"]`."""
    rest = dict(values)
    model = rest.pop("model", None)
    known = MODELS[kind]
    if not isinstance(model, str) or model not in known:
        what, package = KINDS[kind]
        raise _core.ConfigError(
            f"model is {model!r}, which is not a {what}{suggestion(model, known)}; a model from "
            f"source is known after {package}.from_source()"
        )
    return known[model].from_dict(rest)


class Model(Parameters):
    """Parameters that say which model they belong to."""

    _kind: ClassVar[str]
    source_sha256: ClassVar[str] = ""
    """SHA-256 of the source of a model that from_source() made; empty for built-in models."""

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> str | tuple[Any, ...]:
        """Pickles of objects whose model is from source contain the SHA-256 of that source."""
        if not self.source_sha256:
            return super().__reduce_ex__(protocol)
        return _unpickled, (self._kind, self.model, self.source_sha256, self._values())

    @property
    def model(self) -> str:
        """Name of the model."""
        return type(self).__name__

    def to_dict(self) -> dict[str, Any]:
        """All parameters as plain values, and the name of the model under "model"."""
        return {"model": self.model, **super().to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> Self:
        """The object that to_dict() described.

        Raises:
            ConfigError: For an unknown name or a bad value, or if `values` describe another model.
            TypeError: If `values` are no mapping.
        """
        require_mapping(values)
        model = values.get("model", cls.__name__)
        if cls not in MODELS[cls._kind].values():
            return cast("Self", model_from_dict(cls._kind, values))
        if not isinstance(model, str) or model != cls.__name__:
            base = cls.__bases__[0].__name__
            raise _core.ConfigError(
                f"model is {model!r}, but the class is {cls.__name__}; use {base}.from_dict()"
            )
        return super().from_dict({name: value for name, value in values.items() if name != "model"})


def _unpickled(kind: str, model: str, sha256: str, values: Mapping[str, object]) -> Parameters:
    require_source(kind, model, sha256, "the pickle")
    return model_from_dict(kind, {"model": model, **values})


def require_source(kind: str, model: object, sha256: object, where: str) -> None:
    """Raises ConfigError unless the model of that name is from the source of that SHA-256.

    `where` names the file or pickle that asks for it.
    """
    what, package = KINDS[kind]
    known = MODELS[kind].get(model) if isinstance(model, str) else None
    found = getattr(known, SOURCE_KEY, "")
    if known is not None and found == sha256:
        return
    if known is None:
        reason = "no model of that name is known"
    elif found:
        reason = f"the model of that name is from the source with SHA-256 {found}"
    else:
        reason = "the model of that name is built in"
    raise _core.ConfigError(
        f"{where} is of the {what} {model!r} from the source with SHA-256 {sha256}, but "
        f"{reason}; call {package}.from_source() on that source first"
        + ("" if known is None else ", in a new process")
    )
