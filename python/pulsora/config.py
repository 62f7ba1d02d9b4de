"""Configurations of tiles: one class per compound of the core, and what surrounds an array."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pulsora import _compounds, _core
from pulsora._parameters import (
    Compound,
    Field,
    Parameters,
    default_of,
    parameter_class,
    register_struct,
    suggestion,
)
from pulsora.devices import Device

_STRUCTS: dict[str, list[Field]] = _core.schema()["structs"]

UpdateParameters = parameter_class(
    "UpdateParameters",
    _STRUCTS["UpdateParameters"],
    "How activations and gradients become pulses.",
    Parameters,
    __name__,
)
IOParameters = parameter_class(
    "IOParameters",
    _STRUCTS["IOParameters"],
    "Converters, noise and bounds of one read direction.",
    Parameters,
    __name__,
)
register_struct(UpdateParameters)
register_struct(IOParameters)

COMPOUNDS: dict[str, Compound] = _compounds.schema()
"""What a tile can hold, by kind, as the core describes it."""


class TileConfig(Parameters):
    """Everything that defines a tile but its sizes and its seed."""

    kind: ClassVar[str] = "single"

    @classmethod
    def _validated(cls, values: Mapping[str, object]) -> dict[str, Any]:
        return _compounds.validate(cls.kind, values, cls.__name__)

    def to_dict(self) -> dict[str, Any]:
        """The kind of the tile under "kind", and all parameters as plain values."""
        return {"kind": self.kind, **super().to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TileConfig":
        """The configuration that to_dict() described; what `values` lack takes its default.

        Raises:
            ConfigError: For an unknown name or a bad value, or if `values` describe another kind of tile.
        """
        kind = values.get("kind", cls.kind)
        if not isinstance(kind, str):
            raise _core.ConfigError(f"kind is {kind!r}; write one of its names as text")
        if kind not in CLASSES:
            raise _core.ConfigError(
                f"kind is {kind!r}, which is not a choice{suggestion(kind, CLASSES)}"
            )
        made = CLASSES[kind]
        if not issubclass(made, cls):
            raise _core.ConfigError(
                f"kind is {kind!r}, which is not a {cls.__name__}; use TileConfig.from_dict()"
            )
        return super(TileConfig, made).from_dict(_flat(made, values))

    def devices(self) -> dict[str, Device]:
        """The devices of its arrays by parameter, that of the array to which weights are written first."""
        return {
            name: getattr(self, name)
            for name, field in self._fields.items()
            if field["type"] == "device"
        }

    @property
    def reads_back(self) -> bool:
        """Whether an update needs the backward read of its batch, even if nobody asks for what it gives."""
        return bool(getattr(self, "projection", None) == "reuse")

    def summary(self) -> str:
        """What it is in one line: the models of its devices, and its own parameters that are not the default."""
        devices = self.devices()
        own = [field["name"] for field in COMPOUNDS[self.kind]["fields"]]
        shown = [
            f"{name}={devices[name].model if name in devices else repr(getattr(self, name))}"
            for name in own
            if name in devices or getattr(self, name) != default_of(self._fields[name])
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


CLASSES: dict[str, type[TileConfig]] = {
    kind: parameter_class(
        compound["name"],
        [*compound["fields"], *compound["surroundings"]],
        compound["doc"],
        TileConfig,
        __name__,
        kind=kind,
    )
    for kind, compound in COMPOUNDS.items()
}
"""The configurations of each kind of tile."""

globals().update({made.__name__: made for made in CLASSES.values()})

__all__ = ["IOParameters", "TileConfig", "UpdateParameters"]
__all__ += [made.__name__ for made in CLASSES.values()]


def _flat(made: type[TileConfig], values: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a class in a table that may be of an earlier version.

    Such a table has the settings of an adapter in a table of their own, "lrtt". One that a core wrote is that of every
    kind of tile at once, of which the settings of other kinds mean nothing.
    """
    flat = {name: value for name, value in values.items() if name != "kind"}
    if "lrtt" not in values:
        return flat
    own = flat.pop("lrtt")
    if not isinstance(own, Mapping):
        raise _core.ConfigError(f"lrtt is {own!r}; write its settings as a table")
    for name in ("device", "update"):
        if name not in made._fields:
            flat.pop(name, None)
    return flat | (dict(own) if made.kind == "lrtt" else {})
