"""Convolutions over one, two and three dimensions on analog tiles."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import nn
from torch.nn import functional

from pulsora import _core
from pulsora._internal.transforms import in_transform
from pulsora.nn.autograd.analog_parameter import AnalogParameter
from pulsora.nn.autograd.differentiation import differentiable_once
from pulsora.nn.autograd.tile_product import require_untraced
from pulsora.nn.base import AnalogModule
from pulsora.nn.inputs import owned, require_numbers
from pulsora.nn.tiles.patches import Patches, PatchSettings, take_patches

if TYPE_CHECKING:
    from torch import Tensor

    from pulsora.config import TileConfig

__all__ = ["AnalogConv1d", "AnalogConv2d", "AnalogConv3d", "AnalogConvNd"]

_SIZES = ["width", "height", "depth"]


class AnalogConvNd(AnalogModule):
    """A convolution with kernels in a matrix [out_channels, in_channels / groups * kernel].

    Every patch of the image is one read of the tiles, and one sample of the pulsed update. An image
    therefore counts as many samples as it has patches (`transfer_every` counts samples if
    units_in_mbatch is False). With groups, each group of channels has tiles of its own.

    Args:
        in_channels: Channels of x.
        out_channels: Channels of y.
        kernel_size: Sizes of the kernels, or one number for all dimensions, like the next three.
        stride: Distance of neighbouring patches.
        padding: Padding on either side of the image; 'valid' is none, and with 'same' y has the
            sizes of x.
        dilation: Distance of neighbouring pixels of a patch.
        bias: Whether to add a bias.
        config: Configuration of the tiles.
        groups: Number of groups of channels; channels of y see only the channels of x in their
            group.
        padding_mode: Values of the padding: 'zeros', 'reflect', 'replicate' or 'circular'.
        **options: As for `AnalogLinear`.

    Raises:
        ValueError: for sizes out of range, groups that do not divide the channels, and unknown
            paddings.
    """

    _torch: ClassVar[Any]
    _dimensions: ClassVar[int]
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: str | tuple[int, ...]
    dilation: tuple[int, ...]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: str | int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        bias: bool = True,
        config: TileConfig | None = None,
        *,
        groups: int = 1,
        padding_mode: str = "zeros",
        **options: Any,
    ) -> None:
        if type(self) is AnalogConvNd:
            raise TypeError(
                "AnalogConvNd is what convolutions have in common; make an AnalogConv2d"
            )
        for name, sizes, least in (
            ("kernel_size", kernel_size, 1),
            ("stride", stride, 1),
            ("padding", padding, 0),
            ("dilation", dilation, 1),
        ):
            _require_sizes(name, sizes, self._dimensions, least)
        # A layer of torch without memory checks the other settings, and computes the derived ones.
        twin: Any = self._torch(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias=False,
            padding_mode=padding_mode,
            device="meta",
        )
        columns = in_channels // groups * math.prod(twin.kernel_size)
        super().__init__(out_channels, columns, bias, config, groups, **options)
        self._shape_weight((out_channels, in_channels // groups, *twin.kernel_size))
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = twin.kernel_size
        self.stride = twin.stride
        self.padding = twin.padding
        self.dilation = twin.dilation
        self.groups = groups
        self.padding_mode = padding_mode
        self._added: list[int] = twin._reversed_padding_repeated_twice  # noqa: SLF001

    def set_weights(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """Writes weights as a matrix, or as [out_channels, in_channels / groups, *kernel_size].

        See `AnalogModule.set_weights`.
        """
        kernels = (self.out_channels, self.in_channels // self.groups, *self.kernel_size)
        super().set_weights(weight.flatten(1) if weight.shape == kernels else weight, bias)

    def forward(self, x: Tensor) -> Tensor:
        """Returns y [m, out_channels, *output_size] for x [m, in_channels, *size], or without m."""
        require_numbers(x)
        dimensions = self._dimensions
        is_batch = x.ndim == dimensions + 2
        if not (is_batch or x.ndim == dimensions + 1) or x.shape[is_batch] != self.in_channels:
            sizes = ", ".join([str(self.in_channels), *reversed(_SIZES[:dimensions])])
            raise ValueError(f"x has shape {list(x.shape)}: give [m, {sizes}] or [{sizes}]")
        if not is_batch:
            return self.forward(x[None])[0]
        require_untraced()
        sizes_of_y = self.output_size(*x.shape[2:])
        if min(sizes_of_y) < 1:
            raise ValueError(
                f"x has shape {list(x.shape)}: with its padding it is smaller than the kernels, "
                f"{list(self.kernel_size)} with dilation {list(self.dilation)}"
            )
        if any(self._added):
            mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
            x = functional.pad(x, self._added, mode=mode)
        samples, has_channels_last = len(x), _has_channels_last(x)
        if max(self.kernel_size) == 1:  # other patches are copies
            x = owned(x, self.carrier)
        x, settings = _images(x, self.kernel_size, self.stride, self.dilation)
        patches = Patches(x, settings)
        is_plain = self.held is not None or torch.compiler.is_compiling()
        keeps = not is_plain and self._keeps_images(patches)
        rows = _rows(x, settings, samples, is_temporary=keeps)
        y = self.product(rows, patches=patches if keeps else None).transpose(1, 2)
        y = y.reshape(samples, self.out_channels, *sizes_of_y)
        # As in torch's layers, channels are last in memory only if they are last in x.
        return y if has_channels_last else y.contiguous()

    def _keeps_images(self, patches: Patches) -> bool:
        """Whether the images are kept for the gradient, instead of their patches."""
        # In functional_call() another tensor, which is refused later.
        weight: object = self.analog_weight
        return isinstance(weight, AnalogParameter) and weight.keeps_images(patches)

    def digital(self, **options: Any) -> nn.Module:
        """Returns torch's layer with these settings and new weights; takes bias, device, dtype."""
        made: nn.Module = self._torch(
            self.in_channels,
            self.out_channels,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
            padding_mode=self.padding_mode,
            **options,
        )
        return made

    def output_size(self, *sizes: int) -> tuple[int, ...]:
        """Returns the sizes of y, such as height and width, for an image of these sizes."""
        added = [sum(self._added[2 * i : 2 * i + 2]) for i in reversed(range(len(sizes)))]
        return tuple(
            (size + a - d * (k - 1) - 1) // s + 1
            for size, a, k, s, d in zip(
                sizes, added, self.kernel_size, self.stride, self.dilation, strict=True
            )
        )

    def extra_repr(self) -> str:
        """Returns the text between the brackets of `print(layer)`."""
        groups = "" if self.groups == 1 else f"groups={self.groups}, "
        mode = "" if self.padding_mode == "zeros" else f"padding_mode={self.padding_mode}, "
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, padding={self.padding}, {groups}{mode}{self._describe()}"
        )


