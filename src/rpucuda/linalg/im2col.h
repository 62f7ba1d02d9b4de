#pragma once

#include <cstdint>

#include "core/context.h"
#include "core/isa.h"
#include "core/platform.h"

namespace pulsora {

// Convolutions as matrix products: the patches of images as the rows of a matrix.

/// Images [channels, height, width], padded already, and the patches that a convolution takes from
/// them. Sizes of two elements are along the height and along the width.
struct PatchGrid {
  int64_t channels, height, width;
  int64_t kernel[2], stride[2], dilation[2];

  PULSORA_HD int64_t down() const {
    return (height - dilation[0] * (kernel[0] - 1) - 1) / stride[0] + 1;
  }
  PULSORA_HD int64_t across() const {
    return (width - dilation[1] * (kernel[1] - 1) - 1) / stride[1] + 1;
  }
  /// Patches of an image, and elements of a patch.
  PULSORA_HD int64_t patches() const { return down() * across(); }
  PULSORA_HD int64_t columns() const { return channels * kernel[0] * kernel[1]; }
  PULSORA_HD int64_t pixels() const { return channels * height * width; }
};

/// Images whose patches are the rows of a matrix.
struct PatchedImages {
  const float *pixels = nullptr;  // gapless
  int64_t count = 0;
  PatchGrid grid{};
  /// Groups of channels, and whether a 1, the input of a bias, follows the elements of each group.
  int64_t groups = 1;
  bool hasOnes = false;

  PULSORA_HD int64_t rows() const { return count * grid.patches(); }
  PULSORA_HD int64_t columns() const { return grid.columns() + (hasOnes ? groups : 0); }
  /// Number of the first pixel of the patch in row `row`.
  PULSORA_HD int64_t firstOf(int64_t row) const {
    const int64_t image = row / grid.patches();
    return firstOf(image, row - image * grid.patches(), grid.across());
  }
  /// Number of the first pixel of patch `patch` of image `image`, of patches that lie `across` side
  /// by side. An Int holds the number of patches of an image.
  template <class Int>
  PULSORA_HD int64_t firstOf(int64_t image, Int patch, Int across) const {
    const Int down = patch / across;
    const int64_t row = image * grid.channels * grid.height + down * grid.stride[0];
    return row * grid.width + (patch - down * across) * grid.stride[1];
  }
  /// Place of the pixel of column `column` after the first pixel of a patch; -1 for a 1. An Int
  /// holds the numbers of pixels and columns.
  template <class Int>
  PULSORA_HD Int placeOf(Int column) const {
    const auto down = static_cast<Int>(grid.kernel[0]);
    const auto across = static_cast<Int>(grid.kernel[1]);
    const auto ofGroup = static_cast<Int>(grid.channels) * down * across / static_cast<Int>(groups);
    const Int ofGroupWithOne = ofGroup + (hasOnes ? 1 : 0);
    const Int group = column / ofGroupWithOne;
    const Int inGroup = column - group * ofGroupWithOne;
    if (inGroup == ofGroup) return -1;
    const Int element = group * ofGroup + inGroup;  // (channel, row, column)
    const Int rows = element / across;
    const Int channel = rows / down;
    const Int row = (rows - channel * down) * static_cast<Int>(grid.dilation[0]);
    const Int col = (element - rows * across) * static_cast<Int>(grid.dilation[1]);
    return (channel * static_cast<Int>(grid.height) + row) * static_cast<Int>(grid.width) + col;
  }
};

/// to [rows, columns] = the patches, gapless, on either backend.
void takePatches(const Context &context, const PatchedImages &images, float *to);

/// to[(image, patch), (channel, element)] = the patches of `images` images, gapless on both sides;
/// on the CPU.
void im2col(const Context &context, const PatchGrid &grid, int64_t images, const float *from,
            float *to);

/// The transposed operation, on the CPU: each pixel becomes the sum of the elements that were taken
/// from it, in the order of the elements, like torch's `fold`.
void col2im(const Context &context, const PatchGrid &grid, int64_t images, const float *from,
            float *to);

/// im2col() and col2im() of the images [begin, end); compiled once per instruction set.
template <Isa isa>
void im2col(const PatchGrid &grid, int64_t begin, int64_t end, const float *from, float *to);
template <Isa isa>
void col2im(const PatchGrid &grid, int64_t begin, int64_t end, const float *from, float *to);

}  // namespace pulsora
