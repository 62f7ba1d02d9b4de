"""Calibrated converters of layers, as files of conductances hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from pulsora._internal.checks import require_positive_real
from pulsora.nn.tiles.saved_tiles import CALIBRATED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from pulsora.nn.base import AnalogModule

__all__ = [
    "Converters",
    "converters_in",
    "converters_of",
    "gains_of",
    "require_same",
    "set_converters",
]


class Converters(NamedTuple):
    """Calibrated ranges and gains of a layer.

    Attributes:
        forward: `forward` of the layer's configuration, with calibrated ranges.
        input_range: The value of the parameter `input_range`; None for a layer without it.
        gains: Gains of the ADCs of each tile, [arrays with ADCs of their own, outputs].
    """

    forward: Any
    input_range: float | None
    gains: list[NDArray[np.float32]]


def converters_of(layer: AnalogModule) -> dict[str, Any] | None:
    """Returns the calibrated ranges of a layer, for a file; None for perfect reads."""
    forward = layer.config.forward  # type: ignore[attr-defined]
    if forward.is_perfect:
        return None
    entry = {name: getattr(forward, name) for name in CALIBRATED}
    if layer.input_range is not None:
        entry["input_range"] = float(layer.input_range.detach())
    return entry


def gains_of(layer: AnalogModule) -> list[NDArray[np.float32]]:
    """Returns the gains of the ADCs of each tile of a layer whose reads are not perfect."""
    return [tile.programming.adc_gains for tile in layer.tiles if tile.programming is not None]


def converters_in(
    entry: object, layer: AnalogModule, name: str, gains: Mapping[str, NDArray[Any]]
) -> Converters:
    """Returns the checked converters of a layer in a file.

    Args:
        entry: What `converters_of` the saved layer was.
        layer: The layer that gets them.
        name: Its name.
        gains: Gains of each tile by the name of their tensor, in the order of tiles.

    Raises:
        ValueError: If they are damaged, or do not suit the layer.
    """
    if layer.config.forward.is_perfect:  # type: ignore[attr-defined]
        raise ValueError(
            f"layer '{name}' of the file has converters, and reads perfectly in the model; load "
            "with converters='model'"
        )
    if not isinstance(entry, dict) or entry.keys() - {"input_range"} != set(CALIBRATED):
        raise ValueError(
            f"layer '{name}' of the file has the converters {entry!r}; expected an object with "
            f"{', '.join(CALIBRATED)}"
        )
    limit = entry.get("input_range")
    if (limit is None) != (layer.input_range is None):
        where = "model" if limit is None else "file"
        raise ValueError(
            f"layer '{name}' has the parameter input_range in the {where} "
            "alone; give both the same forward.noise_management, or load with converters='model'"
        )
    try:
        if limit is not None and limit != 0.0:  # before a calibration
            require_positive_real("input_range", limit)
        forward = layer.config.forward.replace(  # type: ignore[attr-defined]
            **{key: entry[key] for key in CALIBRATED}
        )
        layer.config.replace(forward=forward)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the converters of layer '{name}' of the file: {error}") from None
    for (tensor, found), own in zip(gains.items(), gains_of(layer), strict=True):
        if found.shape != own.shape or found.dtype != np.float32:
            raise ValueError(
                f"tensor '{tensor}' has the shape {list(found.shape)} and the type {found.dtype}; "
                f"expected {list(own.shape)} of float32"
            )
        if not np.isfinite(found).all() or (found <= 0.0).any():
            raise ValueError(f"tensor '{tensor}' must hold gains, finite and > 0")
    return Converters(forward, limit, list(gains.values()))


def require_same(layer: AnalogModule, name: str, found: Converters) -> None:
    """Raises ValueError unless a layer has these converters."""
    own = converters_of(layer) or {}
    theirs = {key: getattr(found.forward, key) for key in CALIBRATED}
    if found.input_range is not None:
        theirs["input_range"] = found.input_range
    differ = [
        f"{key} = {value} ({own.get(key)})" for key, value in theirs.items() if value != own[key]
    ]
    pairs = zip(found.gains, gains_of(layer), strict=True)
    differ += ["gains of ADCs"] * any(not np.array_equal(one, other) for one, other in pairs)
    if differ:
        raise ValueError(
            f"layer '{name}' of the file has other converters (the model's in brackets): "
            f"{', '.join(differ)}; say converters='file' to take those of the file, or 'model' to "
            "keep these"
        )


def set_converters(layer: AnalogModule, found: Converters) -> None:
    """Gives a layer other calibrated converters, in place."""
    if found.forward != layer.config.forward:  # type: ignore[attr-defined]
        layer.tiles.set_io(forward=found.forward)
    if layer.input_range is not None and found.input_range is not None:
        with torch.no_grad():
            layer.input_range.fill_(found.input_range)
    for tile, gains in zip(layer.tiles, found.gains, strict=True):
        if tile.programming is not None:
            tile.programming.adc_gains = gains
