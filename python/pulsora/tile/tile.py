"""The analog tile: NumPy arrays, or anything with __dlpack__, in and out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsora import _core
from pulsora._internal.threads import chosen_threads
from pulsora.tile.adapter import adapter_of
from pulsora.tile.arrays import Arrays, read_only
from pulsora.tile.clipping import as_written, confined, warn_of_clipping
from pulsora.tile.configuration import config_of
from pulsora.tile.explanation import Explanation
from pulsora.tile.programming import programming_of
from pulsora.tile.retention import retention_of
from pulsora.tile.stateful import StatefulTile, _restored  # noqa: F401 - old pickles name it

if TYPE_CHECKING:
    from pulsora.config import TileConfig
    from pulsora.tile.adapter import Adapter
    from pulsora.tile.arrays import Array, Matrix
    from pulsora.tile.programming import Programming
    from pulsora.tile.retention import Retention

__all__ = ["Explanation", "Tile"]


class Tile(StatefulTile):
    """A simulated crossbar array W [d_size, x_size] with its periphery.

    Inputs are NumPy arrays or anything with `__dlpack__` (torch tensors): float32 is used in place
    if rows are contiguous, float16 and float64 are converted, other types are a TypeError. A batch
    is [m, lines], one sample [lines]; results have the same form, as NumPy arrays for input in host
    memory and arrays with `__dlpack__` for input in GPU memory. Inputs of a tile on a GPU must lie
    there; torch tensors use torch's current stream, other inputs the default stream.

    A result depends on the configuration, seed, tile_id and the calls made so far; never on
    threads, on how a batch is split over calls, or on the machine. (Reads in floating point, which
    `explain` tells, agree on CPU and GPU to rounding, or with gpu_products = "reproducible".)
    Python threads may share a tile; their calls run one at a time, without the interpreter lock.

    Args:
        d_size: Number of outputs, rows of W; at least 1.
        x_size: Number of inputs, columns of W; at least 1.
        config: Devices and periphery; a single array of ConstantStep devices by default.
        seed: Seed of all random numbers of the tile, from 0 up to 2^63 - 1.
        tile_id: Distinguishes tiles that share a seed; below 2^32.
        device: "cpu", "cuda" or "cuda:<number>".
        threads: CPU threads of an operation; by default OMP_NUM_THREADS or all usable CPUs; at most
            64, or the processors if more. Small operations take fewer, a forked process one.

    Raises:
        ConfigError: For a bad size, seed or parameter; it names parameter, value and remedy.
        DeviceError: If the device cannot be used.
        OutOfMemoryError: If the cells do not fit into memory.
    """

    def __init__(
        self,
        d_size: int,
        x_size: int,
        config: TileConfig | None = None,
        *,
        seed: int = 0,
        tile_id: int = 0,
        device: str = "cpu",
        threads: int | None = None,
    ) -> None:
        if not isinstance(device, str):
            raise TypeError(f"device = {device!r}: write 'cpu', 'cuda' or 'cuda:<number>'")
        settings, count = config_of(config).to_dict(), chosen_threads(threads)
        self._hold(_core.make_tile(d_size, x_size, settings, seed, tile_id, device, count))

    def _hold(self, core: _core.Tile) -> None:
        self._core = core
        self._arrays = Arrays(core)
        self._adapter = adapter_of(core, self._arrays)
        self._programming = programming_of(core)
        self._retention = retention_of(core)

    @property
    def d_size(self) -> int:
        """Number of outputs, rows of W."""
        return self._core.d_size

    @property
    def x_size(self) -> int:
        """Number of inputs, columns of W."""
        return self._core.x_size

    @property
    def seed(self) -> int:
        """Seed of all random numbers of the tile."""
        return self._core.seed

    @property
    def tile_id(self) -> int:
        """Number that distinguishes this tile from others with the same seed."""
        return self._core.tile_id

    @property
    def threads(self) -> int:
        """CPU threads that an operation may use; settable at any time, no effect on results."""
        return self._core.threads

    @threads.setter
    def threads(self, threads: int) -> None:
        self._core.threads = threads

    @property
    def gpu_products(self) -> str:
        """Precision of products on a GPU that are not in integers; settable at any time.

        "single", the default: single precision. "tf32_forward": forward reads of large arrays round
        factors to 11 bits (a relative error of 3e-4) and take about two thirds of the time. "tf32":
        backward reads too. "reproducible": the bits of the CPU, a few times slower.

        Raises:
            ConfigError: When set to another name.
        """
        return self._core.gpu_products

    @gpu_products.setter
    def gpu_products(self, products: str) -> None:
        self._core.gpu_products = products

    def forward(
        self,
        x: Array,
        out: Array | None = None,
        *,
        first: int = 0,
        of: int | None = None,
        evaluation: bool = False,
    ) -> Array:
        """Reads y = W x through the forward periphery.

        Args:
            x: Inputs [m, x_size] or [x_size].
            out: Array for y instead of a new one: float32 of the shape of the result.
            first: Number of x's first row in the mini-batch, if tiles in one state share its rows.
            of: Number of rows of the whole mini-batch, m by default. x gets the random numbers that
                its rows have in a read of the whole, and all rows are counted.
            evaluation: Whether the read changes nothing that a training depends on: it is not
                counted, and its random numbers follow from the counters and from the samples that
                evaluations have read since these changed.

        Returns:
            y [m, d_size] or [d_size], or `out`.

        Raises:
            InputError: For wrong shapes or rows, non-finite values, and non-finite sums on the CPU.
            ConfigError: For a part of a mini-batch with noise_management = "average_abs_max".
            TypeError: For anything but floating-point arrays.
            DeviceError: If x is on another device than the tile.
        """
        return self._core.forward(x, out, first, of, evaluation)

    def backward(
        self,
        d: Array,
        out: Array | None = None,
        *,
        first: int = 0,
        of: int | None = None,
        evaluation: bool = False,
        takes_infinite: bool = False,
    ) -> Array:
        """Reads dx = W^T d through the backward periphery.

        Args:
            d: Gradients at the outputs [m, d_size] or [d_size].
            out: Array for dx, as in forward(). The errors of forward() are raised here too.
            first: Number of the first row of d in the mini-batch.
            of: Number of rows of the whole mini-batch.
            evaluation: Whether the read is an evaluation's, as in forward().
            takes_infinite: Whether rows with values that are not finite have results of NaN.

        Returns:
            dx [m, x_size] or [x_size], or `out`.
        """
        return self._core.backward(d, out, first, of, evaluation, takes_infinite)

    def update(self, x: Array, d: Array, lr: float, *, end_of_batch: bool = True) -> None:
        """One step of gradient descent by pulses: W <- W - lr d^T x for a batch, in expectation.

        A long CPU update can be interrupted (Ctrl-C). The tile is then as after an update by the
        samples so far with end_of_batch=False; `counters["update_samples"]` counts them. The
        mini-batch is still open: pass the other samples, or call end_batch(). (Devices with
        noise_merge="batch" and adapters with projection="reuse" take all samples at once.)

        Args:
            x: Inputs [m, x_size] or [x_size].
            d: Gradients at the outputs [m, d_size] or [d_size].
            lr: Learning rate.
            end_of_batch: Whether the mini-batch ends here. Several calls, of which only the last
                (or end_batch()) ends the mini-batch, have the same bits as one call.

        Raises:
            InputError: For wrong shapes, non-finite values, changes beyond single precision (on the
                CPU), or no random numbers left. Nothing has changed then, nor for a bad lr.
            TypeError: For anything but floating-point arrays.
        """
        self._core.update(x, d, lr)
        if end_of_batch:
            self._core.end_batch(lr)

    def end_batch(self, lr: float) -> None:
        """Ends a mini-batch whose updates had end_of_batch=False.

        Cells decay and diffuse then, and schedules count the mini-batch.

        Args:
            lr: Learning rate of its updates.

        Raises:
            ConfigError: For a bad lr; nothing has changed then.
        """
        self._core.end_batch(lr)

    def post_update(self, lr: float) -> None:
        """end_batch(), by its earlier name."""
        self.end_batch(lr)

    def follow(self, master: Array) -> None:
        """Lets cells follow a digital weight by pulses, and ends a mini-batch.

        The tile is of a `MixedPrecisionConfig` with `digital_weight`. A cell that lags behind by
        whole steps gets as many pulses; docs/reference/mixed_precision.md defines it.

        Args:
            master: The digital weight [d_size, x_size], in units of the cells.

        Raises:
            ConfigError: For another kind of tile.
            InputError: For a wrong shape, and values that are not finite (on a GPU, at a later
                call). Nothing has changed then.
        """
        self._core.follow(master)

    def calibrate(self, pulses: int = 0) -> dict[str, float]:
        """Programs the references of the cells to their symmetric points; weights stay.

        The tile is of a `ReferenceConfig`, or of a `MixedPrecisionConfig` with cells="reference".
        Weights stay as they are, within the bounds of the cells.

        Args:
            pulses: Pairs of a pulse up and one down that find the point of each cell, with the
                noise of its pulses; 0 takes the exact point.

        Returns:
            The error that is left: "error_mean", "error_rms" and "error_max" of the references, in
            units of the weights, and "cells_without_point", cells that have no symmetric point.

        Raises:
            ConfigError: For a tile without references, and if most cells have no symmetric point;
                nothing has changed then.
        """
        return self._core.calibrate(pulses)

    @property
    def weights(self) -> Matrix:
        """The weights [d_size, x_size] that a perfect read would see, adapter included; a copy.

        Of a programmed tile these are the weights of its array now; `programming.written` are those
        that were written.

        The array is read-only. Setting `tile.weights` writes digitally: weights are confined to the
        bounds of their cells, and an adapter is reset. A warning comes before the write if it will
        confine more than 1 % of the weights, and change the matrix by more than 10 % of its norm.
        Lists and other types of numbers are converted as NumPy does.

        Raises:
            InputError: On setting a wrong shape, or values that are not finite.
        """
        return read_only(self._core.get_weights())

    @weights.setter
    def weights(self, weights: Array) -> None:
        wanted = as_written(weights)
        warn_of_clipping([confined(self._core, wanted)], wanted)
        self._core.set_weights(wanted)

    @property
    def arrays(self) -> Arrays:
        """The arrays by name: `list(tile.arrays)` gives names, `tile.arrays["visible"]` a copy."""
        return self._arrays

    @property
    def visible(self) -> Matrix:
        """Weights [d_size, x_size] of the visible array W alone, `arrays["visible"]`; a copy.

        Setting it writes digitally, within the bounds of the cells; an adapter stays as it is.

        Raises:
            AttributeError: If the tile has no such array.
        """
        self._require_visible()
        return self._arrays["visible"]

    @visible.setter
    def visible(self, weights: Array) -> None:
        self._require_visible()
        self._arrays["visible"] = weights

    def _require_visible(self) -> None:
        if "visible" not in self._arrays:
            have = ", ".join(self._arrays) or "weights alone"
            raise AttributeError(f"this tile has no array called visible; it has {have}")

    @property
    def adapter(self) -> Adapter | None:
        """The pulsed low-rank adapter (of LRTTConfig with rank >= 1), or None."""
        return self._adapter

    @property
    def programming(self) -> Programming | None:
        """The array that is programmed once, and drifts (of InferenceConfig), or None."""
        return self._programming

    @property
    def retention(self) -> Retention | None:
        """The ages of pulsed arrays that drift (of a config with `retention=`), or None."""
        return self._retention

    def describe_cells(self, array: str = "visible") -> dict[str, Matrix]:
        """Returns bounds and step sizes of the cells of an array.

        Args:
            array: A name of `arrays`.

        Returns:
            w_max, w_min: Bounds of each cell; step_up, step_down: signed mean change by a pulse at
            the present weight. All have the array's shape, as reads see weights minus a reference.

        Raises:
            ConfigError: If the tile has no such array.
        """
        return self._core.describe_cells(array)

    def saturated_cells(self, array: str = "visible") -> int:
        """Returns the number of cells of an array that are at a bound.

        The weights that count are those of the cells, without write noise.

        Raises:
            ConfigError: If the tile has no such array.
        """
        return self._core.saturated_cells(array)

    def reset_columns(self, array: str, first: int, count: int, probability: float = 1.0) -> None:
        """Resets columns: cells go to the reset value of their device, with its spreads.

        Args:
            array: A name of `arrays`.
            first: The first column; columns are counted modulo the width of the array.
            count: Number of columns.
            probability: Probability that a cell of these columns is reset, from 0 to 1.

        Raises:
            ConfigError: If the tile has no such array, or for a number out of range.
        """
        self._core.reset_columns(array, first, count, probability)

    @property
    def counters(self) -> dict[str, int]:
        """Numbers of samples in each direction, of mini-batches, and of digital writes."""
        return self._core.counters()

    def statistics(self) -> dict[str, Any]:
        """Statistics so far: pulses, saturated cells, bytes of memory, transfers of an adapter."""
        return self._core.statistics()

    def hardware_counts(self) -> dict[str, Any]:
        """Counts of what hardware would have done so far, as `pulsora.accounting` takes them.

        Evaluations are left out, as are repeats of reads by a process that reads a part of a batch.
        """
        return self._core.hardware_counts()

    @property
    def memory_bytes(self) -> int:
        """Bytes that the arrays of the tile take: weights, cells, and optional planes."""
        return int(self._core.memory_bytes())

    def explain(self, x: Array, d: Array, lr: float) -> Explanation:
        """Explains an update by (x, d, lr): settings in force, and warnings. Nothing changes.

        Raises:
            InputError: For wrong shapes, or values that are not finite.
            ConfigError: For a bad lr.
        """
        values = self._core.explain(x, d, lr)
        return Explanation(values, warnings=tuple(values.pop("warnings", ())))

    def __repr__(self) -> str:
        return (
            f"Tile({self.d_size}, {self.x_size}, {self.config!r}, seed={self.seed}, "
            f"tile_id={self.tile_id}, device={self.device!r})"
        )
