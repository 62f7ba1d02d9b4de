"""Device models: one class per model of the core, made from its table of parameters."""

from collections.abc import Mapping
from typing import Any, ClassVar, SupportsIndex

from pulsora import _core
from pulsora._internal.parameters import (
    Parameters,
    device_from_dict,
    parameter_class,
    register_device,
    require_mapping,
    require_source,
)


class Device(Parameters):
    """A device model with its parameters."""

    source_sha256: ClassVar[str] = ""
    """SHA-256 of the source of a model that from_source() made; empty for built-in models."""

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> str | tuple[Any, ...]:
        """Pickles of devices whose model is from source contain the SHA-256 of that source."""
        if not self.source_sha256:
            return super().__reduce_ex__(protocol)
        return _unpickled, (self.model, self.source_sha256, self._values())

    @property
    def model(self) -> str:
        """Name of the model."""
        return type(self).__name__

    def to_dict(self) -> dict[str, Any]:
        """All parameters as plain values, and the name of the model under "model"."""
        return {"model": self.model, **super().to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> "Device":
        """The device that to_dict() described.

        Raises:
            ConfigError: For an unknown name or a bad value, or if `values` describe another model.
            TypeError: If `values` are no mapping.
        """
        require_mapping(values)
        model = values.get("model", cls.__name__)
        if cls is Device:
            return device_from_dict(values)
        if not isinstance(model, str) or model != cls.__name__:
            raise _core.ConfigError(
                f"model is {model!r}, but the class is {cls.__name__}; use Device.from_dict()"
            )
        return super().from_dict({name: value for name, value in values.items() if name != "model"})


def _unpickled(model: str, sha256: str, values: Mapping[str, object]) -> Device:
    require_source(model, sha256, "the pickle")
    made = device_from_dict({"model": model, **values})
    assert isinstance(made, Device)  # noqa: S101 - for the type checker
    return made


MODELS: tuple[str, ...] = tuple(_core.schema()["devices"])
"""Names of the device models, in the order of the core."""

__all__ = ["MODELS", "Device"]
__all__ += list(MODELS)

for _name, _entry in _core.schema()["devices"].items():
    # Classes are used, and pickled, as members of the package.
    globals()[_name] = parameter_class(
        _name, _entry["fields"], _entry["doc"], Device, "pulsora.devices"
    )
    register_device(globals()[_name])
