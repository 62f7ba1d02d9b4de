"""How fast tiles are, beside what the machine could do: the cases of `pulsora bench`.

    place = Place("cpu", threads=2)
    ceilings = measure_ceilings(place)
    for case in cases(models=["SoftBounds"], sizes=[512], batch=64, ranks=[0, 8]):
        result = run(case, place)
        print(case.tile, case.operation, result.time.median, result.reached(ceilings))

A case is a square array under default periphery with inputs x uniform in (-1, 1) and errors d
uniform in (-1, 1) ("dense": 2.5 coincidences per cell and sample) or (-0.01, 0.01) ("sparse", and
whole steps: 0.025), at a learning rate of ten dw_min. Its bound is the larger of its least bytes
over the copy bandwidth and its least operations over the rate of fused multiply-adds, both
measured in the same process.

Before a case is timed its result is checked. On the CPU it must be, to the bit, what one thread
gives for the mini-batch in two parts. On a GPU it must be the CPU's: to the bit what an update
makes of an array, and else to rounding, after which an ADC may decide otherwise now and then.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pulsora import _core, devices, least_work, presets
from pulsora.config import LRTTConfig, SingleConfig
from pulsora.machine import Place, Work
from pulsora.tile import Tile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from pulsora.config import TileConfig
    from pulsora.devices import Device
    from pulsora.machine import Ceilings

    Matrix = NDArray[np.float32]

__all__ = [
    "OPERATIONS",
    "Case",
    "Result",
    "Timing",
    "WrongResultError",
    "cases",
    "check",
    "run",
    "work_of",
]

OPERATIONS = ("forward", "backward", "update sparse", "update dense", "step")
_SEED = 11
_WEIGHTS = 0.2  # initial ones lie within this: some cells in a hundred are at a bound
_TYPICAL_READ = 1.5  # deviation of W x at most, by smaller weights; the default ADC reaches to 12
_SPARSE = 0.01  # size of sparse errors


class WrongResultError(RuntimeError):
    """A case does not give what it should, so nothing that is measured of it means anything."""


@dataclass(frozen=True)
class Case:
    """One thing to measure.

    Attributes:
        operation: One of OPERATIONS. A step is a forward and a backward read, a sparse update, and
            the end of the mini-batch.
        model: A device model or preset, of all arrays.
        size: Rows and columns of the array.
        batch: Samples of the mini-batch.
        rank: Rank of a pulsed adapter; 0 for a single array.
        transfer_every: Mini-batches from one transfer of the adapter to the next; 0 for none, as
            in all operations but steps.
    """

    operation: str
    model: str
    size: int
    batch: int
    rank: int = 0
    transfer_every: int = 0

    @property
    def tile(self) -> str:
        """What it is measured on."""
        return f"{self.model}, LRTT K={self.rank}" if self.rank else self.model

    @property
    def reads(self) -> bool:
        """Whether it changes no weight."""
        return self.operation in ("forward", "backward")

    @property
    def dense(self) -> bool:
        """Whether its errors are large."""
        return self.operation == "update dense"

    def device(self) -> Device:
        """The device of all arrays. ValueError if there is none of that name."""
        if self.model not in (*devices.MODELS, *presets.DEVICES):
            hint = _core.suggest(self.model, [*devices.MODELS, *presets.DEVICES])
            raise ValueError(f"there is no device model or preset '{self.model}'{hint}")
        made: Device = getattr(devices, self.model)()
        return made

    def config(self) -> TileConfig:
        """The configuration of the tile."""
        if not self.rank:
            return SingleConfig(device=self.device())
        return LRTTConfig(
            rank=self.rank,
            visible=self.device(),
            fast=self.device(),
            transfer_every=self.transfer_every,
            units_in_mbatch=True,
        )


def cases(
    models: Sequence[str],
    sizes: Sequence[int],
    batch: int,
    ranks: Sequence[int] = (0,),
    operations: Sequence[str] = OPERATIONS,
    transfer_every: int = 10,
) -> list[Case]:
    """All combinations.

    Raises:
        ValueError: for a number out of range, or an unknown operation or device.
    """
    for name, values, least in (
        ("sizes", sizes, 1),
        ("batch", [batch], 1),
        ("rank", ranks, 0),
        ("transfer_every", [transfer_every], 0),
    ):
        if not values or min(values) < least:
            given = ", ".join(map(str, values)) or "nothing"
            raise ValueError(f"{name} = {given}: choose whole numbers from {least} up")
    if max(ranks) > min(sizes):
        raise ValueError(
            f"rank = {max(ranks)} exceeds the array of size {min(sizes)}; choose a lower rank"
        )
    for operation in operations:
        if operation not in OPERATIONS:
            raise ValueError(f"operation '{operation}': choose from {', '.join(OPERATIONS)}")
    made = [
        Case(
            operation,
            model,
            size,
            batch,
            rank,
            transfer_every if rank and operation == "step" else 0,
        )
        for size, model, rank, operation in itertools.product(sizes, models, ranks, operations)
    ]
    if not made:
        raise ValueError("there is nothing to measure: name at least one model and one operation")
    for case in made:
        case.device()
    return made


def work_of(case: Case, *, on_gpu: bool = False) -> Work:
    """Least bytes and operations of one call; of a transfer, its share of one train per component."""
    n, m, k = float(case.size), float(case.batch), float(case.rank)
    model = case.device().model
    read = least_work.product(n, n, m, on_gpu=on_gpu)
    if case.rank:  # of A and B both times; an update projects x and d by them, and pulses both
        factor = least_work.product(n, k, m, on_gpu=on_gpu)
        read += factor * 2.0
        update = (factor + least_work.pulses(model, n, k, m, dense=case.dense)) * 2.0
    else:
        update = least_work.pulses(model, n, n, m, dense=case.dense)
    if case.reads:
        return read
    if case.operation != "step":
        return update
    transfer = Work()
    if case.transfer_every:
        transfer = least_work.pulses(model, n, n, k, dense=True) * (1.0 / case.transfer_every)
    return read * 2.0 + update + transfer


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
        # Descends and ascends in turn, so that the weights stay where they are. Those of an
        # adapter under whole steps must not return, or there would be nothing to transfer.
        self.alternates = not (case.rank and case.operation == "step")
        self.fresh = None if case.reads else self.tile.state()

    def prepare(self) -> None:
        """Before each repetition: weights start anew, or in the end all would be at a bound."""
        if self.fresh is not None:
            self.tile.load_state(self.fresh)

    def forward(self, rows: slice) -> None:
        self.tile.forward(self.x[rows], out=self.y[rows])

    def backward(self, rows: slice) -> None:
        self.tile.backward(self.d[rows], out=self.y[rows])

    def update(self, rows: slice) -> None:
        self.tile.update(self.x[rows], self.d[rows], self.lr, end_of_batch=False)

    def end(self) -> None:
        self.tile.post_update(self.lr)
        if self.alternates:
            self.lr = -self.lr

    def call(self) -> None:
        """The case once."""
        self.run((slice(None),))

    def run(self, parts: Sequence[slice]) -> None:
        """The case once, with the mini-batch in parts."""
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
        """What has come of it: the last read, and the weights."""
        return {"read": np.asarray(Place.on_host(self.y)), "weights": self.tile.weights}


def check(case: Case, place: Place) -> None:
    """Runs a case once and compares its result with the plainest way to get it.

    Raises:
        WrongResultError: if the two differ.
    """
    tested, plain = _Rig(case, place), _Rig(case, Place("cpu", threads=1 if place.on_cpu else None))
    before = plain.tile.weights
    tested.call()
    half = (case.batch + 1) // 2
    plain.run([slice(None, half), slice(half, None)] if case.batch > 1 else [slice(None)])
    got, expected = tested.results(), plain.results()
    # What an adapter learns goes through reads of A and B.
    learns_alone = not case.rank and case.operation.startswith("update")
    for name in ("read", "weights"):
        start = before if name == "weights" else np.float32(0.0)
        error = np.square(got[name] - expected[name], dtype=np.float64).mean()
        change = np.square(expected[name] - start, dtype=np.float64).mean()
        same = got[name].tobytes() == expected[name].tobytes()
        if not (same if place.on_cpu or learns_alone else error <= 1e-4 * change):
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
    """A case, its time, and the least work that it is."""

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
    """Checks a case and measures it for so long, with 5 repetitions at least and 200 at most.

    Raises:
        WrongResultError: if its result is wrong, see check().
    """
    check(case, place)
    work = work_of(case, on_gpu=not place.on_cpu)
    return Result(case, _measure(_Rig(case, place), place, seconds), work)


def _measure(rig: _Rig, place: Place, seconds: float) -> Timing:
    """Medians over repetitions of the mean of some calls that follow one another."""
    case = rig.case
    # Those that change an adapter are one cycle, or as many as in one usually.
    cycle = 0 if case.reads or not case.rank else case.transfer_every or 10
    calls = cycle or 1

    def repeat() -> tuple[float, float]:
        rig.prepare()
        return place.time(rig.call, calls)

    repeat()  # warm
    if not place.on_cpu and not cycle:  # so many that their start does not count
        calls = min(max(round(2e-3 / repeat()[0]), 1), 20)
    times: list[tuple[float, float]] = []
    start = time.perf_counter()
    while len(times) < 5 or (len(times) < 200 and time.perf_counter() - start < seconds):
        times.append(repeat())
    whole, host = np.array(times).T
    lower, median, upper = np.quantile(whole, [0.25, 0.5, 0.75]).tolist()
    return Timing(median, lower, upper, float(np.median(host)), len(times))
