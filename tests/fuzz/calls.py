"""Sequences of calls on one tile: odd layouts, hostile objects and numbers, several threads."""

from __future__ import annotations

import decimal
import fractions
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import pulsora as pl
from tests.fuzz import generators, hostile
from tests.fuzz.checks import REFUSALS, Planted, bits, require, require_same_future
from tests.fuzz.random_source import plain_values

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fuzz.random_source import Draws

MEMBERS = (
    "fast_a", "fast_b", "forward_gated", "backward_gated", "update_gated", "transfer",
    "transfer_stats", "set_reinit_vectors", "visible", "no_such",
)  # fmt: skip


class Call(NamedTuple):
    """A call with all its arguments drawn."""

    name: str
    arguments: tuple[object, ...]
    work: Callable[[], Any]
    also: tuple[type[Exception], ...] = ()
    """Documented refusals beside the common ones."""


def run(draws: Draws) -> None:
    config = generators.config(
        draws, value_of=draws.pick((generators.plausible, generators.plausible, generators.extreme))
    )
    tile = generators.tile(draws, config)
    if draws.chance(0.15):
        _in_threads(draws, tile)
    else:
        for _ in range(draws.integer(3, 12)):
            _one(tile, _drawn(draws, tile), draws)
    require_same_future(tile, draws)


def _one(tile: pl.Tile, call: Call, draws: Draws) -> None:
    draws.note(call.name, *call.arguments)
    before = bits(tile)
    arrays = [given for given in call.arguments if type(given) is np.ndarray]
    copies = [array.tobytes() for array in arrays]
    refused = _tried(call)
    if refused is not None:
        draws.note("refused", type(refused).__name__, str(refused))
        interferes = any(isinstance(given, hostile.Interfering) for given in call.arguments)
        require(
            interferes or bits(tile) == before, f"{call.name} was refused, but has changed the tile"
        )
    # What is handed in stays as it is, but for what is handed in to be written to.
    inputs = zip(arrays, copies, strict=True)
    written = call.name == "out" and refused is None
    require(
        written or all(array.tobytes() == copy for array, copy in inputs),
        f"{call.name} has changed its arguments",
    )
    for given in call.arguments:
        if isinstance(given, hostile.Producer):
            given.check()


def _tried(call: Call) -> Exception | None:
    """The documented refusal that a call ends with, or None."""
    try:
        call.work()
    except (*REFUSALS, Planted, *call.also) as error:
        require(str(error) or isinstance(error, Planted), "a refusal without a word")
        return error
    return None


def _in_threads(draws: Draws, tile: pl.Tile) -> None:
    """Several threads use the tile; each meets documented refusals alone."""
    lists = [[_drawn(draws, tile) for _ in range(draws.integer(2, 5))] for _ in range(3)]
    for calls in lists:
        draws.note("thread", *((call.name, *call.arguments) for call in calls))
    faults: list[BaseException] = []

    def work(calls: list[Call]) -> None:
        try:
            for call in calls:
                _tried(call)
        except BaseException as error:  # noqa: BLE001 - raised below, where it is seen
            faults.append(error)

    threads = [threading.Thread(target=work, args=(calls,), daemon=True) for calls in lists]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]


def _batch(draws: Draws, tile: pl.Tile, rows: int, cols: int) -> object:
    """An argument where a batch [rows, cols] belongs; seven times in ten a sound one."""
    if draws.chance(0.3):
        return hostile.unsound(draws, tile, rows, cols)
    plain = draws.normal(rows, cols, scale=draws.pick((1.0, 0.1, 0.0, 1e-30)))
    if rows == 1 and draws.chance(0.3):
        return plain[0]
    return draws.pick(hostile.sound_layouts(plain))()


def _number(draws: Draws, tile: pl.Tile, usual: tuple[object, ...]) -> object:
    """An argument where a number belongs."""
    if draws.chance(0.7):
        return draws.pick(usual)
    if draws.chance(0.2):
        return hostile.Interfering(tile, 1.0, raises=draws.chance(0.5))
    odd = [fractions.Fraction(1, 3), decimal.Decimal("0.1"), iter(()), hostile.Stubborn()]
    return draws.pick([*plain_values(draws), *odd])


def _drawn(draws: Draws, tile: pl.Tile) -> Call:
    """A call of any member, all its arguments drawn."""
    make = draws.pick(_MAKERS if tile.adapter is None else (*_MAKERS, *_OF_ADAPTERS))
    return make(draws, tile)


def _read(draws: Draws, tile: pl.Tile) -> Call:
    rows = draws.integer(1, 5)
    forward = draws.chance(0.5)
    sizes = (tile.x_size, tile.d_size) if forward else (tile.d_size, tile.x_size)
    x = _batch(draws, tile, rows, sizes[0])
    read = tile.forward if forward else tile.backward
    if draws.chance(0.7):
        return Call("forward" if forward else "backward", (x,), lambda: read(x))
    out = draws.pick((
        lambda: np.empty((rows, sizes[1]), np.float32),
        lambda: np.empty(sizes[1], np.float32),
        lambda: np.empty((rows, sizes[1] + 2), np.float32)[:, 1:-1],
        lambda: np.empty((rows, sizes[1]), draws.pick(("f8", "f2", ">f4", "i4"))),
        lambda: x,
        lambda: hostile.unsound(draws, tile, rows, sizes[1]),
    ))()  # fmt: skip
    return Call("out", (x, out), lambda: read(x, out))


