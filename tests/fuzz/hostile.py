"""Hostile arrays and numbers: strange layouts, and methods that lie, raise or interfere."""

from __future__ import annotations

import ctypes
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.fuzz.checks import Planted, require
from tests.fuzz.random_source import plain_values

if TYPE_CHECKING:
    from collections.abc import Callable

    import pulsora as pl
    from tests.fuzz.random_source import Draws

CPU, CUDA = 1, 2


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (
        ("tensor", _Tensor),
        ("owner", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

_alive: deque[object] = deque(maxlen=1000)
"""Capsules point here; what consumed one may ask for it until it is collected."""


class Producer:
    """Shares memory by DLPack; what it says of it is as the draws want it.

    It never says that there is more memory than there is: nobody could find that out.
    """

    def __init__(self, draws: Draws, rows: int, cols: int) -> None:
        self.array = draws.normal(max(rows, 1) + 1, max(cols, 1) + 1)
        ndim = 2
        self.shape = (ctypes.c_int64 * 3)(rows, cols, 1)
        self.strides = (ctypes.c_int64 * 3)(max(cols, 1), 1, 1)
        self.capsules = 0
        self.deleted = 0
        managed = _Managed()
        tensor = managed.tensor
        tensor.data, tensor.device = self.array.ctypes.data, CPU
        tensor.code, tensor.bits, tensor.lanes = 2, 32, 1
        tensor.shape, tensor.strides = self.shape, self.strides
        self.name: bytes | None = b"dltensor"
        self.device: object = (CPU, 0)
        self.twice = draws.chance(0.1)
        self.what = draws.pick((
            "sound", "sound", "no strides", "name", "ndim", "negative shape", "negative strides",
            "no data", "type", "device", "device of the capsule", "capsule", "offset", "raises",
            "no deleter", "odd address",
        ))  # fmt: skip
        if self.what == "no strides":
            tensor.strides = None
        elif self.what == "name":
            self.name = draws.pick((b"used_dltensor", b"dltensor_versioned", b"x", b"", None))
        elif self.what == "ndim":
            ndim = draws.pick((0, 1, 3, -1))
        elif self.what == "negative shape":
            self.shape[draws.integer(0, 1)] = draws.pick((-1, -(2**62), 0))
        elif self.what == "negative strides":
            self.strides[draws.integer(0, 1)] = draws.pick((0, -1, -(2**62), 2**62))
            tensor.data = self.array.ctypes.data + self.array.nbytes // 2
            # Only a batch of one cell has room on every side.
            self.shape[0] = self.shape[1] = 1
        elif self.what == "no data":
            tensor.data = None
        elif self.what == "type":
            tensor.code, tensor.bits, tensor.lanes = draws.pick((
                (0, 32, 1), (1, 32, 1), (2, 16, 1), (4, 16, 1), (5, 32, 1), (2, 32, 2), (2, 8, 1),
                (200, 7, 0),
            ))  # fmt: skip
        elif self.what == "device":
            self.device = draws.pick((
                None, (), (1,), (CPU, 0, 0), (CUDA, 0), (8, 0), (99, 0), (2**40, 0), ("cpu", 0),
                "cpu", 1,
            ))  # fmt: skip
        elif self.what == "device of the capsule":
            tensor.device = draws.pick((CUDA, 3, 8, 99, -1))
        elif self.what == "offset":
            tensor.byte_offset = draws.pick((4, 1, 2))
        elif self.what == "odd address":
            tensor.data = self.array.ctypes.data + draws.pick((1, 2, 3))
        tensor.ndim = ndim
        self._deleter = _DELETER(self._delete)
        if self.what != "no deleter":
            managed.deleter = ctypes.cast(self._deleter, ctypes.c_void_p).value
        self.managed = managed
        self.last: object = None
        _alive.append(self)

    def _delete(self, _pointer: int) -> None:
        self.deleted += 1

    def check(self) -> None:
        """A consumer deletes what it took once; a capsule that was refused is not consumed."""
        require(self.deleted <= self.capsules, "a DLPack capsule was deleted twice")

    def __dlpack_device__(self) -> object:
        return self.device

    def __dlpack__(self, **_options: object) -> object:
        if self.what == "raises":
            raise Planted("no capsule")
        if self.what == "capsule":
            return self.array
        if self.twice and self.last is not None:
            return self.last
        self.capsules += 1
        address = ctypes.addressof(self.managed)
        self.last = _new_capsule(address, self.name, None)
        return self.last

    def __repr__(self) -> str:
        return f"Producer({self.what!r}, {list(self.shape[:2])}, twice={self.twice})"


class Interfering:
    """A number or array whose methods use the tile that received it, and then raise or go on."""

    def __init__(self, tile: pl.Tile, array: object, *, raises: bool) -> None:
        self._tile, self._array, self._raises = tile, array, raises

    def _interfere(self) -> None:
        self._tile.forward(np.ones(self._tile.x_size, np.float32))
        if self._raises:
            raise Planted("a method raises")

    def __float__(self) -> float:
        self._interfere()
        return 0.1

    def __index__(self) -> int:
        self._interfere()
        return 1

    def __array__(self, *_arguments: object, **_options: object) -> object:
        self._interfere()
        return self._array

    def __dlpack_device__(self) -> object:
        return (CPU, 0)

    def __dlpack__(self, **options: object) -> object:
        self._interfere()
        return self._array.__dlpack__(**options)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"Interfering({self._array!r}, raises={self._raises})"


class Stubborn:
    """Raises whatever it is asked."""

    def __getattr__(self, name: str) -> object:
        raise Planted(name)

    def __repr__(self) -> str:
        return "Stubborn()"


def sound_layouts(plain: np.ndarray[Any, Any]) -> list[Callable[[], object]]:
    """Equal numbers in every layout that a tile takes."""
    rows, cols = plain.shape

    def padded() -> object:
        wide = np.full((rows * 2, cols + 3), np.nan, np.float32)
        wide[::2, 1 : cols + 1] = plain
        return wide[::2, 1 : cols + 1]

    def misaligned() -> object:
        raw = np.empty(plain.nbytes + 1, np.uint8)[1:]
        raw[:] = np.frombuffer(plain.tobytes(), np.uint8)
        return raw.view(np.float32).reshape(plain.shape)

    def readonly() -> object:
        copied = plain.copy()
        copied.flags.writeable = False
        return copied

    return [
        plain.copy,
        lambda: plain.astype(np.float64),
        lambda: plain.astype(np.longdouble),
        lambda: np.asfortranarray(plain),
        lambda: plain[::-1].copy()[::-1],
        lambda: plain[:, ::-1].copy()[:, ::-1],
        lambda: plain.astype(">f4"),
        lambda: np.repeat(plain, 2, axis=1)[:, ::2],
        lambda: np.broadcast_to(plain[:1], plain.shape) if rows == 1 else plain.copy(),
        padded,
        misaligned,
        readonly,
        lambda: plain.view(type("Sub", (np.ndarray,), {})),
        lambda: plain.astype(np.float16),
    ]


def unsound(draws: Draws, tile: pl.Tile, rows: int, cols: int) -> object:
    """Something that is no matrix [rows, cols] of numbers, or a strange one."""
    plain = draws.normal(rows, cols)
    what = draws.integer(0, 9)
    if what <= 1:
        return Producer(draws, rows, cols)
    if what == 2:
        return Interfering(tile, plain, raises=draws.chance(0.5))
    if what == 3:
        shape = draws.pick((
            (), (cols + 1,), (rows, cols + 1), (rows, max(cols - 1, 0)), (0, cols), (rows, 0),
            (rows, cols, 1), (0,), (1,) * 20,
        ))  # fmt: skip
        return draws.normal(*shape) if shape else np.float32(1.0)
    if what == 4:
        with np.errstate(all="ignore"):
            return plain.astype(draws.pick(("i4", "?", "c8", "O", "S8", "u8", "V4", "m8", "U3")))
    if what == 5:
        bad = plain.astype(draws.pick((np.float32, np.float64)))
        bad[draws.integer(0, rows - 1), draws.integer(0, cols - 1)] = draws.pick(
            (np.nan, np.inf, -np.inf, 1e39)
        )
        return bad
    if what == 6:
        return plain * np.float32(draws.extreme())
    if what == 7:
        return draws.pick((
            np.ma.masked_array(plain, plain > 0), plain.tolist(), iter(plain), np.matrix(plain),
            memoryview(plain),
        ))  # type: ignore[list-item] # fmt: skip
    if what == 8:
        return np.zeros(rows * cols, dtype=[("f", "f4")]).reshape(rows, cols)
    return Stubborn() if draws.chance(0.2) else draws.pick(plain_values(draws))
