"""Random configurations and tiles, from the core's own table of parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

import pulsora as pl
from pulsora import _core
from pulsora.config import CLASSES
from tests.fuzz.random_source import EXTREMES, plain_values

if TYPE_CHECKING:
    from pulsora._internal.parameters import Field
    from tests.fuzz.random_source import Draws

SCHEMA = _core.schema()
MODELS: list[str] = list(SCHEMA["devices"])
NOISE_MODELS: list[str] = list(SCHEMA["noise_models"])
KINDS: list[str] = list(SCHEMA["compounds"])

ValueOf = Callable[["Draws", "Field"], Any]
"""How a parameter gets its value."""


@cache
def _limits(text: str) -> tuple[tuple[str, float], ...]:
    """The range of a parameter, as the core words it, as comparisons: ">= 1 and <= 65536"."""
    if not text or text == "any finite number":
        return ()
    parts = (part.split() for part in text.split(" and "))
    return tuple((sign, float(number)) for sign, number in parts)


def _within(number: float, text: str) -> bool:
    holds = {">": np.greater, ">=": np.greater_equal, "<": np.less, "<=": np.less_equal}
    return all(holds[sign](number, limit) for sign, limit in _limits(text))


def _number(draws: Draws, field: Field, candidates: list[float]) -> float:
    """One of the candidates, or its opposite, that is within the range; otherwise the default."""
    for _ in range(4):
        number = draws.pick(candidates)
        for signed in (number, -number):
            if _within(signed, field["range"]):
                return signed
    default: float = field["default"]
    return default


def _real(draws: Draws, field: Field, *, extreme: bool) -> float:
    if extreme:
        return _number(draws, field, list(EXTREMES))
    near = field["default"] if field["type"] == "float" else 1.0
    usual = [0.0, 1e-3, 0.01, 0.1, 0.5, 1.0, draws.uniform(0.0, 1.0)]
    return _number(draws, field, [near * draws.uniform(0.3, 3.0), near, *usual])


def _valid(draws: Draws, field: Field, *, extreme: bool) -> Any:  # noqa: ANN401
    """A value of the right type and within the range, by itself; together they may be refused."""
    kind = field["type"]
    if kind == "devices":
        return [device_values(draws, plausible) for _ in range(draws.integer(1, 3))]
    if kind == "noise_model":
        return noise_model_values(draws, plausible)
    if kind == "bool":
        return draws.chance(0.5)
    if kind == "auto int" and draws.chance(0.4):
        return draws.pick(field["choices"])
    if kind in {"int", "auto int"}:
        large = [2.0**31 - 1, 2.0**53, 65536.0] if extreme else []
        return int(_number(draws, field, [0.0, 1.0, 2.0, 3.0, 5.0, 7.0, 20.0, 31.0, *large]))
    if kind == "enum":
        return draws.pick(field["choices"])
    if kind == "auto":
        return (
            draws.pick(field["choices"])
            if draws.chance(0.4)
            else _real(draws, field, extreme=extreme)
        )
    if kind == "floats":
        length = draws.pick([64, 65]) if extreme else draws.integer(1, 5)
        numbers = [draws.extreme() if extreme else draws.uniform(0.1, 2.0) for _ in range(length)]
        return draws.pick([list, tuple, np.array])(numbers)  # type: ignore[operator]
    return _real(draws, field, extreme=extreme)


def plausible(draws: Draws, field: Field) -> Any:  # noqa: ANN401
    """A value as a user would choose it."""
    return _valid(draws, field, extreme=False)


def extreme(draws: Draws, field: Field) -> Any:  # noqa: ANN401
    """A value within the range, now and then at the edge of what numbers can be."""
    return _valid(draws, field, extreme=draws.chance(0.3))


def hostile(draws: Draws, field: Field) -> Any:  # noqa: ANN401
    """Now and then anything at all."""
    return draws.pick(plain_values(draws)) if draws.chance(0.15) else extreme(draws, field)


def values_of(draws: Draws, fields: list[Field], value_of: ValueOf) -> dict[Any, Any]:
    """Some of the parameters; nested ones as plain values."""
    share = draws.pick((0.05, 0.2, 0.6))
    values: dict[Any, Any] = {}
    for field in fields:
        nested = field["type"] in {"struct", "device", "devices", "noise_model"}
        if not draws.chance(0.6 if nested else share):
            continue
        if nested and (value_of is not hostile or draws.chance(0.95)):
            values[field["name"]] = _nested(draws, field, value_of)
        else:
            values[field["name"]] = value_of(draws, field)
    if value_of is hostile and draws.chance(0.05):
        values[draws.pick(("", "dw_mim", "kind", "model", "ä", "\ud800", 7, None, ("rank",)))] = 1
    return values


def _nested(draws: Draws, field: Field, value_of: ValueOf) -> Any:  # noqa: ANN401
    if field["type"] == "devices":
        length = draws.integer(1, 3) if value_of is plausible else draws.integer(0, 9)
        return [device_values(draws, value_of) for _ in range(length)]
    if field["type"] == "struct":
        return values_of(draws, SCHEMA["structs"][field["struct"]], value_of)
    if field["type"] == "noise_model":
        return noise_model_values(draws, value_of)
    return device_values(draws, value_of)


def device_values(draws: Draws, value_of: ValueOf) -> dict[Any, Any]:
    """A device model as plain values."""
    model = draws.pick(MODELS)
    return {"model": model, **values_of(draws, SCHEMA["devices"][model]["fields"], value_of)}


def noise_model_values(draws: Draws, value_of: ValueOf) -> dict[Any, Any]:
    """A noise model as plain values."""
    model = draws.pick(NOISE_MODELS)
    return {"model": model, **values_of(draws, SCHEMA["noise_models"][model]["fields"], value_of)}


def config_values(draws: Draws, value_of: ValueOf, kind: str | None = None) -> dict[Any, Any]:
    """A configuration as plain values, now and then on top of a variant of its compound."""
    chosen = kind or draws.pick(KINDS)
    compound = SCHEMA["compounds"][chosen]
    fields = [*compound["fields"], *compound["periphery"]]
    variants = list(compound["variants"].values())
    base = draws.pick(variants) if variants and draws.chance(0.5) else {}
    return {"kind": chosen, **base, **values_of(draws, fields, value_of)}


def config(draws: Draws, kind: str | None = None, value_of: ValueOf = plausible) -> pl.TileConfig:
    """A configuration that is accepted."""
    for _ in range(8):
        values = config_values(draws, value_of, kind)
        try:
            return pl.TileConfig.from_dict(values)
        except pl.ConfigError:
            continue
    return CLASSES[kind or draws.pick(KINDS)]()


def tile(draws: Draws, made: pl.TileConfig, largest: int = 9) -> pl.Tile:
    """A tile of this configuration, of a size for which it is accepted."""
    rank = getattr(made, "rank", 0)
    if rank == "auto":
        rank = 1
    elif rank > largest:
        rank = draws.integer(0, 3)
        made = made.replace(rank=rank, rank_chunk=-1, rank_offset=0)
    least = max(1, rank)
    sizes = [draws.integer(least, max(least, largest)) for _ in range(2)]
    options = {"seed": draws.integer(0, 99), "threads": draws.integer(1, 2)}
    draws.note("Tile", sizes, options, made)
    try:
        return pl.Tile(*sizes, made, **options)
    except pl.ConfigError as error:
        draws.note("refused", error)
        made = CLASSES[made.kind](**({"rank": least} if "rank" in made._fields else {}))
        draws.note("instead", made)
        return pl.Tile(*sizes, made, **options)
