"""Configuration classes made from the core's table of parameters.

Every name, default, unit, range and sentence of documentation stands in the C++ headers; nothing is
repeated here.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict, TypeVar

from pulsora import _core

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from typing_extensions import Self


SOURCE_KEY = "source_sha256"
"""Name of the SHA-256 of a device model's source, in classes and in files of devices."""


class Field(TypedDict):
    """One row of the table."""

    name: str
    type: str
    """float, int, bool, enum, floats, auto, auto int, struct, device, devices or noise_model.

    A noise_model whose default is None may be None.
    """
    unit: str
    doc: str
    range: str
    choices: list[str]
    """Choices of an enum, or the keyword of an auto."""
    struct: str
    """Name of the class of a struct."""
    default: Any


class Compound(TypedDict):
    """One kind of tile: its parameters and its periphery."""

    name: str
    """Name of the class of its configurations."""
    doc: str
    fields: list[Field]
    """Its own parameters."""
    periphery: list[Field]
    """Its parameters among "forward", "backward" and "update", with its defaults."""
    variants: dict[str, dict[str, Any]]
    """Settings that tests try beside the defaults, by name."""


class Parameters:
    """Named parameters that are always valid: creation and assignment check names and ranges.

    Values are kept as the core keeps them (numbers in single precision), so that a configuration
    that went into a tile equals the one that comes out. Lists are kept as tuples. Where two
    parameters constrain one another, set both at once with replace().

    Tiles and layers keep a frozen copy (`frozen`), whose parameters cannot be assigned to; copies
    of a frozen object by replace(), copy and pickle can be changed.
    """

    _fields: ClassVar[dict[str, Field]] = {}
    _is_frozen: ClassVar[bool] = False  # an attribute of frozen objects says True

    def __init__(self, **values: object) -> None:
        self._assign(values)

    @classmethod
    def _validated(cls, values: Mapping[str, object]) -> dict[str, Any]:
        """Returns all parameters, with defaults for missing values; ConfigError for bad ones."""
        return dict(_core.validate(cls.__name__, values, cls.__name__))

    def _assign(self, values: Mapping[str, object]) -> None:
        for name in values:
            self._require_known(name)
            self._require_object(name, values[name])
        # Objects of these classes are valid already, and so are defaults; the core checks the rest.
        # Whether other parameters are valid may depend on a noise model.
        valid = {name for name, value in values.items() if _is_valid(self._fields[name], value)}
        plain = {
            name: _plain(value)
            for name, value in values.items()
            if name not in valid or self._fields[name]["type"] == "noise_model"
        }
        checked = self._validated(plain)
        for name, field in self._fields.items():
            if name not in values:
                value = default_of(field)
            elif name not in valid and not _holds_devices(field, values[name]):
                value = _from_plain(field, checked[name])
            else:
                value = values[name]
            value = tuple(value) if isinstance(value, list) else value
            object.__setattr__(self, name, _with_objects(value, Parameters._thawed))

    @classmethod
    def _of_valid(cls, values: Mapping[str, Any]) -> Self:
        """Makes an object from plain values that are complete and already checked."""
        made = cls.__new__(cls)
        for name, field in cls._fields.items():
            object.__setattr__(made, name, _from_plain(field, values[name]))
        return made

    @classmethod
    def _require_known(cls, name: str) -> None:
        if name not in cls._fields:
            hint = suggestion(name, cls._fields)
            raise _core.ConfigError(f"{cls.__name__} has no parameter {name!r}{hint}")

    @classmethod
    def _require_object(cls, name: str, value: object) -> None:
        kind = cls._fields[name]["type"]
        entries = enumerate(value) if kind == "devices" and isinstance(value, list | tuple) else ()
        given = {f"{name}[{i}]": entry for i, entry in entries}
        if kind in {"struct", *MODELS}:
            given[name] = value
        for path, entry in given.items():
            made = getattr(entry, "__name__", None)
            if callable(entry) and made:
                raise _core.ConfigError(
                    f"{cls.__name__}.{path} is {made} itself, not an object of it; did you mean "
                    f"{made}()?"
                )

    def frozen(self) -> Self:
        """A copy whose parameters cannot be assigned to, objects in it included."""
        if self._is_frozen:
            return self
        made = type(self).__new__(type(self))
        for name, value in self._values().items():
            object.__setattr__(made, name, _with_objects(value, Parameters.frozen))
        object.__setattr__(made, "_is_frozen", True)
        return made

    def _thawed(self) -> Parameters:
        """The object itself, or a copy that can be changed if the object is frozen."""
        return self.replace() if self._is_frozen else self

    def __getstate__(self) -> dict[str, Any]:
        """The parameters, so that copies are not frozen."""
        return self._values()

    def __copy__(self) -> Self:
        return self.replace()

    def __setattr__(self, name: str, value: object) -> None:
        self._require_known(name)
        if self._is_frozen:
            raise AttributeError(
                f"{name} cannot be set: this {type(self).__name__} is of tiles that are made, and "
                "their configuration does not change. For new tiles, change a copy, "
                f"config.replace({name}=...) or copy.deepcopy(config); to read these cells under "
                "other converters, use pulsora.with_io(model, forward=...)"
            )
        self._assign(self._values() | {name: value})

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a parameter cannot be deleted; set {name} to its default instead")

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._fields}

    def to_dict(self) -> dict[str, Any]:
        """All parameters as plain values: what from_dict() and JSON take."""
        return {name: _plain(value) for name, value in self._values().items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> Self:
        """The object that to_dict() described; parameters that `values` lacks take their default.

        Raises:
            ConfigError: For an unknown name or a bad value.
            TypeError: If `values` are no mapping.
        """
        require_mapping(values)
        made = cls.__new__(cls)
        made._assign(values)  # noqa: SLF001 - unlike a call, takes names that are no text
        return made

    def replace(self, **changes: object) -> Self:
        """A copy with some parameters changed, checked together; objects in it are copies, too.

        Raises:
            ConfigError: For an unknown name or a bad value.
        """
        kept = {
            name: _with_objects(value, Parameters.replace)
            for name, value in self._values().items()
            if name not in changes
        }
        return type(self)(**(kept | changes))

    def __repr__(self) -> str:
        changed = [
            f"{name}={value!r}"
            for name, value in self._values().items()
            if value != default_of(self._fields[name])
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __str__(self) -> str:
        return "\n".join([type(self).__name__, *self._lines("  ")])

    def _lines(self, indent: str) -> Iterator[str]:
        """Yields a line for each parameter: its value, and its default if the value differs."""
        width = max(map(len, self._fields), default=0)
        for name, value in self._values().items():
            label = f"{indent}{name:{width}}  "
            for path, entry in objects_of(name, value).items():
                yield f"{indent}{path:{width}}  {type(entry).__name__}"
                yield from entry._lines(f"{indent}  ")  # noqa: SLF001 - of this class
            if not objects_of(name, value):
                default = default_of(self._fields[name])
                yield f"{label}{value!r}" + ("" if value == default else f"  (default {default!r})")


_P = TypeVar("_P", bound=Parameters)
_STRUCTS: dict[str, type[Parameters]] = {}
_DEVICES: dict[str, type[Parameters]] = {}
_NOISE_MODELS: dict[str, type[Parameters]] = {}
MODELS = {"device": _DEVICES, "noise_model": _NOISE_MODELS}
"""Classes of models by the type of the fields that hold them."""


def parameter_class(
    name: str, fields: Iterable[Field], doc: str, base: type[_P], module: str, **attributes: object
) -> type[_P]:
    """Makes the dataclass `name`, a subclass of `base`, with these fields and class attributes."""
    rows = {field["name"]: field for field in fields}
    members = [
        (name, Any, dataclasses.field(default_factory=partial(default_of, row)))
        for name, row in rows.items()
    ]
    made: type[_P] = dataclasses.make_dataclass(
        name,
        members,
        bases=(base,),
        init=False,
        repr=False,
        namespace={
            "__module__": module,
            "__doc__": _docstring(doc, rows.values()),
            "_fields": rows,
            **attributes,
        },
    )
    # Python 3.12 would take the module from the caller, and then no object could be pickled.
    made.__module__ = module
    made.__signature__ = _signature(rows.values())  # type: ignore[attr-defined]
    return made


def register_struct(made: type[Parameters]) -> None:
    """Registers the class as the type of struct fields that have its name."""
    _STRUCTS[made.__name__] = made


def register_model(kind: str, made: type[Parameters]) -> None:
    """Registers the class as the model of its name, of the kind "device" or "noise_model"."""
    MODELS[kind][made.__name__] = made


def registered_devices() -> dict[str, type[Parameters]]:
    """Returns all device models by name: the models of the core, then models from source."""
    return dict(_DEVICES)


def require_mapping(values: object) -> None:
    """Raises TypeError unless the values are a mapping."""
    if not isinstance(values, Mapping):
        raise TypeError(f"values are of type {type(values).__name__}; pass a dict, name by value")


def suggestion(wanted: object, known: Iterable[str]) -> str:
    """Returns the end of a message about an unknown name: which known name may be meant."""
    return _core.suggest(str(wanted).encode(errors="replace").decode(), list(known))


def default_of(field: Field) -> Any:  # noqa: ANN401
    """Returns the default of a parameter in the form that attributes hold."""
    return _from_plain(field, field["default"])


def annotation(field: Field) -> str:
    """Returns the type annotation of a parameter."""
    choices = ", ".join(f'"{choice}"' for choice in field["choices"])
    return {
        "floats": "Sequence[float]",
        "auto": f"float | Literal[{choices}]",
        "auto int": f"int | Literal[{choices}]",
        "enum": f"Literal[{choices}]",
        "struct": field["struct"],
        "device": "Device",
        "noise_model": "NoiseModel" if field["default"] else "NoiseModel | None",
        "devices": "Sequence[Device]",
    }.get(field["type"], field["type"])


def described(field: Field) -> str:
    """Unit, range and documentation of a parameter in one sentence."""
    limits = "" if field["range"] in {"", "any finite number"} else f"{field['range']}. "
    unit = f"[{field['unit']}] " if field["unit"] else ""
    return f"{unit}{limits}{field['doc']}"


def _plain(value: object) -> object:
    if isinstance(value, Parameters):
        return value.to_dict()
    if isinstance(value, list | tuple):
        return [entry.to_dict() if isinstance(entry, Parameters) else entry for entry in value]
    return value


def _is_valid(field: Field, value: object) -> bool:
    """Whether the value is an object of a class that the field asks for; such objects are valid."""
    if field["type"] == "struct":
        return type(value) is _STRUCTS[field["struct"]]
    return field["type"] in MODELS and type(value) in MODELS[field["type"]].values()


def _holds_devices(field: Field, value: object) -> bool:
    """Whether the value lists objects of devices, which the configuration keeps."""
    return (
        field["type"] == "devices"
        and isinstance(value, list | tuple)
        and all(type(entry) in _DEVICES.values() for entry in value)
    )


def _from_plain(field: Field, value: Any) -> Any:  # noqa: ANN401
    """Converts a plain value that the core has checked to the form that attributes hold."""
    if field["type"] == "struct":
        return _STRUCTS[field["struct"]]._of_valid(value)  # noqa: SLF001 - a class of this module
    if field["type"] in MODELS and value is not None:
        return MODELS[field["type"]][value["model"]]._of_valid(value)  # noqa: SLF001
    if field["type"] == "devices":
        return tuple(_DEVICES[entry["model"]]._of_valid(entry) for entry in value)  # noqa: SLF001
    return tuple(value) if field["type"] == "floats" else value


def objects_of(name: str, value: object) -> dict[str, Any]:
    """The objects in the value of a parameter by path: `name`, or `name[i]` in a list."""
    if isinstance(value, Parameters):
        return {name: value}
    entries = enumerate(value) if isinstance(value, tuple) else ()
    return {f"{name}[{i}]": entry for i, entry in entries if isinstance(entry, Parameters)}


def _with_objects(value: Any, change: Callable[[Any], Any]) -> Any:  # noqa: ANN401
    """The value of a parameter with each object in it changed."""
    if isinstance(value, Parameters):
        return change(value)
    return tuple(map(change, value)) if objects_of("", value) else value


def _docstring(doc: str, fields: Iterable[Field]) -> str:
    rows = (f"    {field['name']}: {described(field)}" for field in fields)
    return "\n".join([doc, "", "Args:", *rows])


def _signature(fields: Iterable[Field]) -> inspect.Signature:
    return inspect.Signature(
        [
            inspect.Parameter(
                field["name"],
                inspect.Parameter.KEYWORD_ONLY,
                default=default_of(field),
                annotation=annotation(field),
            )
            for field in fields
        ]
    )
