"""Checks the gated low-rank update on this machine, and measures its speed."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from pulsora._core import DeviceError, InputError
from pulsora._internal.checks import require_at_least
from pulsora.lowrank import operators
from pulsora.lowrank.checks import TYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

__all__ = ["Benchmark", "Validation", "benchmark", "seconds_of", "validate"]

# Largest relative errors in the norm, against double precision from the same operands.
_TOLERANCE = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 1e-2}
_BEYOND_CACHE = 320_000_000  # bytes of all sets of operands together: more than the caches hold
_MOST_SETS = 40
_ROUNDS = 5
_GRAPH_SECONDS = 0.01  # of work in a timed CUDA graph
_MOST_CALLS = 2000  # in such a graph


@dataclass(frozen=True)
class Validation:
    """Errors of results against double precision."""

    errors: dict[str, float]
    """Relative error (norm of the difference over the norm) of y, dx, dv, dcodes and du."""
    max_difference: float
    """Largest absolute difference of an element of y."""
    tolerance: float
    """Largest relative errors allowed: 1e-5 in float32, 1e-3 in float16, 1e-2 in bfloat16."""
    passed: bool


@dataclass(frozen=True)
class Benchmark:
    """Median seconds of one update and of comparable operations."""

    seconds: float
    """An update alone, y = scale ((x v) * codes) u^T."""
    added_seconds: float
    """An update that is added to a base."""
    backward_seconds: float
    """All four gradients."""
    eager_seconds: float
    """The update by two products and two multiplications of torch."""
    products_seconds: float
    """Two products and one multiplication of torch, written to existing memory."""
    eager_backward_seconds: float
    """All four gradients by products of torch."""
    base_seconds: float
    """The product of x and a matrix [K1, K2], to which a layer adds the update."""
    copy_seconds: float
    """Copying x."""
    bytes: int
    """What the update alone must read and write."""
    copied_bytes: int
    """What copying x must read and write."""
    copy_bandwidth: float
    """Bytes per second, read and written, of copying 512 MiB on a GPU, 64 MiB on a CPU."""
    validation: Validation

    @property
    def speed_up(self) -> float:
        """The time of torch's operations over the update's."""
        return self.eager_seconds / self.seconds

    @property
    def backward_speed_up(self) -> float:
        """The time of torch's gradients over Pulsora's."""
        return self.eager_backward_seconds / self.backward_seconds

    @property
    def overhead(self) -> float:
        """Time of adding the update over the time of the product that it is added to."""
        return self.added_seconds / self.base_seconds

    @property
    def bandwidth(self) -> float:
        """Bytes per second of the update alone."""
        return self.bytes / self.seconds

    @property
    def share(self) -> float:
        """The bandwidth over that of copying x, or a large matrix, whichever is faster."""
        return self.bandwidth / max(self.copy_bandwidth, self.copied_bytes / self.copy_seconds)

    @property
    def max_difference(self) -> float:
        """Largest difference in the validation."""
        return self.validation.max_difference

    @property
    def passed(self) -> bool:
        """Whether the validation passed."""
        return self.validation.passed


@dataclass
class _Operands:
    x: Tensor
    v: Tensor
    codes: Tensor
    u: Tensor
    dy: Tensor
    y: Tensor

    @classmethod
    def drawn(
        cls, rows: int, k1: int, k2: int, rank: int, dtype: torch.dtype, device: str, seed: int
    ) -> _Operands:
        generator = torch.Generator(device).manual_seed(seed)

        def normal(size: float, *shape: int) -> Tensor:
            drawn = torch.randn(shape, generator=generator, device=device)
            return (size * drawn).to(dtype)

        return cls(
            normal(0.1, rows, k1),
            normal(0.02, k1, rank),
            normal(0.5, rows, rank),
            normal(0.02, k2, rank),
            normal(0.1, rows, k2),
            normal(1.0, rows, k2),
        )

    def forward(self, base: Tensor | None = None) -> Tensor:
        made: Tensor = operators.gated_low_rank(
            self.x, self.v, self.codes, self.u, "kn", _SCALE, base
        )
        return made

    def backward(self) -> list[Tensor]:
        made: list[Tensor] = operators.gated_low_rank_backward(
            self.dy, self.x, self.v, self.codes, self.u, "kn", _SCALE, [True] * 4
        )
        return made

    def eager(self) -> Tensor:
        return ((self.x @ self.v) * self.codes) @ self.u.t() * _SCALE

    def eager_backward(self) -> list[Tensor]:
        """dx, dv, dcodes and du, in the type of the operands."""
        h, g = self.x @ self.v, self.dy @ self.u * _SCALE
        gated = g * self.codes
        return [
            gated @ self.v.t(),
            self.x.t() @ gated,
            h * g,
            self.dy.t() @ (h * self.codes) * _SCALE,
        ]

    def double(self) -> _Operands:
        return _Operands(*(getattr(self, name).double() for name in self.__dataclass_fields__))


_SCALE = 2.0
_NAMES = ("y", "dx", "dv", "dcodes", "du")


def validate(
    rows: int = 512,
    k1: int = 256,
    rank: int = 8,
    *,
    k2: int | None = None,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    seed: int = 0,
) -> Validation:
    """Compares an update and its gradients with double precision, on random operands.

    Args:
        rows: rows of the batch, M.
        k1: inputs.
        rank: N, the number of components.
        k2: outputs; None: as many as inputs.
        dtype: torch.float32, torch.float16 or torch.bfloat16.
        device: "cpu", "cuda" or "cuda:1".
        seed: seed of the operands: x and dy near 0.1, v and u near 0.02, codes near 0.5.

    Raises:
        ValueError: if a size is not a whole number from 1 up.
        InputError: for another dtype.
        DeviceError: if there is no GPU.
    """
    outputs = _require_sizes(rows, k1, rank, k2, dtype, device)
    return _validated(_Operands.drawn(rows, k1, outputs, rank, dtype, device, seed))


def benchmark(
    rows: int = 16384,
    k1: int = 768,
    rank: int = 8,
    *,
    k2: int | None = None,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    seed: int = 0,
) -> Benchmark:
    """Measures an update beside torch's operations and the bandwidth of memory; checks the result.

    On a GPU, calls are recorded in a CUDA graph, so that the host's time does not count. They use
    enough sets of operands in turn that operands come from memory. The arguments are those of
    `validate`.
    """
    outputs = _require_sizes(rows, k1, rank, k2, dtype, device)
    bytes_ = dtype.itemsize * (rows * (k1 + outputs + rank) + rank * (k1 + outputs))
    count = max(2, min(_MOST_SETS, _BEYOND_CACHE // bytes_)) if device != "cpu" else 1
    sets = [
        _Operands.drawn(rows, k1, outputs, rank, dtype, device, seed + index)
        for index in range(count)
    ]
    weights = torch.full((k1, outputs), 0.01, dtype=dtype, device=device)
    hidden = torch.empty(rows, rank, dtype=dtype, device=device)
    target = torch.empty_like(sets[0].x)

    def products(each: _Operands) -> None:
        torch.mm(each.x, each.v, out=hidden)
        hidden.mul_(each.codes)
        torch.mm(hidden, each.u.t(), out=each.y)

    def timed(work: Callable[[_Operands], object]) -> float:
        return seconds_of(
            [lambda each=each: work(each) for each in sets],  # type: ignore[misc]
            device,
        )

    validation = _validated(sets[0])
    return Benchmark(
        seconds=timed(lambda each: each.forward()),
        added_seconds=timed(lambda each: each.forward(each.y)),
        backward_seconds=timed(lambda each: each.backward()),
        eager_seconds=timed(lambda each: each.eager()),
        products_seconds=timed(products),
        eager_backward_seconds=timed(lambda each: each.eager_backward()),
        base_seconds=timed(lambda each: torch.mm(each.x, weights, out=each.y)),
        copy_seconds=timed(lambda each: target.copy_(each.x)),
        bytes=bytes_,
        copied_bytes=2 * dtype.itemsize * rows * k1,
        copy_bandwidth=_copy_bandwidth(device),
        validation=validation,
    )


def _require_sizes(
    rows: int, k1: int, rank: int, k2: int | None, dtype: torch.dtype, device: str
) -> int:
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise DeviceError(f"device is {device!r}, but torch sees no GPU; pass device='cpu'")
    outputs = k1 if k2 is None else k2
    for name, value in (("rows", rows), ("k1", k1), ("rank", rank), ("k2", outputs)):
        require_at_least(name, value, 1)
    if dtype not in TYPES:
        raise InputError(f"dtype is {dtype}; it must be float32, float16 or bfloat16 of torch")
    return outputs


def _validated(operands: _Operands) -> Validation:
    exact = operands.double()
    references = [exact.eager(), *exact.eager_backward()]
    made = [operands.forward(), *operands.backward()]
    errors = {
        name: float((ours.double() - reference).norm() / reference.norm())
        for name, ours, reference in zip(_NAMES, made, references, strict=True)
    }
    tolerance = _TOLERANCE[operands.x.dtype]
    difference = float((made[0].double() - references[0]).abs().max())
    return Validation(
        errors, difference, tolerance, all(error <= tolerance for error in errors.values())
    )


def _copy_bandwidth(device: str) -> float:
    size = (64 if device == "cpu" else 512) << 20
    source = torch.zeros(size // 4, device=device)
    target = torch.empty_like(source)
    return 2 * size / seconds_of([lambda: target.copy_(source)], device)


def seconds_of(calls: Sequence[Callable[[], object]], device: str) -> float:
    """The median time of one of these calls, on a GPU without the host's time."""
    return _graph_seconds(calls, device) if device != "cpu" else _host_seconds(calls)


def _host_seconds(calls: Sequence[Callable[[], object]]) -> float:
    times = []
    for _ in range(_ROUNDS + 1):  # the first one warms up
        start = time.perf_counter()
        for call in calls:
            call()
        times.append((time.perf_counter() - start) / len(calls))
    return statistics.median(times[1:])


def _graph_seconds(calls: Sequence[Callable[[], object]], device: str) -> float:
    with torch.cuda.device(device):
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        begin, end = (
            torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            for _ in range(2)
        )

        def seconds(work: Callable[[], object]) -> float:
            begin.record()
            work()
            end.record()
            end.synchronize()
            return float(begin.elapsed_time(end)) * 1e-3

        def once() -> None:
            for call in calls:
                call()

        with torch.cuda.stream(stream):
            once()
            stream.synchronize()
            estimate = max(seconds(once), 1e-6)
            repeats = min(max(1, int(_GRAPH_SECONDS / estimate)), _MOST_CALLS // len(calls) + 1)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                for _ in range(repeats):
                    once()
            graph.replay()
            stream.synchronize()
            times = [seconds(graph.replay) for _ in range(_ROUNDS)]
    return statistics.median(times) / (repeats * len(calls))
