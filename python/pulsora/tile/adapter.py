"""The pulsed low-rank adapter of a tile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pulsora import _core
    from pulsora.tile.arrays import Array, Arrays, Matrix

__all__ = ["Adapter", "adapter_of"]


class Adapter:
    """The pulsed low-rank adapter of a tile, `tile.adapter`.

    Methods take arrays and devices as the tile's own methods do, and calls count like the tile's:
    forward() is a read of the tile, update() one of its updates.
    """

    def __init__(self, core: _core.Tile, arrays: Arrays) -> None:
        self._core = core
        self._arrays = arrays

    @property
    def rank(self) -> int:
        """Number K of components."""
        return self._core.adapter_rank

    @property
    def a(self) -> Matrix:
        """Weights of the output factor A [d_size, K] ([x_size, K] with swap_xd); a copy.

        Setting it writes digitally, within the bounds of the cells.

        Raises:
            InputError: On setting a wrong shape, or values that are not finite.
        """
        return self._arrays["fast_a"]

    @a.setter
    def a(self, weights: Array) -> None:
        self._arrays["fast_a"] = weights

    @property
    def b(self) -> Matrix:
        """Weights of the input factor B [K, x_size] ([K, d_size] with swap_xd); a copy.

        Setting it writes digitally, within the bounds of the cells.

        Raises:
            InputError: On setting a wrong shape, or values that are not finite.
        """
        return self._arrays["fast_b"]

    @b.setter
    def b(self, weights: Array) -> None:
        self._arrays["fast_b"] = weights

    def forward(
        self,
        x: Array,
        gate: Array,
        *,
        first: int = 0,
        of: int | None = None,
        evaluation: bool = False,
    ) -> tuple[Array, Array]:
        """A gated read of the tile: y = W x + alpha A (gate * (B x)).

        Args:
            x: Inputs [m, x_size] or [x_size].
            gate: Weight of each component for each sample, [m, K] or [K].
            first: Number of the first row of x in the mini-batch, as in Tile.forward().
            of: Number of rows of the whole mini-batch.
            evaluation: Whether the read is part of an evaluation, as in Tile.forward().

        Returns:
            y, and B x [m, K] as it was read, which backward() needs.

        Raises:
            ConfigError: If the adapter is not injected with inject_io="per_array".
            InputError: For wrong shapes, or values that are not finite.
        """
        return self._core.forward_gated(x, gate, first, of, evaluation)

    def backward(
        self,
        d: Array,
        gate: Array,
        read: Array,
        *,
        first: int = 0,
        of: int | None = None,
        evaluation: bool = False,
    ) -> tuple[Array, Array]:
        """Reads the gradients of x, dx = W^T d + alpha B^T (gate * (A^T d)), and of the gate.

        Args:
            d: Gradients at the outputs [m, d_size] or [d_size].
            gate: As in forward().
            read: B x, the second result of forward().
            first: Number of the first row of d in the mini-batch, as in Tile.forward().
            of: Number of rows of the whole mini-batch.
            evaluation: Whether the read is part of an evaluation, as in Tile.forward().

        Returns:
            dx, and the gradient of the gate, alpha (B x) * (A^T d) [m, K].

        Raises:
            ConfigError: If the adapter is not injected with inject_io="per_array".
            InputError: For wrong shapes, or values that are not finite.
        """
        return self._core.backward_gated(d, gate, read, first, of, evaluation)

    def update(
        self, x: Array, d: Array, gate: Array, lr: float, *, end_of_batch: bool = True
    ) -> None:
        """Tile.update() for samples that went through forward().

        Args:
            x: Inputs [m, x_size] or [x_size].
            d: Gradients at the outputs [m, d_size] or [d_size].
            gate: As in forward().
            lr: Learning rate.
            end_of_batch: Whether the mini-batch ends here, as in Tile.update().

        Raises:
            ConfigError: For a bad lr; nothing has changed then.
            InputError: For wrong shapes, or values that are not finite; nothing has changed then.
        """
        self._core.update_gated(x, d, gate, lr)
        if end_of_batch:
            self._core.end_batch(lr)

    def transfer(self) -> None:
        """Transfers the adapter into W now and reinitialises it; the schedule does not change."""
        self._core.transfer()

    @property
    def tolerance(self) -> float:
        """Error of a cell that program and verify accept, in units of W; 0 for other transfers.

        It is `transfer_tolerance`, or two standard deviations of a reading where these are more.
        """
        return self._core.adapter_tolerance

    def merge(self, weights: Array | None = None) -> dict[str, Any]:
        """Transfers the adapter into W and leaves A at 0, so that W is the whole weight.

        To deploy W alone, whenever training stops. Training can go on from there. `keep_rest` has
        no effect on this transfer.

        Args:
            weights: What W gets by program and verify, [d_size, x_size], instead of W + alpha A B.

        Returns:
            The statistics of the transfer, as `transfer_stats["last"]`.

        Raises:
            ConfigError: If weights are given with another `transfer_mode` than "write_verify";
                nothing has changed then.
            InputError: For a wrong shape, or values that are not finite; nothing has changed then.
        """
        self._core.merge_adapter(weights)
        return self.transfer_stats["last"]

    def set_reinit_vectors(self, vectors: Array) -> None:
        """Sets directions [K, x_size] from which B starts with reinit="svd"; B takes them at once.

        Raises:
            ConfigError: With another reinit.
            InputError: For a wrong shape, or values that are not finite.
        """
        self._core.set_reinit_vectors(vectors)

    @property
    def transfer_stats(self) -> dict[str, dict[str, Any]]:
        """Fidelity of the transfers so far: "total" and "last".

        The keys of each are transfers, gain (<dW, T>/<T, T> with T = transfer_lr A B; 1 is
        lossless), undelivered (share of T that did not fit the pulse trains), trains (pulse
        trains), pulses, clipped_components, saturated_cells, norm_a, norm_b, slots (time slots,
        lines one after another). With transfer_mode="write_verify" also reads (of a cell),
        outside_cells (farther from their target than the tolerance), most_pulses (of a cell in one
        transfer) and error (root mean square of target - weight).
        """
        statistics = self._core.statistics()
        return {"total": statistics["transfer"], "last": statistics["last_transfer"]}

    def __repr__(self) -> str:
        return f"Adapter(rank={self.rank})"


def adapter_of(core: _core.Tile, arrays: Arrays) -> Adapter | None:
    """Returns the adapter of a tile, or None."""
    return Adapter(core, arrays) if core.has_adapter else None
