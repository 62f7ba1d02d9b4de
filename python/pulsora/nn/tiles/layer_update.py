"""Updates of layers by one mini-batch, made together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pulsora import _core
from pulsora.nn.tiles.layer_names import named_errors
from pulsora.nn.tiles.patches import Patches
from pulsora.nn.tiles.tile_read import for_tile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulsora.nn.tiles.factor_pairs import Factors, TileSamples
    from pulsora.nn.tiles.tile_array import TileArray

__all__ = ["LayerUpdate", "apply_updates", "tiles_pulsed_here"]


class LayerUpdate(NamedTuple):
    """The update W <- W - lr d^T x of a layer by the samples of a mini-batch.

    Attributes:
        array: The tiles.
        lr: The learning rate.
        samples: The samples, from `TileArray.prepared`.
        factors: The gradient, which is emptied when the update is done.
    """

    array: TileArray
    lr: float
    samples: Sequence[TileSamples]
    factors: Factors


def apply_updates(updates: Sequence[LayerUpdate]) -> None:
    """Makes the pulses of all updates, and ends the mini-batch of their tiles.

    Layers without samples stay as they are, and count no mini-batch. Every layer is asked before
    any of them changes. Then no signal handler runs until the gradients of all layers are used up.
    If ranks share the pulses of a layer, the layers until it are one such call, so that its
    message overlaps with the next pulses.

    On a GPU nothing waits: a tile that gets non-finite values stops changing, and raises an
    InputError when it is waited for next (weights, state, statistics).

    Raises:
        ValueError: for values that are not finite, on the CPU; a ConfigError or InputError for what
            a tile refuses. Nothing has changed then.
        MemoryError: if memory cannot be reserved; nothing has changed then.
    """
    updates = [update for update in updates if update.samples]
    calls = []
    for update in updates:
        with named_errors(update.array):
            calls.append(_call(update))
    shared = [i for i, call in enumerate(calls) if call[3] is not None]
    try:
        if shared and len(calls) > 1:
            _core.apply_updates(calls, ask_only=True)
        begun = 0
        for last in shared:
            _core.apply_updates(calls[begun : last + 1])
            array = updates[last].array
            array.process_group.exchange(array)
            begun = last + 1
        _core.apply_updates(calls[begun:])
    except (ValueError, RuntimeError):
        _raise_named(updates, calls)
        raise
    finally:
        for update in updates:
            update.array.changes += update.factors.pairs == ()


def tiles_pulsed_here(update: LayerUpdate) -> list[int] | None:
    """Returns the tiles that this process pulses; None if it pulses all."""
    gated = any(each.gate is not None for each in update.samples)
    rows = sum(len(each.d) for each in update.samples)
    return update.array.process_group.pulsed_here(update.array, rows, gated=gated)


def _raise_named(updates: Sequence[LayerUpdate], calls: Sequence[tuple[Any, ...]]) -> None:
    """Raises what a single layer refuses, with the name of the layer; nothing if none refuses."""
    for update, call in zip(updates, calls, strict=True):
        if update.factors.pairs:  # not yet updated
            with named_errors(update.array):
                _core.apply_updates([call], ask_only=True)


def _call(update: LayerUpdate) -> tuple[Any, ...]:
    """Returns the arguments for the compiled core."""
    array = update.array
    mine = tiles_pulsed_here(update)
    samples = [
        (x.for_core() if isinstance(x, Patches) else for_tile(x), for_tile(d), gate)
        for x, d, gate in update.samples
    ]
    return array.together, samples, update.lr, mine, update.factors
