"""Device models: one class per model of the core, and named devices of the literature.

`devices.SoftBounds(dw_min=2e-4)` describes the cells of an array; the parameters of each model are in its docstring
and in docs/devices.md. Presets such as `devices.EcRam()` return one of these models with published values.
"""

from collections.abc import Mapping
from typing import Any

from pulsora import _core
from pulsora._parameters import Parameters, device_from_dict, parameter_class, register_device


class Device(Parameters):
    """A device model with its parameters."""

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
        """
        model = values.get("model", cls.__name__)
        if cls is Device:
            return device_from_dict(values)
        if model != cls.__name__:
            raise _core.ConfigError(
                f"model is {model!r}, but the class is {cls.__name__}; use Device.from_dict()"
            )
        return super().from_dict({name: value for name, value in values.items() if name != "model"})


MODELS: tuple[str, ...] = tuple(_core.schema()["devices"])
"""Names of the device models, in the order of the core."""

for _name, _entry in _core.schema()["devices"].items():
    globals()[_name] = parameter_class(_name, _entry["fields"], _entry["doc"], Device, __name__)
    register_device(globals()[_name])


def __getattr__(name: str) -> object:
    # Presets are made of the classes above, so they are looked up only when one is asked for.
    from pulsora import presets  # noqa: PLC0415

    if name in presets.DEVICES:
        return presets.DEVICES[name]
    hint = _core.suggest(name, [*MODELS, *presets.DEVICES])
    raise AttributeError(f"pulsora.devices has no device {name!r}{hint}")
