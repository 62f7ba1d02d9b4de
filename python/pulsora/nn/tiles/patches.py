"""The patches of images, which are the samples of a convolution's update."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from pulsora import _core
from pulsora.nn.tiles.mapped_memory import mapped

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["PatchSettings", "Patches", "as_matrix", "take_patches"]


class PatchSettings(NamedTuple):
    """Sizes of the patches of an image, each along the height and along the width."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]

    def places(self, *sizes: int) -> tuple[int, int]:
        """Returns the number of patches along the height and the width of an image."""
        down, across = (
            (size - d * (k - 1) - 1) // s + 1 for size, k, s, d in zip(sizes, *self, strict=True)
        )
        return down, across


def take_patches(images: Tensor, settings: PatchSettings, *, is_temporary: bool = False) -> Tensor:
    """Returns the patches [m, patches, channels * kernel] of images [m, channels, height, width].

    The images are in single precision, or on a GPU. Temporary patches are dropped before the
    backward pass.
    """
    sizes = settings.places(*images.shape[2:])
    columns = images.shape[1] * math.prod(settings.kernel)
    shape = (len(images), math.prod(sizes), columns)
    if images.is_cpu:
        patches = mapped(images, *shape) if is_temporary else images.new_empty(shape)
        given = images.detach().contiguous().numpy()
        _core.take_patches(given, tuple(settings), patches.numpy(), torch.get_num_threads())
        return patches
    if images.dtype == torch.float32:
        taken = images.new_empty(shape)
        stream = torch.cuda.current_stream(images.device).cuda_stream
        pixels = images.detach().contiguous()
        _core.take_patches_on_gpu(pixels, tuple(settings), taken, images.get_device(), stream)
        return taken
    for axis, (k, s, d) in enumerate(zip(*settings, strict=True), start=2):
        images = images.unfold(axis, d * (k - 1) + 1, s)[..., ::d]
    return images.permute(0, 2, 3, 1, 4, 5).reshape(shape)


class Patches(NamedTuple):
    """A matrix of inputs x of a convolution, as the images from which its rows are taken.

    The images take a fraction of the memory: a kernel of 3 x 3 repeats each pixel 9 times.
    """

    images: Tensor
    """[m, channels, height, width], padded."""
    settings: PatchSettings
    groups: int = 1
    """Groups of channels, which have tiles of their own."""
    has_ones: bool = False
    """Whether a 1, the input of a bias in cells, follows the elements of each group."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix."""
        rows = len(self.images) * math.prod(self.settings.places(*self.images.shape[2:]))
        columns = self.images.shape[1] * math.prod(self.settings.kernel)
        return rows, columns + self.groups * self.has_ones

    def numel(self) -> int:
        """Number of elements of the matrix."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Memory of the images."""
        return self.images.nbytes

    @property
    def _version(self) -> int:
        return self.images._version  # noqa: SLF001 - documented by torch

    def matrix(self) -> Tensor:
        """Returns the matrix [m * patches, columns]."""
        patches = take_patches(self.images, self.settings).flatten(0, 1)
        if not self.has_ones:
            return patches
        blocks = patches.reshape(len(patches), self.groups, -1)
        return torch.nn.functional.pad(blocks, (0, 1), value=1.0).flatten(1)

    def to(self, device: torch.device) -> Patches:
        """Returns the patches with images on another device."""
        return self._replace(images=self.images.to(device))

    def for_core(self) -> tuple[Any, ...]:
        """Returns the matrix for `_core.apply_updates`."""
        m, *size = self.images.shape  # contiguous images
        pixels = self.images.view(m, math.prod(size))
        given = pixels.numpy() if pixels.is_cpu else pixels
        return given, tuple(size), tuple(self.settings), self.groups, self.has_ones


def as_matrix(x: Tensor | Patches) -> Tensor:
    """Returns inputs x [m, columns] of a read as a tensor."""
    return x.matrix() if isinstance(x, Patches) else x
