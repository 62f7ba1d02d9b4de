"""CUDA C++ that is compiled, loaded and launched while a program runs.

Compiling needs NVRTC, and the rest needs the driver of an NVIDIA GPU. Importing Pulsora needs
neither, and any build of Pulsora will do. docs/howto/device_from_source.md says where NVRTC is
looked for.

    binary = runtime.compile_source(text, kernels=["add"])
    add = runtime.load(binary).function("add", ("float32*", "float32*", "int64"))
    a, b = runtime.upload(numbers), runtime.zeros(1000, "float32")
    add.launch(8, 128, a, b, 1000)
    print(b.numpy())
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pulsora import _core

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, DTypeLike, NDArray

    Extent: TypeAlias = int | tuple[int, ...]

__all__ = [
    "Array",
    "Binary",
    "Function",
    "Program",
    "Stream",
    "compile_source",
    "load",
    "upload",
    "zeros",
]


@dataclass(frozen=True)
class Binary:
    """Compiled code, a cubin or PTX, and the name in the code of each requested kernel."""

    code: bytes
    names: Mapping[str, str]


def compile_source(
    text: str,
    *,
    kernels: str | Sequence[str],
    arch: str | None = None,
    file: str = "program.cu",
    headers: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> Binary:
    """Compiles CUDA C++ by NVRTC; no GPU is needed.

    Args:
        text: The source. It has no standard library, and no files beside it.
        kernels: Kernels to compile, as C++ expressions: "add", "scale<float>"; one text or several.
        arch: For which GPUs, such as "sm_90"; by default for GPU 0 of this machine.
        file: Name of the text in messages of the compiler.
        headers: Headers that the text may include, by name.
        options: For NVRTC, such as "--fmad=false" or "-std=c++17".

    Raises:
        CompilerNotFound: If there is no NVRTC; the message says what to install.
        CompileError: If the text does not compile; the message has NVRTC's log, with the file and
            line.
        ConfigError: If `arch` is no architecture, or older than NVRTC knows.
        DeviceError: If `arch` is not given and there is no GPU.
    """
    wanted = _core.gpu_architecture(0) if arch is None else arch
    expressions = [kernels] if isinstance(kernels, str) else list(kernels)
    code, names = _core.compile_for_gpu(
        text, file, dict(headers or {}), expressions, list(options), wanted
    )
    return Binary(code, names)


def load(binary: Binary | bytes, device: int = 0) -> Program:
    """Loads code onto a GPU: a result of compile_source(), a cubin or PTX.

    Raises:
        TypeError: For anything else.
        CompileError: If this GPU cannot run the code.
        DeviceError: If there is no driver; the message names the library that was looked for.
        ConfigError: If there is no such GPU.
        OutOfMemoryError: If the GPU has no room for the code.
    """
    if not isinstance(binary, Binary | bytes):
        raise TypeError(
            f"binary is of type {type(binary).__name__}; give what compile_source() made, or the "
            "bytes of a cubin or of PTX"
        )
    made = binary if isinstance(binary, Binary) else Binary(binary, {})
    return Program(made, _core.GpuProgram(made.code, device))


class Program:
    """Code that is loaded onto a GPU; unloaded with the last of its functions."""

    def __init__(self, binary: Binary, core: _core.GpuProgram) -> None:
        self._binary, self._core = binary, core

    def function(self, name: str, types: Sequence[str]) -> Function:
        """Returns a kernel by its expression in compile_source(), or by its name in the code.

        Args:
            name: Name of the kernel.
            types: Types of its parameters: "bool", "int8" to "int64", "uint8" to "uint64",
                "float16" to "float64"; with a star for pointers to them, and "void*" for any
                pointer.

        Raises:
            ConfigError: If there is no such kernel, or if it has other parameters, as far as their
                number and sizes tell.
        """
        return Function(self._core.function(self._binary.names.get(name, name), list(types)))


class Function:
    """A kernel on a GPU."""

    def __init__(self, core: _core.GpuFunction) -> None:
        self._core = core

    def launch(
        self,
        blocks: Extent,
        threads: Extent,
        *arguments: object,
        shared_bytes: int = 0,
        stream: Stream | None = None,
    ) -> None:
        """Enqueues the kernel, and does not wait for it.

        Args:
            blocks: Number of blocks, in up to three directions.
            threads: Number of threads of each block, in up to three directions.
            arguments: For a pointer, an Array, or anything with `__cuda_array_interface__` and
                adjacent elements. For a number, a NumPy number of the parameter's type, or a Python
                number that fits this type.
            shared_bytes: Shared memory of a block beside what the kernel declares.
            stream: Stream of the launch; by default the legacy default stream.

        Raises:
            InputError: If the arguments have another number or other types than the parameters, or
                lie on another GPU.
            ConfigError: If the grid is not possible; the message names the extent.
            DeviceError: If the driver refuses, for example because an earlier kernel failed.
        """
        given = [
            _argument(value, wanted)
            for value, wanted in itertools.zip_longest(
                arguments, self._core.types[: len(arguments)], fillvalue=""
            )
        ]
        extents = (_extent("blocks", blocks), _extent("threads", threads))
        self._core.launch(*extents, shared_bytes, given, _handle(stream))


class Array:
    """Numbers in the memory of a GPU, row by row."""

    def __init__(self, core: _core.GpuArray, shape: tuple[int, ...]) -> None:
        self._core, self.shape = core, shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers."""
        return np.dtype(self._core.type)

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        """Description of the same memory for other libraries."""
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self._core.address, False),
            "version": 3,
        }

    def numpy(self, stream: Stream | None = None) -> NDArray[Any]:
        """Returns a copy in host memory, after the work of the stream is done."""
        flat = np.frombuffer(self._core.download(_handle(stream)), self.dtype)
        numbers: NDArray[Any] = flat.reshape(self.shape).copy()
        return numbers


