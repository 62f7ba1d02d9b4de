"""Kernels of forecasts: encoder, recurrent ensemble, truncated SVD, memory of residuals.

Arguments are NumPy arrays, tensors of torch, or anything else in host memory with `__dlpack__`;
float32 is used as it is, float16 and float64 are rounded, other types are a TypeError. Results are
NumPy arrays, or tensors where a tensor went in. Tensors on a GPU are processed there, in torch's
current stream. No bit depends on the number of threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pulsora import _core
from pulsora._internal.checks import require_at_least
from pulsora._internal.threads import chosen_threads
from pulsora.forecast.arrays import Work, host

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = Any

__all__ = ["ResidualMemory", "TruncatedSVD", "encode", "truncated_svd"]


class TruncatedSVD(NamedTuple):
    """A matrix [m, n] as U diag(S) V, or its best approximation of that rank."""

    U: Array
    """[m, k], orthonormal columns."""
    S: Array
    """[k], falling; exactly 0 beyond the numerical rank."""
    V: Array
    """[k, n], orthonormal rows; the first of the largest elements of each is positive."""
    info: int
    """1 if the matrix has a non-finite element, and all others are NaN; else 0."""


def encode(x: Array, weights: Array, bias: Array, *, threads: int | None = None) -> Array:
    """relu(x W + b), in which NaN stays NaN.

    Args:
        x: Rows [b, features].
        weights: [features, encoded].
        bias: [encoded].
        threads: CPU threads; all that the process may run on by default.

    Raises:
        DeviceError: if the arrays are not all in host memory, or on one GPU.
        InputError: for shapes that do not fit.
        TypeError: for anything but floating-point arrays.
    """
    work = Work(threads, x=x, weights=weights, bias=bias)
    rows, _ = _shape(work, "x")
    _, encoded = _shape(work, "weights")
    out = work.empty(rows, encoded)
    _core.forecast_encode(work["x"], work["weights"], work["bias"], out, *work.place)
    return work.result(out)


def truncated_svd(
    a: Array,
    k: int,
    *,
    method: str = "randomised",
    oversampling: int = 16,
    power_steps: int = 4,
    seed: int = 0,
    threads: int | None = None,
) -> TruncatedSVD:
    """The k largest singular values of a matrix, and their vectors.

    "randomised" finds them in a random subspace that `power_steps` products with a and its
    transpose improve: 4 are within 0.1 % of the best approximation unless the matrix is all noise,
    which takes 8. "gram" takes the eigenvectors of a a^T, for matrices with a side of up to 64,
    such as a history of weights. "exact" rotates, for sides of up to 1024. Beyond the numerical
    rank, which counts singular values above max(m, n) 2^-23 of the largest, S is 0 and vectors are
    completed from unit vectors.

    Args:
        a: The matrix [m, n].
        k: Number of singular values, from 1 to the shorter side of a.
        method: "randomised", "gram" or "exact".
        oversampling: Columns of the random subspace beyond k.
        power_steps: Number of products with a and its transpose, see above.
        seed: Of the random subspace, from 0 up.
        threads: CPU threads; all that the process may run on by default.

    Raises:
        InputError: for k or another number out of range, a side that is too long for the method,
            and products of elements beyond single precision.
        ConfigError: for another method.
        TypeError: for anything but a floating-point array.
    """
    require_at_least("seed", seed, 0)
    work = Work(threads, a=a)
    rows, cols = _shape(work, "a")
    shortest = min(rows, cols)
    if not 1 <= k <= shortest:
        raise _core.InputError(
            f"k is {k}; it must be from 1 to {shortest}, the shorter side of the matrix"
        )
    u, s, v = work.empty(rows, k), work.empty(k), work.empty(k, cols)
    options = (method, oversampling, power_steps, seed)
    info = _core.truncated_svd(work["a"], k, *options, u, s, v, *work.place)
    return TruncatedSVD(work.result(u), work.result(s), work.result(v), info)


class ResidualMemory:
    """Memory of the residuals of earlier predictions by circumstances, to correct later ones.

    The correction of a prediction is at most a fifth of its magnitude, and the sum of two parts.
    The first is 0.7 of a mean of the residuals of the entries nearest to its key (by cosine, ties
    to the newer one; each weighs 0.95^(age / 100) times its confidence). The second is 0.3 of a
    linear function of the key, learned by least mean squares at rate 0.01 (1 / (1 + |k|^2) for keys
    k with |k|^2 >= 199, where 0.01 diverges). An empty memory corrects nothing.

    Args:
        key_size: Elements of a key, at least 1.
        capacity: Number of entries kept; the oldest is dropped first.
        nearest: Number of entries that a correction uses.

    Raises:
        InputError: for numbers below 1.
    """

    def __init__(self, key_size: int = 64, *, capacity: int = 1000, nearest: int = 10) -> None:
        self._core = _core.ResidualMemory(key_size, capacity, nearest)

    def __len__(self) -> int:
        """Number of entries."""
        return self._core.size

    def remember(self, key: Array, residual: float, step: float, confidence: float = 1.0) -> None:
        """Stores a residual: the outcome less the prediction.

        Args:
            key: The circumstances of the prediction, [key_size].
            residual: The difference.
            step: Time of the entry; not before the last one.
            confidence: Above 0 and at most 1, such as 1 / (1 + the prediction's standard
                deviation).

        Raises:
            InputError: for values out of range or not finite; nothing has changed then.
        """
        self._core.remember(host("key", key), float(residual), float(step), float(confidence))

    def corrections(
        self, keys: Array, predictions: Array, step: float, *, threads: int | None = None
    ) -> NDArray[np.float64]:
        """Corrections of predictions [b] made at `step` under circumstances [b, key_size].

        Raises:
            InputError: for shapes that do not fit.
        """
        given = np.asarray(predictions, np.float64)
        made: NDArray[np.float64] = self._core.corrections(
            host("keys", keys), given, float(step), chosen_threads(threads)
        )
        return made

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """The state, as arrays."""
        entries, keys, linear = self._core.saved()
        return {"entries": entries, "keys": keys, "linear": linear}

    def load_state_dict(self, saved: dict[str, NDArray[Any]]) -> None:
        """Restores a state of `state_dict`.

        Raises:
            InputError: if the state does not fit this memory or has values that are not finite;
                nothing has changed then.
        """
        names = ("entries", "keys", "linear")
        missing = [name for name in names if name not in saved]
        if missing:
            raise _core.InputError(f"saved lacks {', '.join(missing)}; give what state_dict() gave")
        self._core.restore(*(saved[name] for name in names))


def _shape(work: Work, name: str) -> tuple[int, int]:
    """The sizes of a matrix; InputError for other arrays."""
    if work[name] is None:
        raise TypeError(f"{name} is None; give floating-point numbers")
    shape = tuple(work[name].shape)
    if len(shape) != 2:
        raise _core.InputError(f"{name} has shape {list(shape)}; it must be a matrix")
    return shape
