"""What a tile offers where it has a pulsed low-rank adapter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from pulsora import _core

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix: TypeAlias = NDArray[np.float32]

Array: TypeAlias = Any
"""A NumPy array, or anything with `__dlpack__`."""

__all__ = ["AdapterAccess"]


class AdapterAccess:
    """The part of a Tile that concerns its adapter; see there for arrays and devices."""

    _core: _core.Tile

    @property
    def fast_a(self) -> Matrix:
        """Weights of the adapter's output factor A [d_size, K] ([x_size, K] with swap_xd); a copy.

        Setting it writes digitally, within the bounds of the cells.

        Raises:
            AttributeError: If the tile has no adapter.
        """
        return self._array("fast_a")

    @fast_a.setter
    def fast_a(self, weights: Array) -> None:
        self._core.set_array("fast_a", weights)

    @property
    def fast_b(self) -> Matrix:
        """Weights of the adapter's input factor B [K, x_size] ([K, d_size] with swap_xd); a copy.

        Setting it writes digitally, within the bounds of the cells.

        Raises:
            AttributeError: If the tile has no adapter.
        """
        return self._array("fast_b")

    @fast_b.setter
    def fast_b(self, weights: Array) -> None:
        self._core.set_array("fast_b", weights)

    def _array(self, name: str) -> Matrix:
        try:
            weights: Matrix = self._core.get_array(name)
        except _core.ConfigError as error:
            raise AttributeError(f"this tile has no {name}: {error}") from None
        return weights

    def forward_gated(self, x: Array, gate: Array) -> tuple[Array, Array]:
        """A routed read y = W x + alpha A (gate * (B x)) of a tile with an adapter.

        Args:
            x: Inputs [m, x_size] or [x_size].
            gate: Weight of each component for each sample, [m, K] or [K].

        Returns:
            y, and B x [m, K] as it was read, which backward_gated() needs.

        Raises:
            ConfigError: If there is no adapter, or it is not injected with inject_io="per_array".
            InputError: For wrong shapes, or values that are not finite.
        """
        return self._core.forward_gated(x, gate)

    def backward_gated(self, d: Array, gate: Array, read: Array) -> tuple[Array, Array]:
        """The gradients of forward_gated(): dx = W^T d + alpha B^T (gate * (A^T d)), and that of the gate.

        Args:
            d: Gradients at the outputs [m, d_size] or [d_size].
            gate: As in forward_gated().
            read: What forward_gated() gave besides y.

        Returns:
            dx, and the gradient of the gate, alpha (B x) * (A^T d) [m, K].

        Raises:
            ConfigError: If there is no adapter, or it is not injected with inject_io="per_array".
            InputError: For wrong shapes, or values that are not finite.
        """
        return self._core.backward_gated(d, gate, read)

    def update_gated(
        self,
        x: Array,
        d: Array,
        gate: Array,
        lr: float,
        *,
        end_of_batch: bool = True,
    ) -> None:
        """update() for samples that went through forward_gated().

        Raises:
            ConfigError: If there is no adapter, or for a bad lr; nothing has changed then.
            InputError: For wrong shapes, or values that are not finite; nothing has changed then.
        """
        self._core.update_gated(x, d, gate, lr)
        if end_of_batch:
            self._core.post_update(lr)

    def transfer(self) -> None:
        """Transfers the adapter into W and starts it anew, now; the schedule goes on as it was.

        Raises:
            ConfigError: If the tile is of another kind than LRTTConfig.
        """
        self._core.transfer()

    def set_reinit_vectors(self, vectors: Array) -> None:
        """Hands in the directions [K, x_size] that B starts from with reinit="svd"; it takes them at once.

        Raises:
            ConfigError: Without an adapter or with another reinit.
            InputError: For a wrong shape, or values that are not finite.
        """
        self._core.set_reinit_vectors(vectors)

    @property
    def transfer_stats(self) -> dict[str, dict[str, Any]]:
        """Fidelity of the transfers so far: "total" and "last".

        Each has transfers, gain (<dW, T>/<T, T> with T = transfer_lr A B; 1 is lossless), undelivered (share of T that did
        not fit the trains), trains, pulses, clipped_components, saturated_cells, norm_a, norm_b.

        Raises:
            AttributeError: If the tile has no adapter.
        """
        statistics = self._core.statistics()
        if "transfer" not in statistics:
            raise AttributeError(
                "this tile has no transfer_stats: it has no adapter; use LRTTConfig with rank >= 1"
            )
        return {"total": statistics["transfer"], "last": statistics["last_transfer"]}
