"""A fully connected layer on analog tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsora.nn.base import AnalogModule

if TYPE_CHECKING:
    from torch import Tensor

    from pulsora.config import TileConfig

__all__ = ["AnalogLinear"]


class AnalogLinear(AnalogModule):
    """y = x W^T + bias with W [out_features, in_features] on tiles; `torch.nn.Linear`'s twin.

    Args:
        in_features: Size of the last dimension of x.
        out_features: Size of the last dimension of y.
        bias: Whether to add a bias.
        config: Configuration of the tiles, for instance `pulsora.LRTTConfig(rank=16)`.
        **options: seed, tile_id, digital_bias, max_input_size, max_output_size, device, threads,
            weight_scaling, scaling_per and learn_out_scaling, as `AnalogModule` explains them.

    Raises:
        ValueError: for sizes below 1; ConfigError if the configuration does not suit the tiles.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        config: TileConfig | None = None,
        **options: Any,
    ) -> None:
        super().__init__(out_features, in_features, bias, config, 1, **options)
        self.digital_class: type[Any] | None = (
            None  # of a layer like Linear that it was made from, if another
        )
        self.in_features = in_features
        self.out_features = out_features

    def forward(
        self, x: Tensor, gate: Tensor | None = None, steps: int = 1, bias: Tensor | None = None
    ) -> Tensor:
        """y [..., out_features] for x [..., in_features].

        Where the tiles have adapters (`LRTTConfig`), a gate that broadcasts to [..., rank] makes it
        W x + alpha A (gate * (B x)), in each tile; its gradient is that of any tensor. It needs an adapter
        that is injected with inject_io = "per_array".

        `steps` is the number of steps in time that stand one below the other in the first dimension of x, each with the
        rows of a whole mini-batch. Several processes that share a batch have to know it; nothing else depends on it.
        `bias` [out_features] is added in place of the layer's own.

        Raises:
            ValueError: for a gate where a tile has no adapter, or of another shape.
        """
        return self.product(x, gate, steps, bias)

    def extra_repr(self) -> str:
        """What `print(layer)` shows between the brackets."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, {self._describe()}"
        )
