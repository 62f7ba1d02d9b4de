"""A fully connected layer on analog tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsora.nn.base import AnalogModule
from pulsora.nn.inputs import owned

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
        # Class of the layer like Linear that it was converted from, if that was no Linear.
        self.digital_class: type[Any] | None = None
        self.in_features = in_features
        self.out_features = out_features

    def forward(
        self, x: Tensor, gate: Tensor | None = None, steps: int = 1, bias: Tensor | None = None
    ) -> Tensor:
        """Returns y [..., out_features] for x [..., in_features].

        If the tiles have adapters (`LRTTConfig`), a gate that broadcasts to [..., rank] makes each
        tile read W x + alpha A (gate * (B x)); the gate gets a gradient. It needs an adapter that
        is injected with inject_io = "per_array".

        `steps` is the number of time steps that are concatenated in the first dimension of x, each
        with the rows of a whole mini-batch. Only processes that share a batch depend on it. `bias`
        [out_features] is added instead of the layer's own.

        Raises:
            ValueError: for a gate if a tile has no adapter, or a gate of another shape.
        """
        return self.product(owned(x, self.carrier), gate, steps, bias)

    def extra_repr(self) -> str:
        """Returns the text between the brackets of `print(layer)`."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, {self._describe()}"
        )
