"""What the core will say itself about the compounds that a tile can hold; a stop-gap until it does.

Once `_core.schema()` has "compounds", this file goes: its three functions on configurations are then
`_core.schema()["compounds"]`, `_core.validate(<name of the class>, values, path)` and the values as they are, and the two
on tiles are `_core.Tile.arrays()` and `_core.Tile.adapter_rank`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsora import _core

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pulsora._parameters import Compound, Field

_STRUCTS: dict[str, list[Field]] = _core.schema()["structs"]
_TILE: dict[str, Field] = {field["name"]: field for field in _STRUCTS["TileConfig"]}
_ADAPTER = [field["name"] for field in _STRUCTS["LRTTParams"]]


def _surroundings(*names: str, **defaults: object) -> list[Field]:
    fields = [_TILE[name].copy() for name in names]
    for field in fields:
        field["default"] = field["default"] | defaults
    return fields


def schema() -> dict[str, Compound]:
    """The compounds by kind."""
    return {
        "single": {
            "name": "SingleConfig",
            "doc": "One pulsed array of one device model.",
            "fields": [_TILE["device"]],
            "surroundings": _surroundings("forward", "backward", "update"),
        },
        "ideal": {
            "name": "IdealConfig",
            "doc": "Floating-point weights, as a digital baseline. Reads are perfect unless told otherwise.",
            "fields": [],
            "surroundings": _surroundings("forward", "backward", is_perfect=True),
        },
        "lrtt": {
            "name": "LRTTConfig",
            "doc": "The pulsed low-rank adapter: fast arrays A [d, K] and B [K, x] on a visible array W [d, x].",
            "fields": _STRUCTS["LRTTParams"],
            "surroundings": _surroundings("forward", "backward", "update"),
        },
    }


def validate(kind: str, values: Mapping[str, object], path: str) -> dict[str, Any]:
    """The parameters of a compound and its surroundings, complete; ConfigError for bad ones."""
    own = {name: value for name, value in values.items() if kind == "lrtt" and name in _ADAPTER}
    rest = {name: value for name, value in values.items() if name not in own}
    complete: dict[str, Any] = _core.validate("TileConfig", {"kind": kind, **rest}, path)
    return complete | (_core.validate("LRTTParams", own, path) if own else {})


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration as the core takes it now: with the adapter's settings in a table of their own."""
    if values["kind"] != "lrtt":
        return dict(values)
    rest = {name: value for name, value in values.items() if name not in _ADAPTER}
    return rest | {"lrtt": {name: values[name] for name in _ADAPTER}}


def rank_of(tile: _core.Tile) -> int:
    """Rank of the adapter of a tile; 0 if it has none."""
    config = tile.config()
    return int(config["lrtt"]["rank"]) if config["kind"] == "lrtt" else 0


def arrays_of(tile: _core.Tile) -> tuple[str, ...]:
    """The names of the arrays of a tile."""
    if tile.config()["kind"] == "ideal":
        return ()
    return ("visible", "fast_a", "fast_b") if rank_of(tile) else ("visible",)
