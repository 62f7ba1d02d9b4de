"""Configurations of tiles: a class for each compound of the core, and for the periphery."""

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from pulsora import _core
from pulsora._internal.parameters import (
    Compound,
    Field,
    Parameters,
    default_of,
    objects_of,
    parameter_class,
    register_struct,
    require_mapping,
    suggestion,
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
    """Path (named_devices()) of the device whose cells hold written weights; "" without cells."""
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
    follows: bool
    """With `digital_weight`: whether cells follow the parameter by pulses after each step."""


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

        Parameters that `values` lack take their default. So do settings that have no effect beside
        the others, with a warning: earlier versions took them.

        Raises:
            ConfigError: For an unknown name or a bad value, or if `values` describe another kind of
                tile.
            TypeError: If `values` are no mapping.
        """
        require_mapping(values)
        used = _core.used_settings({"kind": cls.kind, **values})
        complete = _core.validate("TileConfig", used, "")
        _warn_of_unused(values, used, complete)
        made = CLASSES[complete["kind"]]
        if not issubclass(made, cls):
            raise _core.ConfigError(
                f"kind is {made.kind!r}, which is not a {cls.__name__}; use TileConfig.from_dict()"
            )
        return made._of_valid(complete)  # noqa: SLF001 - a class of this module

    def named_devices(self) -> dict[str, Device]:
        """The devices by path: "visible", or "devices[0]" of a list, in the order of parameters."""
        return {
            path: device
            for name, field in self._fields.items()
            if field["type"] in {"device", "devices"}
            for path, device in objects_of(name, getattr(self, name)).items()
        }

    def with_devices(self, changes: Mapping[str, Device]) -> "TileConfig":
        """A copy with other devices at these paths of named_devices().

        Raises:
            ConfigError: For a path that named_devices() lacks, or a bad device.
        """
        given = self.named_devices()
        for path in changes:
            if path not in given:
                raise _core.ConfigError(
                    f"{type(self).__name__} has no device {path!r}{suggestion(path, given)}"
                )
        changed: dict[str, Any] = {}
        for path, device in (given | dict(changes)).items():
            name, is_entry, _ = path.partition("[")
            changed[name] = [*changed.get(name, ()), device] if is_entry else device
        return self.replace(**changed)

    @property
    def facts(self) -> CompoundFacts:
        """Properties of the compound, on which layers, optimisers and recorded steps depend."""
        return CompoundFacts(**_core.compound_facts(self.to_dict()))

    def summary(self) -> str:
        """One line with its models and its own parameters that are not the default."""
        fields = COMPOUNDS[self.kind]["fields"]
        has_cells = getattr(self, "write", "pulses") == "pulses"
        shown = []
        for name, kind in ((field["name"], field["type"]) for field in fields):
            value = getattr(self, name)
            if kind == "device":
                shown += [f"{name}={value.model}"] if has_cells else []
            elif kind == "noise_model":
                shown += [] if value is None else [f"{name}={value.model}"]
            elif kind == "devices":
                shown.append(f"{name}=[{', '.join(device.model for device in value)}]")
            elif value != default_of(self._fields[name]):
                shown.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


def _warn_of_unused(
    values: Mapping[str, Any], used: Mapping[str, Any], complete: Mapping[str, Any], path: str = ""
) -> None:
    """Warns of settings that were left out of `used`, if their values differ from the result."""
    for name, value in values.items():
        if name not in complete:  # a table of an earlier version
            continue
        if isinstance(value, Mapping) and isinstance(used.get(name), Mapping):
            _warn_of_unused(value, used[name], complete[name], f"{path}{name}.")
        elif name not in used and _plain(value) != complete[name]:
            warnings.warn(
                f"{path}{name} is {_shown(value)}, which has no effect beside the other settings; "
                f"it takes its default, {_shown(complete[name])}. Leave it out",
                stacklevel=3,
            )


def _plain(value: Any) -> Any:  # noqa: ANN401 - any setting
    """Arrays and tuples as lists, and numbers of arrays as those of Python."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


def _shown(value: Any) -> str:  # noqa: ANN401 - any setting
    """A setting in a message; tables are {...}."""
    if isinstance(value, Mapping):
        return "{...}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_shown, value))}]"
    return repr(value)


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
