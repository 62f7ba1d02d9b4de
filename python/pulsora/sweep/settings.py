"""Settings of a sweep, from a file, and the experiment of a trial."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from pulsora import presets
from pulsora._internal.checks import require_at_least
from pulsora.config import TileConfig
from pulsora.training.experiment import ALGORITHMS, TILE_DEFAULTS, Experiment

__all__ = ["Choice", "Pruning", "Range", "Sweep"]

_SAMPLERS = ("tpe", "random", "grid")
_DIRECTIONS = ("maximize", "minimize")
_TILE = "tile."


@dataclass(frozen=True)
class Choice:
    """A setting with a list of values.

    Attributes:
        values: The values, by what a study stores: themselves, or JSON of lists and tables.
    """

    values: Mapping[Any, Any]

    def value(self, stored: Any) -> Any:  # noqa: ANN401 - any setting
        """The value of a setting, by what a study stores."""
        return self.values[stored]

    @property
    def ends(self) -> list[Any]:
        """All values, to be tried before a sweep begins."""
        return list(self.values.values())


@dataclass(frozen=True)
class Range:
    """A setting with a range of numbers, both ends included.

    Attributes:
        low: Least value; whole numbers are drawn if both ends are whole.
        high: Greatest value.
        log: Whether the logarithm is drawn.
    """

    low: float
    high: float
    log: bool = False

    @property
    def whole(self) -> bool:
        """Whether values are whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def value(self, stored: Any) -> Any:  # noqa: ANN401 - any setting
        """The value itself."""
        return stored

    @property
    def ends(self) -> list[Any]:
        """Both ends, to be tried before a sweep begins."""
        return [self.low, self.high]


@dataclass(frozen=True)
class Pruning:
    """Ends trials whose objective is worse than the median of earlier trials at the same epoch.

    Attributes:
        startup_trials: Trials that end before any is pruned.
        warmup_epochs: Epochs before which no trial is pruned.
    """

    startup_trials: int = 5
    warmup_epochs: int = 1

    def __post_init__(self) -> None:
        require_at_least("pruning.startup_trials", self.startup_trials, 1)
        require_at_least("pruning.warmup_epochs", self.warmup_epochs, 0)


@dataclass(frozen=True)
class Sweep:
    """A sweep.

    Attributes:
        search: Settings that vary, by name: one of `Experiment`, `tile.` and the path of a
            parameter of the tiles (`tile.update.desired_bl`), or `preset`, a name in
            `pulsora.presets` for the whole configuration of the tiles.
        settings: Settings that all trials have, with such names.
        trials: Number of trials; of a grid all by default, else 20.
        objective: The metric of the last epoch by which trials are compared.
        direction: 'maximize' or 'minimize'; of accuracy and loss by default the better one.
        sampler: 'tpe' (learns from earlier trials), 'random', or 'grid' (lists alone).
        parallel: Trials that are chosen together, and so can run at the same time.
        seed: Seed of the choices.
        pruning: When trials end early; never by default.
    """

    search: Mapping[str, Choice | Range]
    settings: Mapping[str, Any] = field(default_factory=dict)
    trials: int | None = None
    objective: str = "accuracy"
    direction: str | None = None
    sampler: str = "tpe"
    parallel: int = 1
    seed: int = 0
    pruning: Pruning | None = None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Sweep:
        """The sweep of a table of a settings file.

        Raises:
            ValueError: for unknown names, values out of range, and settings of which an experiment
                cannot be made.
        """
        known = [each.name for each in fields(cls)]
        if unknown := sorted(set(values) - set(known)):
            raise ValueError(f"unknown setting {unknown} of a sweep; there are {', '.join(known)}")
        given = dict(values)
        for name in ("search", "settings", "pruning"):
            if not isinstance(given.get(name, {}), Mapping):
                raise ValueError(  # noqa: TRY004
                    f"{name} must be a table (got {given[name]!r})"
                )
        if not given.get("search"):
            raise ValueError("search is missing; name settings to vary, such as lr = [0.1, 0.2]")
        given["search"] = {name: _search(name, one) for name, one in given["search"].items()}
        if "pruning" in given:
            names = [each.name for each in fields(Pruning)]
            if unknown := sorted(set(given["pruning"]) - set(names)):
                raise ValueError(f"unknown setting {unknown} of pruning; there are {names}")
            given["pruning"] = Pruning(**given["pruning"])
        return cls(**given)

    def __post_init__(self) -> None:
        for name, allowed in (("sampler", _SAMPLERS), ("direction", (None, *_DIRECTIONS))):
            if getattr(self, name) not in allowed:
                shown = ", ".join(str(one) for one in allowed if one)
                raise ValueError(f"{name} must be one of {shown} (got {getattr(self, name)!r})")
        if self.direction is None and self.objective not in {"accuracy", "loss"}:
            raise ValueError(f"direction is missing: maximize or minimize {self.objective!r}?")
        for name, least in (("parallel", 1), ("seed", 0)):
            require_at_least(name, getattr(self, name), least)
        if self.trials is not None:
            require_at_least("trials", self.trials, 1)
        self._require_sampler()
        both = sorted(set(self.search) & set(self.settings))
        if both:
            raise ValueError(f"{', '.join(both)}: in search and in settings; keep one of them")
        self._try_values()

    def _require_sampler(self) -> None:
        ranges = [name for name, one in self.search.items() if isinstance(one, Range)]
        if self.sampler != "grid":
            return
        if ranges:
            raise ValueError(
                f"sampler = 'grid' needs lists, and {', '.join(ranges)} has a range; list values"
            )
        if self.trials is not None and self.trials > self.combinations:
            raise ValueError(
                f"trials = {self.trials}, and the grid has {self.combinations} combinations; "
                "leave trials out for all of them"
            )

    def _try_values(self) -> None:
        """Makes an experiment with each value, so that no trial fails for a wrong name."""
        first = {name: one.ends[0] for name, one in self.search.items()}
        for name, one in self.search.items():
            for value in one.ends:
                self.experiment(first | {name: value})

    @property
    def combinations(self) -> int:
        """Number of combinations of a grid."""
        return math.prod(len(one.ends) for one in self.search.values())

    @property
    def total(self) -> int:
        """Number of trials."""
        if self.trials is not None:
            return self.trials
        return self.combinations if self.sampler == "grid" else 20

    @property
    def maximizes(self) -> bool:
        """Whether larger objectives are better."""
        return (self.direction or _DIRECTIONS[self.objective == "loss"]) == "maximize"

    @property
    def has_history(self) -> bool:
        """Whether a trial depends on the results of earlier ones."""
        return self.sampler == "tpe" or self.pruning is not None

    def experiment(self, chosen: Mapping[str, Any]) -> Experiment:
        """The experiment of a trial.

        If `search` has several algorithms, settings that the algorithm of the trial does not use
        are left out.

        Args:
            chosen: A value for each setting in `search`.

        Raises:
            ValueError: if the values make no experiment.
        """
        values = {**self.settings, **chosen}
        if "algorithm" in self.search:
            values = _used(values)
        paths = {name: values.pop(name) for name in list(values) if name.startswith(_TILE)}
        if (preset := values.pop("preset", None)) is not None:
            values["tile"] = _preset(preset)
        if not paths:
            return Experiment.from_dict(values)
        config = Experiment.from_dict(values).tile_config()
        if config is None:
            raise ValueError(f"{', '.join(paths)}: a digital run has no tiles; leave it out")
        tile = copy.deepcopy(config.to_dict())
        for name, value in paths.items():
            _put(tile, name, value)
        rest = {name: value for name, value in values.items() if name not in TILE_DEFAULTS}
        made = Experiment.from_dict({**rest, "tile": tile})
        made.tile_config()
        return made


