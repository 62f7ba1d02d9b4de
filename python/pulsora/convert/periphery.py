"""Copies of a model whose tiles have another periphery."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from pulsora.config import IOParameters, UpdateParameters
from pulsora.convert.arrays import arrays_of
from pulsora.convert.copies import copied

if TYPE_CHECKING:
    from torch import nn

    from pulsora.config import TileConfig

__all__ = ["with_io"]

_M = TypeVar("_M", bound="nn.Module")
_P = TypeVar("_P", IOParameters, UpdateParameters)
_Change: TypeAlias = _P | Callable[[_P], _P] | None


def with_io(
    model: _M,
    *,
    forward: _Change[IOParameters] = None,
    backward: _Change[IOParameters] = None,
    update: _Change[UpdateParameters] = None,
) -> _M:
    """Returns a copy of the model with another periphery around the same cells.

        for noise in (0.0, 0.06, 0.2):
            noisy = pl.with_io(model, forward=lambda io: io.replace(out_noise=noise))
            print(noise, accuracy(noisy))

    Weights, cells, counters and seeds of all tiles are those of `model`, which does not change.
    Fixed spreads of lines and converters have the same random numbers, scaled by the new
    parameters.

    Args:
        model: A model with analog layers, on any device.
        forward: Periphery of the forward reads: parameters for all tiles, or a function of the
            parameters of a tile that gives its new ones. By default it stays, as the others do.
        backward: Periphery of the backward reads.
        update: How activations and gradients become pulses.

    Raises:
        TypeError: For something else than parameters.
        ValueError: If the model has no analog layer; a ConfigError if a parameter does not suit the
            kind of a tile.
        StateError: If a weight is not finite.
    """
    arrays_of(model)
    changed = copied(model)
    for array in arrays_of(changed):
        new = {
            name: _changed(array.config, name, made, change)
            for name, made, change in (
                ("forward", IOParameters, forward),
                ("backward", IOParameters, backward),
                ("update", UpdateParameters, update),
            )
            if change is not None
        }
        array.set_io(**new)
    return changed


def _changed(config: TileConfig, name: str, made: type[Any], change: Any) -> Any:  # noqa: ANN401
    """Returns the new parameters `name`, of class `made`, of a configuration."""
    new = change(getattr(config, name, None)) if callable(change) else change
    if not isinstance(new, made):
        raise TypeError(
            f"{name} is of type {type(new).__name__}; give {made.__name__}, or a function of the "
            f"present ones, as lambda io: io.replace(...)"
        )
    return new
