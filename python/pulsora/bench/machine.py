"""Place of a benchmark (CPU or GPU), and the highest rates measured on that machine."""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pulsora import _core
from pulsora._internal.threads import chosen_threads

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from numpy.typing import NDArray

__all__ = ["Ceilings", "Place", "Work", "measure_ceilings"]

_COPY_FLOATS = {"cpu": 1 << 24, "cuda": 1 << 28}  # far larger than the caches
_PRODUCT_SIZE = {"cpu": 2048, "cuda": 8192}


@dataclass(frozen=True)
class Work:
    """Least memory traffic and arithmetic of an operation, whatever the code.

    Attributes:
        bytes: To and from memory.
        operations: Of one lane: a fused multiply-add of floats, or an integer instruction of 32
            bits, is one. Counted in the AVX-512 kernels; a GPU's differ little.
    """

    bytes: float = 0.0
    operations: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.bytes + other.bytes, self.operations + other.operations)

    def __mul__(self, factor: float) -> Work:
        return Work(self.bytes * factor, self.operations * factor)


@dataclass(frozen=True)
class Ceilings:
    """The highest rates of a machine.

    Attributes:
        bytes: Per second, read plus written, by a copy of arrays far larger than the caches.
        operations: Per second, fused multiply-adds of float32, by a large matrix product.
    """

    bytes: float
    operations: float

    def __or__(self, other: Ceilings) -> Ceilings:
        """The better of two measurements: other processes may have slowed either."""
        return Ceilings(max(self.bytes, other.bytes), max(self.operations, other.operations))

    def bound(self, work: Work) -> tuple[float, str]:
        """Least seconds for some work, and what sets them: 'bytes' or 'operations'."""
        by_bytes, by_operations = work.bytes / self.bytes, work.operations / self.operations
        return max((by_bytes, "bytes"), (by_operations, "operations"))


class Place:
    """A CPU with some threads, or a GPU.

    Args:
        device: "cpu", "cuda" or "cuda:<number>".
        threads: CPU threads; by default as in `Tile`.

    Raises:
        ConfigError: for another device, or a number of threads out of range.
        DeviceError: if there is no such GPU, or this build cannot use it.
        ImportError: for a GPU without torch, which times it.
    """

    def __init__(self, device: str = "cpu", threads: int | None = None) -> None:
        self.device = device
        self.threads = chosen_threads(threads)
        _core.require_place(device, self.threads)
        self.on_cpu = device == "cpu"
        self._torch = _torch()
        if not self.on_cpu and (self._torch is None or not self._torch.cuda.is_available()):
            raise ImportError(
                f"device = '{device}': GPUs are timed through a torch that can use CUDA; install "
                "one, or choose device = 'cpu'"
            )

    @property
    def name(self) -> str:
        """The processor or GPU, as the system names it."""
        if self._torch is not None and not self.on_cpu:
            return str(self._torch.cuda.get_device_name(self.device))
        info = Path("/proc/cpuinfo")
        lines = info.read_text().splitlines() if info.is_file() else []
        names = [line.partition(":")[2] for line in lines if line.startswith("model name")]
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        return f"{(names or [platform.processor()])[0].strip()}, {threads}"

    def array(self, values: NDArray[np.float32]) -> Any:  # noqa: ANN401 - an array or a tensor
        """The values as an array or tensor that tiles of this place take."""
        if self._torch is None or self.on_cpu:
            return values
        return self._torch.from_numpy(values).to(self.device)

    @staticmethod
    def on_host(array: Any) -> Any:  # noqa: ANN401
        """A result of `array` in host memory."""
        return array.cpu().numpy() if hasattr(array, "cpu") else array

    def time(self, call: Callable[[], object], calls: int = 1) -> tuple[float, float]:
        """Mean seconds per call over consecutive calls: until done, and until the host goes on.

        On a GPU the first time lies between two events in torch's current stream.
        """
        if self._torch is None or self.on_cpu:
            start = time.perf_counter()
            for _ in range(calls):
                call()
            seconds = (time.perf_counter() - start) / calls
            return seconds, seconds
        cuda = self._torch.cuda
        with cuda.device(self.device):
            begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
            cuda.synchronize()
            start = time.perf_counter()
            begin.record()
            for _ in range(calls):
                call()
            end.record()
            host = (time.perf_counter() - start) / calls
            end.synchronize()
            return float(begin.elapsed_time(end)) * 1e-3 / calls, host


def measure_ceilings(place: Place) -> Ceilings:
    """Measures the best of several copies, and of several matrix products, at this place.

    The arrays are torch's, on as many threads as the place has. Without torch they are NumPy's:
    copies take one thread, and products as many threads as NumPy's library likes.
    """
    kind = "cpu" if place.on_cpu else "cuda"
    count, size = _COPY_FLOATS[kind], _PRODUCT_SIZE[kind]
    torch = _torch()
    copy: Callable[[], object]
    product: Callable[[], object]
    if torch is None:
        source, target = np.ones(count, np.float32), np.zeros(count, np.float32)
        factor = np.ones((size, size), np.float32)
        result = np.empty_like(factor)
        copy, product = (lambda: np.copyto(target, source)), (lambda: factor.dot(factor, result))
        return _best(place, copy, product, count, size)
    before = torch.get_num_threads()
    torch.set_num_threads(place.threads)
    try:
        from_, to = (torch.ones(count, device=place.device) for _ in range(2))
        a, b = (torch.ones(size, size, device=place.device) for _ in range(2))
        copy, product = (lambda: to.copy_(from_)), (lambda: torch.mm(a, a, out=b))
        return _best(place, copy, product, count, size)
    finally:
        torch.set_num_threads(before)


def _best(
    place: Place, copy: Callable[[], object], product: Callable[[], object], count: int, size: int
) -> Ceilings:
    def fastest(call: Callable[[], object]) -> float:
        return min(place.time(call)[0] for _ in range(8))

    return Ceilings(2.0 * 4.0 * count / fastest(copy), float(size) ** 3 / fastest(product))


def _torch() -> ModuleType | None:
    try:
        import torch  # noqa: PLC0415 - an optional dependency
    except ImportError:
        return None
    return torch
