"""Configurations of tiles, and of what surrounds an array."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pulsora import _core, devices  # noqa: F401  (the models must be known before a default device is made)
from pulsora._parameters import Field, Parameters, parameter_class, register_struct

_STRUCTS: dict[str, list[Field]] = _core.schema()["structs"]
_TILE: dict[str, Field] = {field["name"]: field for field in _STRUCTS["TileConfig"]}

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


class TileConfig(Parameters):
    """Everything that defines a tile but its sizes and its seed."""

    kind: ClassVar[str] = "single"
    own_table: ClassVar[tuple[str, ...]] = ()
    """Fields of this class that the core keeps in a table of their own, named as the kind."""

    @classmethod
    def _validated(cls, values: Mapping[str, object]) -> dict[str, Any]:
        own = {name: value for name, value in values.items() if name in cls.own_table}
        rest = {name: value for name, value in values.items() if name not in cls.own_table}
        complete = dict(_core.validate("TileConfig", {"kind": cls.kind, **rest}, cls.__name__))
        if cls.own_table:
            complete |= _core.validate(_TILE[cls.kind]["struct"], own, cls.__name__)
        return complete

    def to_dict(self) -> dict[str, Any]:
        """The configuration as the core takes it, in plain values."""
        values = super().to_dict()
        own = {name: values.pop(name) for name in self.own_table}
        return {"kind": self.kind, **({self.kind: own} if own else {}), **values}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TileConfig":
        """The configuration that to_dict() described; what `values` lack takes its default.

        Raises:
            ConfigError: For an unknown name or a bad value, or if `values` describe another kind of tile.
        """
        complete = _core.validate("TileConfig", {"kind": cls.kind, **values}, "")
        made = _KINDS[complete["kind"]]
        if not issubclass(made, cls):
            raise _core.ConfigError(
                f"kind is {made.kind!r}, which is not a {cls.__name__}; use TileConfig.from_dict()"
            )
        given = dict(values.get(made.kind, {}) if made.own_table else {}) | dict(values)
        # A complete table of the core holds the defaults of other kinds too; they mean nothing here.
        return super(TileConfig, made).from_dict(
            {name: value for name, value in given.items() if name in made._fields}
        )


def _tile_fields(*names: str, **defaults: dict[str, Any]) -> list[Field]:
    rows = [_TILE[name].copy() for name in names]
    for row in rows:
        row["default"] = row["default"] | defaults.get(row["name"], {})
    return rows


SingleConfig = parameter_class(
    "SingleConfig",
    _tile_fields("device", "forward", "backward", "update"),
    "One pulsed array of one device model.",
    TileConfig,
    __name__,
    kind="single",
)
IdealConfig = parameter_class(
    "IdealConfig",
    _tile_fields(
        "forward", "backward", forward={"is_perfect": True}, backward={"is_perfect": True}
    ),
    "Floating-point weights, as a digital baseline. Reads are perfect unless told otherwise.",
    TileConfig,
    __name__,
    kind="ideal",
)
LRTTConfig = parameter_class(
    "LRTTConfig",
    [*_STRUCTS["LRTTParams"], *_tile_fields("forward", "backward", "update")],
    "The pulsed low-rank adapter: fast arrays A [d, K] and B [K, x] on a visible array W [d, x].",
    TileConfig,
    __name__,
    kind="lrtt",
    own_table=tuple(field["name"] for field in _STRUCTS["LRTTParams"]),
)
_KINDS: dict[str, type[TileConfig]] = {
    made.kind: made for made in (SingleConfig, IdealConfig, LRTTConfig)
}
