"""Device models: one class per model of the core, made from its table of parameters."""

from collections.abc import Mapping
from typing import Any, ClassVar, SupportsIndex

from pulsora import _core
from pulsora._internal.models import Model, model_from_dict, require_source
from pulsora._internal.parameters import parameter_class, register_device


class Device(Model):
    """A device model with its parameters."""

    _kind = "device"
    source_sha256: ClassVar[str] = ""
    """SHA-256 of the source of a model that from_source() made; empty for built-in models."""

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> str | tuple[Any, ...]:
        """Pickles of devices whose model is from source contain the SHA-256 of that source."""
        if not self.source_sha256:
            return super().__reduce_ex__(protocol)
        return _unpickled, (self.model, self.source_sha256, self._values())


def _unpickled(model: str, sha256: str, values: Mapping[str, object]) -> Device:
    require_source(model, sha256, "the pickle")
    made = model_from_dict("device", {"model": model, **values})
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
