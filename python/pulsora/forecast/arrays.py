"""Arrays that forecast kernels take and return: host memory of any library, torch on a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pulsora import _core
from pulsora._internal.threads import chosen_threads

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = Any

__all__ = ["Work", "host"]


class Work:
    """Device, stream and threads of a kernel, and its arrays as the core takes them.

    Args:
        threads: CPU threads; None for all that the process may run on.
        arrays: The arguments by name, None if not given. Results are of the kind of the first.

    Raises:
        DeviceError: if the arrays are not all in host memory, or on one GPU.
        TypeError: for anything but floating-point arrays.
    """

    def __init__(self, threads: int | None, **arrays: Array) -> None:
        given = {name: array for name, array in arrays.items() if array is not None}
        lead = next(iter(given))
        self._of_torch = hasattr(given[lead], "detach")
        self._device = given[lead].device if _is_on_gpu(given[lead]) else None
        for name, array in given.items():
            if (array.device if _is_on_gpu(array) else None) != self._device:
                raise _core.DeviceError(
                    f"{lead} is on {self._device or 'the CPU'}, and {name} is not; put both on one "
                    f"device (an Ensemble by its method to)"
                )
        take = host if self._device is None else _on_gpu
        self._arrays = {name: take(name, array) for name, array in given.items()}
        self.place = self._place(threads)

    def _place(self, threads: int | None) -> tuple[int, int, int]:
        """Device, stream and threads, as the core takes them."""
        if self._device is None:
            return -1, 0, chosen_threads(threads)
        import torch  # noqa: PLC0415 - there, since a tensor was given

        return self._device.index, torch.cuda.current_stream(self._device).cuda_stream, 1

    def __getitem__(self, name: str) -> Array:
        return self._arrays.get(name)

    def empty(self, *shape: int) -> Array:
        """A new array, for a result."""
        if self._device is None:
            return np.empty(shape, np.float32)
        import torch  # noqa: PLC0415 - there, since a tensor was given

        return torch.empty(shape, device=self._device)

    def result(self, array: Array) -> Array:
        """An array of `empty`, filled by the core, as the kind of array that was given."""
        if self._device is not None or not self._of_torch:
            return array
        import torch  # noqa: PLC0415 - there, since a tensor was given

        return torch.from_numpy(array)


def _is_on_gpu(array: Array) -> bool:
    return bool(getattr(array, "is_cuda", False))


def _on_gpu(name: str, tensor: Array) -> Array:
    """A tensor of torch as contiguous float32."""
    if not tensor.is_floating_point():
        raise TypeError(f"{name} has type {tensor.dtype}; give floating-point numbers")
    return tensor.detach().float().resolve_neg().contiguous()


def host(name: str, array: Array) -> NDArray[np.float32]:
    """An array in host memory as contiguous float32.

    Raises:
        DeviceError: for an array elsewhere.
        TypeError: for other than floating-point numbers.
    """
    if hasattr(array, "detach"):  # a tensor of torch
        array = array.detach()
        if array.device.type != "cpu":
            raise _core.DeviceError(
                f"{name} is on {array.device}; it is needed in host memory: give {name}.cpu()"
            )
        if array.is_floating_point():  # NumPy has no bfloat16
            array = array.float()
    elif isinstance(array, np.ma.MaskedArray):
        raise _core.InputError(
            f"{name} is a masked array, whose masked elements cannot be left out; pass "
            f"{name}.filled(0)"
        )
    elif not isinstance(array, np.ndarray) and hasattr(array, "__dlpack__"):
        array = np.from_dlpack(array)
    values = np.asarray(array)
    if values.dtype.kind != "f":
        kind = type(array).__name__ if values.dtype.kind == "O" else values.dtype
        raise TypeError(f"{name} has type {kind}; give floating-point numbers")
    return np.asarray(values, np.float32, order="C")
