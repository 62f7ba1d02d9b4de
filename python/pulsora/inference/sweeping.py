"""Evaluations of a model over the values of one setting, under equal noise."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from pulsora import _core
from pulsora._internal.text_tables import aligned
from pulsora._internal.times import described
from pulsora.convert.copies import copied
from pulsora.inference.evaluation import evaluate
from pulsora.inference.exact_reads import layers_by_name
from pulsora.inference.report import plot
from pulsora.nn.tiles.held_weights import HeldWeights
from pulsora.nn.tiles.tile_array import TileArray

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from matplotlib.figure import Figure
    from torch import Tensor, nn

    from pulsora.config import InferenceConfig
    from pulsora.inference.report import InferenceReport

__all__ = ["Sweep", "sweep", "with_settings"]


@dataclass(frozen=True, eq=False)
class Sweep:
    """Reports of a model for the values of one setting.

    Attributes:
        setting: Name of the setting.
        reports: The report for each value.
    """

    setting: str
    reports: dict[Any, InferenceReport]

    def __str__(self) -> str:
        times = next(iter(self.reports.values())).times
        rows: list[tuple[str, ...]] = [(self.setting, *map(described, times))]
        rows += [
            (str(value), *(f"{mean:.4f}" for mean in report.mean))
            for value, report in self.reports.items()
        ]
        return aligned(rows)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """Draws the metric over time for each value (`plot`)."""
        return plot({f"{self.setting} = {v}": report for v, report in self.reports.items()}, path)


def sweep(
    model: nn.Module,
    batches: Iterable[tuple[Any, Tensor]],
    over: Mapping[str, Sequence[Any]],
    **options: Any,
) -> Sweep:
    """Evaluates copies of a model for each value of one setting, under equal noise.

        print(pl.inference.sweep(model, batches, {"forward.out_noise": [0.0, 0.04, 0.1]}))

    Args:
        model: A model in eval() with layers of InferenceConfig. It does not change.
        batches: As of `evaluate`.
        over: The name of a setting of the configuration with its values. A dot leads into a part:
            "compensation", "forward.out_noise", "noise_model.prog_noise_scale".
        **options: metric, times, programmings, chips, memory and progress of `evaluate`.

    Raises:
        TypeError: Unless `over` is a dict of a list of values that can be keys of reports.
        ValueError: Unless `over` has one setting with one value at least, and as of `evaluate`.
        ConfigError: For a setting that does not exist, or a value that does not suit.
    """
    setting, values = _setting_of(over)
    changed = [with_settings(model, {setting: value}) for value in values]
    reports = {
        value: evaluate(each, batches, **options)
        for value, each in zip(values, changed, strict=True)
    }
    return Sweep(setting, reports)


def _setting_of(over: Mapping[str, Sequence[Any]]) -> tuple[str, list[Any]]:
    """Returns the setting and its values, which are the keys of the reports."""
    if not isinstance(over, Mapping):
        raise TypeError(
            f"over is of type {type(over).__name__}; give a dict of a setting and its values, such "
            "as {'forward.out_noise': [0.0, 0.1]}"
        )
    if len(over) != 1:
        raise ValueError(f"over names {len(over)} settings; give one, and call sweep() for each")
    ((setting, values),) = over.items()
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(f"over['{setting}'] = {values!r}: give a list of values")
    values = list(values)
    if not values:
        raise ValueError(f"over['{setting}'] has no value; give at least one")
    for value in values:
        if not isinstance(value, Hashable):
            raise TypeError(
                f"over['{setting}'] has a value of type {type(value).__name__}, which cannot be "
                "the key of a report; write lists as tuples, and name a part of a model, such as "
                "'noise_model.g_max'"
            )
    return setting, values


def with_settings(model: nn.Module, settings: Mapping[str, Any]) -> nn.Module:
    """Returns a copy of a model whose layers of InferenceConfig have other settings.

    Weights, seeds, tiles and gains of ADCs are those of `model`; the copy is not programmed.

    Args:
        model: A model with layers of InferenceConfig.
        settings: Values by the names of settings; a dot leads into a part ("forward.out_noise").

    Raises:
        ValueError: If the model has no layer of InferenceConfig.
        ConfigError: For a setting that does not exist, or a value that does not suit the others or
            the gains of ADCs.
    """
    changed = copied(model)
    layers = layers_by_name(changed)
    if not layers:
        raise ValueError("the model has no layer of InferenceConfig, whose settings could change")
    made: dict[int, HeldWeights] = {}
    for name, layer in layers.items():
        old = layer.tiles
        config: Any = old.config
        for setting, value in settings.items():
            config = _replaced(config, setting.split("."), value, setting)
        saved = old.__getstate__()
        rows, columns, _ = saved["arguments"]
        array = TileArray(rows, columns, config, **saved["options"])
        array.name, array.layer_type = saved["layer"]
        _keep_gains(name, old, array)
        made[id(layer.held)] = HeldWeights(array)
        made[id(layer.held)].array.name = name
    for module in changed.modules():
        held = getattr(module, "held", None)
        if held is not None and id(held) in made:
            vars(module)["held"] = made[id(held)]
    return changed


def _keep_gains(name: str, old: TileArray, new: TileArray) -> None:
    """Gives ADCs the gains of those in whose place they are."""
    for before, after in zip(old, new, strict=True):
        if before.programming is None or after.programming is None:
            continue
        gains, config = before.programming.adc_gains, cast("InferenceConfig", after.config)
        if (gains == 1.0).all():
            continue
        if config.forward.is_perfect or after.programming.adc_gains.shape != gains.shape:
            raise _core.ConfigError(
                f"layer '{name}' has gains of ADCs, {list(gains.shape)}, which the arrays with "
                "these settings cannot have; set them to 1 before (tile.programming.adc_gains = "
                "1), and call calibrate_outputs() on the model with these settings"
            )
        after.programming.adc_gains = gains


def _replaced(config: Any, path: list[str], value: Any, setting: str) -> Any:  # noqa: ANN401
    """Returns a configuration with another value at a path."""
    if not hasattr(config, path[0]):
        raise _core.ConfigError(
            f"{setting} is no setting: {type(config).__name__} has no '{path[0]}'; write a name of "
            "InferenceConfig, and for its parts 'forward.out_noise' or 'noise_model.g_max'"
        )
    if len(path) > 1:
        value = _replaced(getattr(config, path[0]), path[1:], value, setting)
    return config.replace(**{path[0]: value})