def _update(draws: Draws, tile: pl.Tile) -> Call:
    rows = draws.integer(1, 5)
    x = _batch(draws, tile, rows, tile.x_size)
    d = _batch(draws, tile, rows if draws.chance(0.95) else rows + 1, tile.d_size)
    lr = _learning_rate(draws, tile)
    if draws.chance(0.1):
        return Call("explain", (x, d, lr), lambda: tile.explain(x, d, lr))
    end = draws.chance(0.8)
    return Call("update", (x, d, lr, end), lambda: tile.update(x, d, lr, end_of_batch=end))


def _learning_rate(draws: Draws, tile: pl.Tile) -> Any:  # noqa: ANN401
    usual = (0.01, 0.1, 1.0, -0.1, 0.0, 0, np.float16(0.1), np.float32(0.01), 1e-30, 1e30)
    return _number(draws, tile, usual)


def _end_batch(draws: Draws, tile: pl.Tile) -> Call:
    lr = _learning_rate(draws, tile)
    return Call("end_batch", (lr,), lambda: tile.end_batch(lr))


def _set_weights(draws: Draws, tile: pl.Tile) -> Call:
    weights = _batch(draws, tile, tile.d_size, tile.x_size)
    return Call("weights =", (weights,), lambda: setattr(tile, "weights", weights))


def _set_array(draws: Draws, tile: pl.Tile) -> Call:
    name: Any = draws.pick(["visible", "fast_a", "fast_b", "none", "", 3, None, "\ud800"])
    rows, cols = tile.arrays[name].shape if name in tile.arrays else (2, 2)
    weights = _batch(draws, tile, rows, cols)

    def work() -> None:
        tile.arrays[name] = weights

    return Call("arrays =", (name, weights), work, (KeyError,))


def _look(draws: Draws, tile: pl.Tile) -> Call:
    name: Any = draws.pick(["visible", "fast_a", "fast_b", "none", "", 3, None])
    member = draws.pick(MEMBERS)
    place = draws.pick(("cpu", "cuda", "cuda:7", "cpu:0", "", "x"))
    what: tuple[str, Callable[[], object]] = draws.pick((
        ("statistics", tile.statistics),
        ("counters", lambda: tile.counters),
        ("weights", lambda: tile.weights),
        ("arrays", lambda: dict(tile.arrays)),
        ("array", lambda: tile.arrays[name]),
        ("describe_cells", lambda: tile.describe_cells(name)),
        ("repr", lambda: repr(tile)),
        ("config", tile.config.replace),
        ("member", lambda: getattr(tile, member)),
        ("to", lambda: tile.to(place)),
    ))  # fmt: skip
    return Call(what[0], (name, member, place), what[1], (KeyError, AttributeError))


def _reset(draws: Draws, tile: pl.Tile) -> Call:
    name = draws.pick(["visible", "fast_a", "fast_b", "none"])
    first = _number(draws, tile, (0, 1, 7, 100, 2**62, -1))
    count = _number(draws, tile, (0, 1, 3, 100, 2**31, 2**62))
    share = _number(draws, tile, (1.0, 0.5, 0.0, 1, 1.5))
    arguments: Any = (name, first, count, share)
    return Call("reset_columns", arguments, lambda: tile.reset_columns(*arguments))


def _load(draws: Draws, tile: pl.Tile) -> Call:
    if draws.chance(0.3):
        other: Any = draws.pick((None, 3, (), pl.SingleConfig(), {}))
        return Call("load_state", (other,), lambda: tile.load_state(other), (AttributeError,))
    try:
        saved = tile.state()
    except pl.StateError:  # its numbers have become infinite, and it says so
        return Call("state", (), tile.state, (pl.StateError,))
    return Call("load_state", (), lambda: tile.load_state(saved))


def _place(draws: Draws, tile: pl.Tile) -> Call:
    if draws.chance(0.5):
        threads = _number(draws, tile, (1, 2, 3, 4, 0, -1))
        return Call("threads =", (threads,), lambda: setattr(tile, "threads", threads))
    products = draws.pick(["single", "tf32", "reproducible", "double", "", None, 1])
    return Call("gpu_products =", (products,), lambda: setattr(tile, "gpu_products", products))


def _adapter(draws: Draws, tile: pl.Tile) -> Call:
    adapter = tile.adapter
    assert adapter is not None
    rows, rank = draws.integer(1, 4), adapter.rank
    gate = _batch(draws, tile, rows, rank)
    x = _batch(draws, tile, rows, tile.x_size)
    d = _batch(draws, tile, rows, tile.d_size)
    what = draws.integer(0, 5)
    if what == 0:
        return Call("adapter.forward", (x, gate), lambda: adapter.forward(x, gate))
    if what == 1:
        read = _batch(draws, tile, rows, rank)
        return Call("adapter.backward", (d, gate, read), lambda: adapter.backward(d, gate, read))
    if what == 2:
        lr = _learning_rate(draws, tile)
        return Call("adapter.update", (x, d, gate, lr), lambda: adapter.update(x, d, gate, lr))
    if what == 3:
        inputs = tile.d_size if tile.config.swap_xd else tile.x_size
        vectors = _batch(draws, tile, rank, inputs)
        return Call("set_reinit_vectors", (vectors,), lambda: adapter.set_reinit_vectors(vectors))
    return Call("adapter.transfer", (), adapter.transfer)


_MAKERS = (
    _read, _read, _update, _update, _end_batch, _set_weights, _set_array, _look, _reset, _load,
    _place,
)  # fmt: skip
_OF_ADAPTERS = (_adapter, _adapter, _adapter)
