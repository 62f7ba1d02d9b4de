"""Settings of one run of a network; `pulsora.training.run` runs it.

history = Run(Experiment(algorithm="lrtt", rank=8)).train()
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pulsora import presets
from pulsora._internal.checks import require_at_least, require_positive, whole_numbers
from pulsora.config import InferenceConfig, LRTTConfig, TileConfig
from pulsora.devices import Device
from pulsora.devices.saved import is_file_name

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "ALGORITHMS",
    "CHECKPOINT",
    "MODELS",
    "TILE_DEFAULTS",
    "Algorithm",
    "Experiment",
    "require_beginning",
]

_BY_MODEL: Any = None  # __post_init__ puts the model's default in its place


@dataclass(frozen=True)
class Experiment:
    """All settings of one run.

    "By model" means the default that `MODELS` gives. The attributes from `algorithm` on describe
    the tiles in one of two ways. Either `tile` holds a whole configuration, and the others must not
    be given and stay None; or `tile` is None, and the others have the defaults below. An
    attribute that the algorithm does not use must not be given either, and stays None.

    Attributes:
        data: 'digits', a folder of IDX files, or a text file (for lstm and transformer), whose next
            characters are predicted.
        model: 'mlp': linear layers; 'lenet': LeNet-5; 'lstm' or 'transformer': they read an image
            row by row, or a text character by character. All layers are analog but the output layer
            and tables. `pulsora.training.models` has them.
        hidden: Sizes of the hidden layers of mlp and lstm, as numbers or as text such as "256,128";
            by model. For other models it must not be given and stays None.
        epochs: Passes over the training set.
        batch: Images, or pieces of text, per mini-batch; by model.
        lr: Learning rate of plain SGD, for all layers; by model.
        seed: Seed of everything.
        amp: Whether digital layers compute in bfloat16 where `torch.autocast` does. Tiles read in
            single precision as ever.
        hybrid: Share of the backward passes that predicted steps and an average at the end replace,
            such as 0.3; 0 for none. See docs/explain/forecasts.md for the benefit.
        algorithm: 'digital': floating point; 'pulsed': pulsed SGD on one full array;
            'lrtt', the default: a pulsed low-rank adapter; 'hwa': floating-point weights whose
            reads in training have the errors of programmed arrays.
        device_preset: Name of a device preset or model, see `pulsora info`; or a file that
            `devices.save()` wrote, whose table takes the place of its name; EcRam by default
            (pulsed, lrtt).
        rank: Rank of the adapter (lrtt), or 'auto', the default: 16, or fewer for small layers.
        transfer_every: Mini-batches per transfer of the adapter (lrtt); that of `LRTTConfig` by
            default, 0 for never, 'auto' for when the adapter is full.
        noise_model: Name of a noise model, a file of a table of one, or the table; PCMLike by
            default (hwa).
        modifier: What training reads do to the weights, as in `InferenceConfig`; 'add_normal' by
            default (hwa).
        modifier_std: Strength of its noise, relative to the largest weight of each output; 0.05 by
            default (hwa, with a modifier that has noise of its own).
        compensation: Drift compensation of the arrays, as in `InferenceConfig`; 'global' by default
            (hwa).
        retention: Name of the noise model by which pulsed cells drift after training, a file of a
            table of one, or the table; of the large array (pulsed, lrtt). None, the default: they
            keep their weights.
        retention_fast: The same for the arrays of the adapter (lrtt).
        retention_compensation: Compensation of this drift, as in `SingleConfig`; None, the default,
            is 'none' (pulsed, lrtt).
        tile: A complete tile configuration as `TileConfig.to_dict()` writes it.

    Raises:
        ValueError: for a value of a wrong type or out of range, for `hidden` of a model that does
            not take it, for an attribute that the algorithm does not use, and for `tile` beside one
            of those that it replaces.
        OSError: if the file of a device or noise model cannot be read.
    """

    data: str = "digits"
    model: str = "mlp"
    hidden: tuple[int, ...] | None = None
    epochs: int = 20
    batch: int = _BY_MODEL
    lr: float = _BY_MODEL
    seed: int = 0
    amp: bool = False
    hybrid: float = 0.0
    algorithm: str | None = None
    device_preset: str | Mapping[str, Any] | None = None
    rank: int | Literal["auto"] | None = None
    transfer_every: int | Literal["auto"] | None = None
    noise_model: str | Mapping[str, Any] | None = None
    modifier: str | None = None
    modifier_std: float | None = None
    compensation: str | None = None
    retention: str | Mapping[str, Any] | None = None
    retention_fast: str | Mapping[str, Any] | None = None
    retention_compensation: str | None = None
    tile: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        _require_text("data", self.data)
        _require_text("model", self.model)
        self._settle_model()
        for name, least in (("epochs", 1), ("batch", 1), ("seed", 0)):
            require_at_least(name, getattr(self, name), least)
        require_positive("lr", self.lr)
        if not isinstance(self.amp, bool):
            raise ValueError(f"amp must be true or false (got {self.amp!r})")  # noqa: TRY004
        if not _is_share(self.hybrid):
            raise ValueError(
                f"hybrid must be a number of at least 0 and below 1 (got {self.hybrid!r})"
            )
        if self.tile is None:
            self._settle_algorithm()
        else:
            self._require_tile_alone()

    def _settle_model(self) -> None:
        """Sets defaults that depend on the model, or refuses settings that it does not take."""
        if self.model not in MODELS:
            raise ValueError(f"model must be one of {', '.join(MODELS)} (got '{self.model}')")
        defaults = MODELS[self.model]
        if self.hidden is not None and "hidden" not in defaults:
            takers = " and ".join(name for name in MODELS if "hidden" in MODELS[name])
            raise ValueError(
                f"hidden is for {takers}, and {self.model} has layers of its own; leave hidden out"
            )
        for name, default in defaults.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, default)
        if self.hidden is not None:
            object.__setattr__(self, "hidden", _hidden(self.hidden))

    def _settle_algorithm(self) -> None:
        """Sets defaults of the tiles, or refuses settings that the algorithm does not use."""
        if self.algorithm is None:
            object.__setattr__(self, "algorithm", TILE_DEFAULTS["algorithm"])
        _require_text("algorithm", self.algorithm)
        if self.algorithm not in ALGORITHMS:
            raise ValueError(
                f"algorithm must be one of {', '.join(ALGORITHMS)} (got '{self.algorithm}')"
            )
        used = self._used_settings()
        for name, default in TILE_DEFAULTS.items():
            if name not in used and getattr(self, name) is not None:
                users = " and ".join(one for one in ALGORITHMS if name in ALGORITHMS[one].settings)
                raise ValueError(
                    f"{name} is for {users}, and has no effect with algorithm = "
                    f"'{self.algorithm}'; leave {name} out"
                )
            if name in used and getattr(self, name) is None:
                object.__setattr__(self, name, default)
        self._check_settings(used)

    def _used_settings(self) -> set[str]:
        """The attributes that describe the tiles of the algorithm."""
        used = {"algorithm", *ALGORITHMS[str(self.algorithm)].settings}
        if "modifier_std" in used and self.modifier in _WITHOUT_STD:
            if self.modifier_std is not None:
                raise ValueError(
                    f"modifier_std has no effect with modifier = '{self.modifier}'; leave "
                    "modifier_std out"
                )
            used.remove("modifier_std")
        return used

    def _check_settings(self, used: set[str]) -> None:
        """Checks the settings of the algorithm."""
        if "device_preset" in used:
            self._settle_device()
        if "rank" in used and self.rank != "auto":
            require_at_least("rank", self.rank, 1)
        if "transfer_every" in used and self.transfer_every != "auto":
            require_at_least("transfer_every", self.transfer_every, 0)
        memories = [name for name in _MEMORIES if getattr(self, name) is not None]
        for name in memories:
            self._settle_noise_model(name)
        if memories or self.retention_compensation is not None:
            self.tile_config()

    def _settle_noise_model(self, name: str) -> None:
        """Puts the table of a noise model in the place of its file."""
        model = getattr(self, name)
        if isinstance(model, Mapping):
            return
        _require_text(name, model)
        made = presets.noise_model(model)
        if is_file_name(model):
            object.__setattr__(self, name, made.to_dict())

    def _settle_device(self) -> None:
        """Puts the table of a device in the place of its file, so that runs do not depend on it."""
        name = self.device_preset
        if isinstance(name, Mapping):
            Device.from_dict(name)
            return
        _require_text("device_preset", name)
        made = presets.device(str(name))
        if is_file_name(str(name)):
            object.__setattr__(self, "device_preset", made.to_dict())

    def _require_tile_alone(self) -> None:
        """Refuses settings that `tile` replaces."""
        if not isinstance(self.tile, Mapping):
            raise ValueError(  # noqa: TRY004
                f"tile must be a table of settings (got {self.tile!r})"
            )
        given = [name for name in TILE_DEFAULTS if getattr(self, name) is not None]
        if given:
            raise ValueError(
                f"tile is a whole configuration and leaves nothing for {', '.join(given)} to say; "
                f"leave out either tile or {', '.join(given)}"
            )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Experiment:
        """The experiment of a table of attributes; ValueError for unknown names."""
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise ValueError(f"unknown setting {unknown}; there are {', '.join(known)}")
        return cls(**values)

    @property
    def name(self) -> str:
        """The name of the experiment: its algorithm, or the kind of its tiles."""
        config = self.tile_config()
        return str(self.algorithm) if self.tile is None or config is None else config.kind

    def tile_config(self) -> TileConfig | None:
        """The configuration of the tiles; None where there are none."""
        if self.tile is not None:
            return TileConfig.from_dict(self.tile)
        return ALGORITHMS[str(self.algorithm)].config(self)

    def device(self) -> Device:
        """The device of the large array that `device_preset` describes."""
        if isinstance(self.device_preset, Mapping):
            return Device.from_dict(self.device_preset)
        return presets.device(str(self.device_preset))


def _hardware_aware(run: Experiment) -> TileConfig:
    """The configuration of programmed arrays of an experiment."""
    config: dict[str, Any] = {
        "noise_model": presets.noise_model(run.noise_model or "PCMLike").to_dict(),
        "modifier": run.modifier,
        "compensation": run.compensation,
    }
    if run.modifier_std is not None:
        config["modifier_std"] = run.modifier_std
    return InferenceConfig.from_dict(config)


def _retention(run: Experiment) -> dict[str, Any]:
    """The settings of the retention of an experiment that are not at their defaults."""
    models = {
        name: presets.noise_model(getattr(run, name))
        for name in ("retention", "retention_fast")
        if getattr(run, name) is not None
    }
    rule = run.retention_compensation
    return models if rule is None else models | {"retention_compensation": rule}


def _require_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text (got {value!r})")  # noqa: TRY004


def _is_share(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0.0 <= value < 1.0


MODELS: dict[str, dict[str, Any]] = {
    "mlp": {"hidden": (64,), "batch": 32, "lr": 0.4},
    "lenet": {"batch": 16, "lr": 0.2},
    "lstm": {"hidden": (64,), "batch": 16, "lr": 1.0},
    "transformer": {"batch": 16, "lr": 0.1},
}
"""The networks, each with its own defaults."""

TILE_DEFAULTS: dict[str, Any] = {
    "algorithm": "lrtt",
    "device_preset": "EcRam",
    "rank": "auto",
    "transfer_every": LRTTConfig().transfer_every,
    "noise_model": "PCMLike",
    "modifier": "add_normal",
    "modifier_std": 0.05,
    "compensation": "global",
    "retention": None,
    "retention_fast": None,
    "retention_compensation": None,
}
"""What describes the tiles unless `tile` does."""


class Algorithm(NamedTuple):
    """An algorithm of training: its settings, and the configuration of its tiles.

    Attributes:
        settings: Names of the attributes of `Experiment` that it uses.
        config: The configuration of the tiles of an experiment; None without tiles.
    """

    settings: tuple[str, ...]
    config: Callable[[Any], TileConfig | None]


ALGORITHMS = {
    "digital": Algorithm((), lambda _: None),
    "pulsed": Algorithm(
        ("device_preset", "retention", "retention_compensation"),
        lambda run: presets.single(run.device(), **_retention(run)),
    ),
    "lrtt": Algorithm(
        (
            "device_preset",
            "rank",
            "transfer_every",
            "retention",
            "retention_fast",
            "retention_compensation",
        ),
        lambda run: presets.lrtt(
            run.device(),
            run.rank,
            transfer_every=run.transfer_every,
            units_in_mbatch=True,
            **_retention(run),
        ),
    ),
    "hwa": Algorithm(("noise_model", "modifier", "modifier_std", "compensation"), _hardware_aware),
}
"""The algorithms by name."""

_MEMORIES = ("noise_model", "retention", "retention_fast")
"""Settings that are noise models."""

_WITHOUT_STD = ("none", "noise_model", "discretize", "dorefa")
"""Modifiers whose effect does not depend on `modifier_std`."""


CHECKPOINT = "checkpoint.pt"
"""Name of the file from which a run is resumed."""


def require_beginning(out: Path | None, *, resume: bool, overwrite: bool) -> None:
    """Raises ValueError unless a run in the folder `out` can begin, or resume, as it was asked."""
    held = out is not None and (out / CHECKPOINT).is_file()
    if resume and overwrite:
        raise ValueError("resume and overwrite: a run is continued or begun anew, choose one")
    if resume and not held:
        raise ValueError(
            f"resume: there is no {(out or Path()) / CHECKPOINT}; start without --resume"
        )
    if held and not resume and not overwrite:
        raise ValueError(
            f"out = {out} holds the checkpoint of a run: continue it (--resume, resume=True), "
            "replace it (--overwrite, overwrite=True), or choose another folder"
        )


def _hidden(sizes: object) -> tuple[int, ...]:
    made = whole_numbers("hidden", sizes) if isinstance(sizes, str) else sizes
    if not isinstance(made, list | tuple) or not made:
        raise ValueError(f"hidden must be sizes of layers, such as [256, 128] (got {sizes!r})")
    for size in made:
        require_at_least("hidden", size, 1)
    return tuple(made)