class AnalogConv1d(AnalogConvNd):
    """`torch.nn.Conv1d`'s twin: x [m, in_channels, width]. See `AnalogConvNd`."""

    _torch = nn.Conv1d
    _dimensions = 1


class AnalogConv2d(AnalogConvNd):
    """`torch.nn.Conv2d`'s twin: x [m, in_channels, height, width]. See `AnalogConvNd`."""

    _torch = nn.Conv2d
    _dimensions = 2


class AnalogConv3d(AnalogConvNd):
    """`torch.nn.Conv3d`'s twin: x [m, in_channels, depth, height, width]. See `AnalogConvNd`."""

    _torch = nn.Conv3d
    _dimensions = 3


def _require_sizes(
    name: str, given: str | int | tuple[int, ...], dimensions: int, least: int
) -> None:
    if isinstance(given, str):
        return  # torch checks names
    sizes = (given,) * dimensions if isinstance(given, int | float) else tuple(given)
    if not all(isinstance(size, int) for size in sizes):
        raise TypeError(f"{name} = {given}: give whole numbers")
    if len(sizes) != dimensions or min(sizes) < least:
        raise ValueError(
            f"{name} = {given}: give one whole number, or {dimensions}, from {least} up"
        )


def _images(
    x: Tensor, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[Tensor, PatchSettings]:
    """Returns x [m, channels, *size] as images with two dimensions, and the sizes of patches.

    torch unfolds two dimensions only. A third dimension is first unfolded into images and channels,
    and a single dimension is taken as an image of height 1.
    """
    if len(kernel) == 1:
        x, kernel, stride, dilation = x[:, :, None], (1, *kernel), (1, *stride), (1, *dilation)
    if len(kernel) == 3:
        depths = x.unfold(2, dilation[0] * (kernel[0] - 1) + 1, stride[0])[..., :: dilation[0]]
        x = depths.permute(0, 2, 1, 5, 3, 4).flatten(2, 3).flatten(0, 1)
    return x, PatchSettings(
        (kernel[-2], kernel[-1]), (stride[-2], stride[-1]), (dilation[-2], dilation[-1])
    )


def _rows(images: Tensor, settings: PatchSettings, samples: int, *, is_temporary: bool) -> Tensor:
    """Returns patches [samples, patches, channels * kernel] of images."""
    columns: Tensor
    is_plain = torch.compiler.is_compiling() or in_transform()
    if (images.is_cuda or images.dtype == torch.float32) and not is_plain:
        unfold: Any = _Unfold.apply  # torch gives no type
        columns = unfold(images, settings, is_temporary)
    else:
        kernel, stride, dilation = settings
        columns = functional.unfold(images, kernel, dilation, 0, stride).transpose(1, 2)
    places = len(images) // max(samples, 1)  # along a third dimension
    return columns.reshape(samples, places * columns.shape[1], columns.shape[2])


def _has_channels_last(x: Tensor) -> bool:
    layout = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    return layout is not None and not x.is_contiguous() and x.is_contiguous(memory_format=layout)


class _Unfold(torch.autograd.Function):
    """`functional.unfold` with patches before elements, without torch's extra copy.

    On a GPU, torch would also launch a kernel per image.
    """

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch gives no type
        x: Tensor,
        settings: PatchSettings,
        is_temporary: bool,
    ) -> Tensor:
        ctx.size, ctx.settings = x.shape, settings
        return take_patches(x, settings, is_temporary=is_temporary)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        kernel, stride, dilation = ctx.settings
        if d.is_cpu:
            dx = d.new_empty(ctx.size)
            patches = d.contiguous().numpy()
            settings = (kernel, stride, dilation)
            _core.add_patches(patches, settings, dx.numpy(), torch.get_num_threads())
        else:
            dx = functional.fold(d.transpose(1, 2), ctx.size[2:], kernel, dilation, 0, stride)
        return dx, None, None
