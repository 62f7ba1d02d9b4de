"""A two-dimensional convolution on analog tiles."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torch import nn

from pulsora.nn.base import AnalogModule

if TYPE_CHECKING:
    from torch import Tensor

    from pulsora.config import TileConfig

__all__ = ["AnalogConv2d"]


def _pair(value: int | tuple[int, int], name: str, least: int) -> tuple[int, int]:
    pair = (value, value) if isinstance(value, int) else value
    if min(pair) < least:
        raise ValueError(f"{name} = {value}: give one or two whole numbers from {least} up")
    return pair


def without_twin(groups: int, padding: object, padding_mode: str) -> str:
    """Why a convolution with these settings cannot be analog; nothing if it can."""
    if groups != 1:
        return f"groups = {groups}, which tiles do not have; use a digital Conv2d"
    if padding_mode != "zeros" or isinstance(padding, str):
        return (
            f"padding = {padding!r}, padding_mode = '{padding_mode}', but analog layers pad with a "
            "number of zeros; use a digital Conv2d"
        )
    return ""


class AnalogConv2d(AnalogModule):
    """A convolution whose kernels are the rows of a matrix [out_channels, in_channels * kh * kw].

    Every patch of the image is one read of the tile, and one sample of the pulsed update; an
    image therefore counts as many samples as it has patches (transfer_every counts them too).

    Args:
        in_channels: Channels of x.
        out_channels: Channels of y.
        kernel_size: Height and width of the kernels.
        stride: Distance of neighbouring patches.
        padding: Zeros around the image.
        dilation: Distance of neighbouring pixels of a patch.
        bias: Whether to add a bias.
        config: Configuration of the tiles.
        groups: 1; tiles have no groups.
        padding_mode: 'zeros'; there is no other.
        **options: As for `AnalogLinear`.

    Raises:
        ValueError: for sizes out of range, groups, and padding that is no number of zeros.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        bias: bool = True,
        config: TileConfig | None = None,
        *,
        groups: int = 1,
        padding_mode: str = "zeros",
        **options: Any,
    ) -> None:
        reason = without_twin(groups, padding, padding_mode)
        if reason:
            raise ValueError(reason)
        kernel = _pair(kernel_size, "kernel_size", 1)
        super().__init__(out_channels, in_channels * math.prod(kernel), bias, config, **options)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel
        self.stride = _pair(stride, "stride", 1)
        self.padding = _pair(padding, "padding", 0)
        self.dilation = _pair(dilation, "dilation", 1)

    def set_weights(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """Writes weights [out_channels, in_channels * kh * kw] or [out_channels, in_channels, kh, kw].

        See `AnalogModule.set_weights`.
        """
        kernels = (self.out_channels, self.in_channels, *self.kernel_size)
        super().set_weights(weight.flatten(1) if weight.shape == kernels else weight, bias)

    def forward(self, x: Tensor) -> Tensor:
        """y [m, out_channels, h', w'] for x [m, in_channels, h, w]."""
        if x.ndim != 4 or x.shape[1] != self.in_channels:
            raise ValueError(
                f"x has shape {list(x.shape)}: give [m, {self.in_channels}, height, width]"
            )
        patches = nn.functional.unfold(
            x, self.kernel_size, self.dilation, self.padding, self.stride
        )
        y = self.product(patches.transpose(1, 2)).transpose(1, 2)
        return y.reshape(len(x), self.out_channels, *self.output_size(x.shape[2], x.shape[3]))

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of y for an image of this size."""
        sizes = [
            (size + 2 * p - d * (k - 1) - 1) // s + 1
            for size, k, s, p, d in zip(
                (height, width),
                self.kernel_size,
                self.stride,
                self.padding,
                self.dilation,
                strict=True,
            )
        ]
        return sizes[0], sizes[1]

    def extra_repr(self) -> str:
        """What `print(layer)` shows between the brackets."""
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, padding={self.padding}, {self._describe()}"
        )