def _used(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that the algorithm uses."""
    algorithm = values["algorithm"]
    if algorithm not in ALGORITHMS:
        return dict(values)
    unused = set(TILE_DEFAULTS) - {"algorithm", *ALGORITHMS[algorithm].settings}
    return {
        name: value
        for name, value in values.items()
        if name not in unused and not (algorithm == "digital" and name.startswith(_TILE))
    }


def _preset(name: object) -> dict[str, Any]:
    """The table of the preset of a configuration."""
    make = getattr(presets, name, None) if isinstance(name, str) else None
    try:
        made = make()  # type: ignore[misc]
    except TypeError:
        made = None
    if not isinstance(made, TileConfig):
        raise ValueError(  # noqa: TRY004
            f"preset = {name!r}: pulsora.presets has no configuration of that name, such as "
            "EcRamAGAD"
        )
    return made.to_dict()


def _put(tile: dict[str, Any], name: str, value: object) -> None:
    """Sets a parameter of a configuration by its path, such as tile.update.desired_bl."""
    place: Any = tile
    *path, last = name.removeprefix(_TILE).split(".")
    for step in path:
        key: Any = int(step) if isinstance(place, list) and step.isdecimal() else step
        place = place[key] if _has(place, key) else None
    key = int(last) if isinstance(place, list) and last.isdecimal() else last
    if not _has(place, key):
        known = f"there are {', '.join(map(str, place))}" if place else "its table is missing"
        raise ValueError(f"{name}: the tiles have no such parameter; {known}")
    place[key] = value


def _has(place: object, key: object) -> bool:
    if isinstance(place, list):
        return isinstance(key, int) and key < len(place)
    return isinstance(place, dict) and key in place


def _search(name: str, given: object) -> Choice | Range:
    """The values of a setting, from a list or a table."""
    if isinstance(given, list) and given:
        stored = [_stored(value) for value in given]
        if len(set(map(repr, stored))) < len(stored):
            raise ValueError(f"search.{name} lists a value twice: {given}")
        return Choice(dict(zip(stored, given, strict=True)))
    if isinstance(given, Mapping) and {"low", "high"} <= set(given) <= {"low", "high", "log"}:
        low, high, log = given["low"], given["high"], given.get("log", False)
        numbers = all(
            isinstance(one, int | float) and not isinstance(one, bool) for one in (low, high)
        )
        if numbers and low < high and isinstance(log, bool) and (low > 0 or not log):
            return Range(low, high, log)
    raise ValueError(
        f"search.{name} must be a list of values, or low and high with low < high (and log = true "
        f"of positive ones) (got {given!r})"
    )


def _stored(value: object) -> Any:  # noqa: ANN401 - a value that a study takes
    """The form of a value in a study, which takes no lists and tables."""
    return value if isinstance(value, bool | int | float | str) else json.dumps(value)
