"""Checks the cases of `pulsora bench`, and then measures them.

On the CPU a result must be, to the bit, the result of one thread for the mini-batch in two parts.
On a GPU it must be the CPU's: to the bit for updates of a single array, and otherwise to rounding,
after which an ADC may decide otherwise now and then.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pulsora.bench.cases import work_of
from pulsora.bench.machine import Place
from pulsora.tile import Tile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from pulsora.bench.cases import Case
    from pulsora.bench.machine import Ceilings, Work

    Matrix = NDArray[np.float32]

__all__ = ["Result", "Timing", "WrongResultError", "check", "run"]

_SEED = 11
_WEIGHTS = 0.2  # initial weights lie within +- this: some cells in a hundred are at a bound
_TYPICAL_READ = (
    1.5  # largest deviation of W x (weights are scaled down); the default ADC reaches 12
)
_SPARSE = 0.01  # size of sparse errors


class WrongResultError(RuntimeError):
    """A case has a wrong result, so its timings mean nothing."""


class _Rig:
    """A tile and a mini-batch where the tile is, on which a case can be run."""

    def __init__(self, case: Case, place: Place) -> None:
        rng = np.random.default_rng(_SEED)
        shape = (case.batch, case.size)
        x = rng.uniform(-1.0, 1.0, shape).astype(np.float32)
        d = rng.uniform(-1.0, 1.0, shape).astype(np.float32)
        if case.operation in ("update sparse", "step"):
            d *= np.float32(_SPARSE)
        size = min(_WEIGHTS, _TYPICAL_READ * 3.0 / case.size**0.5)
        weights = rng.uniform(-size, size, (case.size, case.size)).astype(np.float32)
        dw_min = case.device().to_dict()["dw_min"]
        self.case = case
        self.tile = Tile(
            case.size,
            case.size,
            case.config(),
            seed=_SEED,
            device=place.device,
            threads=place.threads,
        )
        self.tile.weights = weights
        self.x, self.d, self.y = (place.array(part) for part in (x, d, np.zeros_like(x)))
        # An adapter multiplies the learning rate by alpha, which is about ten.
        self.lr = (1.0 if case.rank else 10.0) * dw_min
        # The sign alternates, so that the weights stay where they are. In whole steps of an adapter
        # it does not, or there would be nothing to transfer.
        self.alternates = not (case.rank and case.operation == "step")
        self.fresh = None if case.reads else self.tile.state()

    def prepare(self) -> None:
        """Restores the first weights before a repetition; else all would end at a bound."""
        if self.fresh is not None:
            self.tile.load_state(self.fresh)

    def forward(self, rows: slice) -> None:
        self.tile.forward(self.x[rows], out=self.y[rows])

    def backward(self, rows: slice) -> None:
        self.tile.backward(self.d[rows], out=self.y[rows])

    def update(self, rows: slice) -> None:
        self.tile.update(self.x[rows], self.d[rows], self.lr, end_of_batch=False)

    def end(self) -> None:
        self.tile.end_batch(self.lr)
        if self.alternates:
            self.lr = -self.lr

    def call(self) -> None:
        """Runs the case once."""
        self.run((slice(None),))

    def run(self, parts: Sequence[slice]) -> None:
        """Runs the case once, with the mini-batch in parts."""
        operation = self.case.operation
        passes: dict[str, list[Callable[[slice], None]]] = {
            "forward": [self.forward],
            "backward": [self.backward],
            "step": [self.forward, self.backward, self.update],
        }
        for one in passes.get(operation, [self.update]):
            for rows in parts:
                one(rows)
        if not self.case.reads:
            self.end()

    def results(self) -> dict[str, Matrix]:
        """The last read, and the weights."""
        return {"read": np.asarray(Place.on_host(self.y)), "weights": self.tile.weights}


def check(case: Case, place: Place) -> None:
    """Runs a case once and compares its result with the reference (see the module).

    Raises:
        WrongResultError: if the two differ.
    """
    tested, plain = _Rig(case, place), _Rig(case, Place("cpu", threads=1 if place.on_cpu else None))
    before = plain.tile.weights
    tested.call()
    half = (case.batch + 1) // 2
    plain.run([slice(None, half), slice(half, None)] if case.batch > 1 else [slice(None)])
    got, expected = tested.results(), plain.results()
    # An adapter learns from reads of A and B, which agree to rounding.
    learns_alone = not case.rank and case.operation.startswith("update")
    for name in ("read", "weights"):
        start = before if name == "weights" else np.float32(0.0)
        error = np.square(got[name] - expected[name], dtype=np.float64).mean()
        change = np.square(expected[name] - start, dtype=np.float64).mean()
        # W + alpha A B is a product too, so that even unchanged weights agree to rounding alone.
        rounding = 1e-12 * np.square(expected[name], dtype=np.float64).mean()
        same = got[name].tobytes() == expected[name].tobytes()
        if not (same if place.on_cpu or learns_alone else error <= 1e-4 * change + rounding):
            raise WrongResultError(
                f"{case.operation}, {case.tile}, {case.size}: the {name} on {place.device} differ "
                f"by {error**0.5:.3g} (rms) from those of one CPU thread; please report this"
            )


@dataclass(frozen=True)
class Timing:
    """Times of one call, in seconds.

    Attributes:
        median: Over the repetitions.
        lower: Lower quartile.
        upper: Upper quartile.
        host: Median time until the caller goes on; the median itself on the CPU.
        runs: Number of repetitions.
    """

    median: float
    lower: float
    upper: float
    host: float
    runs: int


@dataclass(frozen=True)
class Result:
    """A case, its times, and its least work."""

    case: Case
    time: Timing
    work: Work

    def reached(self, ceilings: Ceilings) -> float:
        """Share of the bound that was reached."""
        return ceilings.bound(self.work)[0] / self.time.median

    def to_dict(self, ceilings: Ceilings) -> dict[str, Any]:
        """Plain values; times in seconds."""
        bound, limit = ceilings.bound(self.work)
        numbers = {"bound": bound, "limit": limit, "reached": self.reached(ceilings)}
        case = vars(self.case) | {"tile": self.case.tile}
        return case | vars(self.time) | vars(self.work) | numbers


def run(case: Case, place: Place, seconds: float = 0.3) -> Result:
    """Checks a case and measures it for `seconds`, with 5 to 200 repetitions.

    Raises:
        WrongResultError: if its result is wrong, see check().
    """
    check(case, place)
    work = work_of(case, on_gpu=not place.on_cpu)
    return Result(case, _measure(_Rig(case, place), place, seconds), work)


def _measure(rig: _Rig, place: Place, seconds: float) -> Timing:
    """Quartiles over repetitions, each the mean over consecutive calls."""
    case = rig.case
    # Calls that change an adapter span one transfer cycle, or ten calls without transfers.
    cycle = 0 if case.reads or not case.rank else case.transfer_every or 10
    calls = cycle or 1

    def repeat() -> tuple[float, float]:
        rig.prepare()
        return place.time(rig.call, calls)

    repeat()  # warm up
    if not place.on_cpu and not cycle:  # so many calls that starting the first does not count
        calls = min(max(round(2e-3 / repeat()[0]), 1), 20)
    times: list[tuple[float, float]] = []
    start = time.perf_counter()
    while len(times) < 5 or (len(times) < 200 and time.perf_counter() - start < seconds):
        times.append(repeat())
    whole, host = np.array(times).T
    lower, median, upper = np.quantile(whole, [0.25, 0.5, 0.75]).tolist()
    return Timing(median, lower, upper, float(np.median(host)), len(times))