class Stream:
    """A CUDA stream; it takes turns with the legacy default stream."""

    def __init__(self, device: int = 0) -> None:
        self._core = _core.GpuStream(device)

    @property
    def handle(self) -> int:
        """The CUstream, as a number: torch.cuda.ExternalStream(stream.handle)."""
        return self._core.handle

    def synchronize(self) -> None:
        """Waits for the work of the stream.

        Raises:
            DeviceError: If some of the work failed.
        """
        self._core.synchronize()


def zeros(shape: Extent, dtype: DTypeLike, device: int = 0, stream: Stream | None = None) -> Array:
    """Zeros in the memory of a GPU.

    Raises:
        OutOfMemoryError: If there is no room.
        ConfigError: If Program.function() does not name the type.
    """
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    made = _core.gpu_zeros(np.dtype(dtype).name, math.prod(extents), device, _handle(stream))
    return Array(made, extents)


def upload(numbers: ArrayLike, device: int = 0, stream: Stream | None = None) -> Array:
    """A copy of numbers in the memory of a GPU.

    Raises:
        OutOfMemoryError: If there is no room.
        ConfigError: If Program.function() does not name their type.
    """
    array = np.asarray(numbers)
    made = _core.gpu_upload(array.dtype.name, array.tobytes(), device, _handle(stream))
    return Array(made, array.shape)


def _handle(stream: Stream | None) -> int:
    return 0 if stream is None else stream.handle


def _extent(name: str, value: Extent) -> tuple[int, int, int]:
    extents = (value,) if isinstance(value, int) else tuple(value)
    if not 1 <= len(extents) <= 3:
        raise _core.ConfigError(f"{name} has {len(extents)} directions; give one to three numbers")
    x, y, z = (*extents, 1, 1)[:3]
    return x, y, z


def _argument(value: object, wanted: str) -> tuple[str, bytes, int]:
    """The type of an argument, its bytes, and the GPU on which it lies (-1 if unknown)."""
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        kind = np.dtype(interface["typestr"]).name
        if interface.get("strides") is not None:
            raise _core.InputError(f"an argument of type {kind}* has gaps; pass adjacent elements")
        device = value._core.device if isinstance(value, Array) else -1  # noqa: SLF001
        return f"{kind}*", np.uint64(interface["data"][0]).tobytes(), device
    if isinstance(value, np.generic):
        return value.dtype.name, value.tobytes(), -1
    if isinstance(value, bool | int | float):
        return _number(value, wanted)
    return type(value).__name__, b"", -1


def _number(value: float, wanted: str) -> tuple[str, bytes, int]:
    """Converts a Python number to the type of the parameter, if it fits."""
    plain = type(value).__name__
    kinds = {"bool": "b", "int": "iuf", "float": "f"}[plain]
    if wanted.endswith("*") or not wanted or np.dtype(wanted).kind not in kinds:
        return plain, b"", -1
    dtype = np.dtype(wanted)
    if dtype.kind in "iu" and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
        raise _core.InputError(f"an argument is {value}, which does not fit {wanted}")
    return wanted, dtype.type(value).tobytes(), -1
