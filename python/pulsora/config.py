"""Configurations of tiles: a class for each compound of the core, and for the periphery."""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from pulsora import _core
from pulsora._internal.parameters import (
    Compound,
    Field,
    Parameters,
    default_of,
    parameter_class,
    register_struct,
    require_mapping,
)
from pulsora.devices import Device
from pulsora.noise_models import NoiseModel  # noqa: F401 - registers the classes of its fields

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

COMPOUNDS: dict[str, Compound] = _core.schema()["compounds"]
"""Kinds of tiles by name, as the core describes them."""


class CompoundFacts(NamedTuple):
    """Properties of a kind of tile with given parameters, stated by C++ (CompoundFacts)."""

    written: str
    """Name of the device parameter whose cells hold written weights; "" without cells."""
    pulses_written: bool
    """Whether every update sends pulses to the cells of `written`."""
    reuses_reads: bool
    """Whether an update needs the backward read of its mini-batch."""
    waits_for_host: bool
    """Whether the host may wait for the GPU in an update, which a recorded step must not."""
    spans_layer: bool
    """Whether one tile serves a whole layer, and is read in blocks."""
    digital_weight: bool
    """Whether a layer holds its weight as a parameter of torch, which any optimiser trains."""


class TileConfig(Parameters):
    """Everything that defines a tile but its sizes and its seed."""

    kind: ClassVar[str] = "single"

    def __init__(self, **values: object) -> None:
        if type(self) is TileConfig:
            names = ", ".join(made.__name__ for made in CLASSES.values())
            raise TypeError(
                f"TileConfig is what configurations have in common; make one of {names}"
            )
        super().__init__(**values)

    @classmethod
    def _validated(cls, values: Mapping[str, object]) -> dict[str, Any]:
        return dict(_core.validate("TileConfig", {"kind": cls.kind, **values}, cls.__name__))

    def to_dict(self) -> dict[str, Any]:
        """The kind of the tile under "kind", and all parameters as plain values."""
        return {"kind": self.kind, **super().to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TileConfig":
        """The configuration that to_dict() described, now or in earlier versions.

        Parameters that `values` lack take their default.

        Raises:
            ConfigError: For an unknown name or a bad value, or if `values` describe another kind of
                tile.
            TypeError: If `values` are no mapping.
        """
        require_mapping(values)
        complete = _core.validate("TileConfig", {"kind": cls.kind, **values}, "")
        made = CLASSES[complete["kind"]]
        if not issubclass(made, cls):
            raise _core.ConfigError(
                f"kind is {made.kind!r}, which is not a {cls.__name__}; use TileConfig.from_dict()"
            )
        return made._of_valid(complete)  # noqa: SLF001 - a class of this module

    def devices(self) -> dict[str, Device]:
        """The devices by parameter; first the device of the array to which weights are written."""
        return {
            name: getattr(self, name)
            for name, field in self._fields.items()
            if field["type"] == "device"
        }

    @property
    def facts(self) -> CompoundFacts:
        """Properties of the compound, on which layers, optimisers and recorded steps depend."""
        return CompoundFacts(**_core.compound_facts(self.to_dict()))

    def summary(self) -> str:
        """One line with its device models and its own parameters that are not the default."""
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
        [*compound["fields"], *compound["periphery"]],
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
