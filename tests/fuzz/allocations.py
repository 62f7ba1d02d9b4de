"""Failing allocations in any operation: the tile stays unchanged, and works afterwards."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pulsora as pl
from tests.fuzz import generators
from tests.fuzz.checks import REFUSALS, bits, exercise, outcome, require
from tests.fuzz.failing import Failing

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsora.state import State
    from tests.fuzz.random_source import Draws

    Work = Callable[[pl.Tile], Any]

POINTS = 6
"""Allocations of one operation that are made to fail, of all that it makes."""


def run(draws: Draws) -> None:
    tile = generators.tile(draws, generators.config(draws), largest=6)
    work = exercise(tile, draws)
    for _ in range(draws.integer(0, 2)):
        work(tile)
    saved = tile.state()
    if draws.chance(0.1):
        _making(draws, tile, saved)
        return
    name, operation, reads = _operation(draws, tile)
    # Every attempt is made on a tile of its own, which has no work space yet but for that of its
    # first reads.
    reads_first = draws.chance(0.6)

    def fresh() -> pl.Tile:
        made = pl.Tile.from_state(saved, threads=1)
        if reads_first:
            outcome(lambda: reads(made))
        return made

    draws.note(name, "after reads" if reads_first else "")
    undisturbed = fresh()
    with Failing(-1) as counting:
        wanted = outcome(lambda: operation(undisturbed))
    after = bits(undisturbed)
    for _ in range(POINTS):
        point, lasting = draws.integer(0, counting.made), draws.chance(0.3)
        draws.note("fails at", point, "of", counting.made, "and from then on" if lasting else "")
        tile = fresh()
        if _fails(tile, operation, Failing(point, lasting=lasting), name):
            got = outcome(functools.partial(operation, tile))
            require(got == wanted, f"{name} gives something else once there is memory")
        require(bits(tile) == after, f"{name} leaves another state once there is memory")


def _fails(tile: pl.Tile, operation: Work, failing: Failing, name: str) -> bool:
    """Whether the operation fails while memory is short; where it does, the tile is as it was."""
    before = bits(tile)
    try:
        with failing:
            operation(tile)
    except (MemoryError, *REFUSALS):
        require(bits(tile) == before, f"{name} found no memory, and the tile has changed")
        return True
    return False


def _operation(draws: Draws, tile: pl.Tile) -> tuple[str, Work, Work]:
    """An operation by name, and the reads that may come before it."""
    rows = draws.pick((1, 3, 8))
    x = draws.normal(rows, tile.x_size)
    d = draws.normal(rows, tile.d_size, scale=0.1)
    weights = draws.normal(tile.d_size, tile.x_size, scale=0.1)
    array = draws.pick([*tile.arrays, "none"])
    values = tile.arrays.get(array, weights)
    saved = tile.state()
    operations: list[tuple[str, Work]] = [
        ("forward", lambda t: t.forward(x)),
        ("backward", lambda t: t.backward(d)),
        ("update", lambda t: t.update(x, d, 0.1, end_of_batch=False)),
        ("update", lambda t: t.update(x, d, 0.1, end_of_batch=False)),
        ("end_batch", lambda t: t.end_batch(0.1)),
        ("weights", lambda t: t.weights),
        ("weights =", lambda t: setattr(t, "weights", weights)),
        ("arrays =", lambda t: t._core.set_array(array, values)),
        ("reset_columns", lambda t: t.reset_columns(array, 0, 3, 0.5)),
        ("describe_cells", lambda t: repr(t.describe_cells(array))),
        ("statistics", lambda t: repr(t.statistics())),
        ("explain", lambda t: repr(t.explain(x, d, 0.1))),
        ("state", lambda t: repr(t.state())),
        ("load_state", lambda t: t.load_state(saved)),
    ]
    if tile.adapter is not None:
        gate = draws.normal(rows, tile.adapter.rank)
        operations += _of_adapter(draws, tile, x, d, gate)
    name, operation = draws.pick(operations)

    def reads(t: pl.Tile) -> None:
        t.forward(x)
        t.backward(d)

    return name, operation, reads


def _of_adapter(
    draws: Draws,
    tile: pl.Tile,
    x: Any,  # noqa: ANN401 - a matrix
    d: Any,  # noqa: ANN401
    gate: Any,  # noqa: ANN401
) -> list[tuple[str, Work]]:
    assert tile.adapter is not None
    inputs = tile.d_size if tile.config.swap_xd else tile.x_size
    vectors = draws.normal(tile.adapter.rank, inputs)
    return [
        ("transfer", lambda t: t.adapter.transfer()),
        ("transfer", lambda t: t.adapter.transfer()),
        ("forward, gated", lambda t: t.adapter.forward(x, gate)[0]),
        ("backward, gated", lambda t: t.adapter.backward(d, gate, gate)[0]),
        ("update, gated", lambda t: t.adapter.update(x, d, gate, 0.1, end_of_batch=False)),
        ("set_reinit_vectors", lambda t: t.adapter.set_reinit_vectors(vectors)),
    ]


def _making(draws: Draws, tile: pl.Tile, saved: State) -> None:
    """Constructors and loading."""
    sizes, config = (tile.d_size, tile.x_size), tile.config
    make: Callable[[], pl.Tile] = draws.pick((
        lambda: pl.Tile(*sizes, config, seed=7, threads=1),
        lambda: pl.Tile.from_state(saved, threads=1),
    ))  # fmt: skip
    with Failing(-1) as counting:
        wanted = bits(make())
    for _ in range(POINTS):
        failing = Failing(draws.integer(0, counting.made), lasting=draws.chance(0.3))
        try:
            with failing:
                made = make()
        except MemoryError:
            continue
        require(bits(made) == wanted, "a tile made where memory was short differs")
    require(bits(make()) == wanted, "a tile made after failures differs")
