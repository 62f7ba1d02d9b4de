"""Device models: one class per model of the core, made from its table of parameters."""

from pulsora import _core
from pulsora._internal.models import Model
from pulsora._internal.parameters import parameter_class, register_model


class Device(Model):
    """A device model with its parameters."""

    _kind = "device"


MODELS: tuple[str, ...] = tuple(_core.schema()["devices"])
"""Names of the device models, in the order of the core."""

__all__ = ["MODELS", "Device"]
__all__ += list(MODELS)

for _name, _entry in _core.schema()["devices"].items():
    # Classes are used, and pickled, as members of the package.
    globals()[_name] = parameter_class(
        _name, _entry["fields"], _entry["doc"], Device, "pulsora.devices"
    )
    register_model("device", globals()[_name])
