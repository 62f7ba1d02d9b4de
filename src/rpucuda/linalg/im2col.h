#pragma once

#include <cstdint>

#include "core/context.h"
#include "core/isa.h"

namespace pulsora {

// Convolutions as matrix products, on the CPU: the patches of images as the rows of a matrix.

/// Images [channels, height, width], padded already, and the patches that a convolution takes from
/// them. Sizes of two elements are along the height and along the width.
struct PatchGrid {
  int64_t channels, height, width;
  int64_t kernel[2], stride[2], dilation[2];

  int64_t down() const { return (height - dilation[0] * (kernel[0] - 1) - 1) / stride[0] + 1; }
  int64_t across() const { return (width - dilation[1] * (kernel[1] - 1) - 1) / stride[1] + 1; }
  /// Patches of an image, and elements of a patch.
  int64_t patches() const { return down() * across(); }
  int64_t columns() const { return channels * kernel[0] * kernel[1]; }
};

/// to[(image, patch), (channel, element)] = the patches of `images` images, gapless on both sides.
void im2col(const Context &context, const PatchGrid &grid, int64_t images, const float *from,
            float *to);

/// The transposed operation: each pixel becomes the sum of the elements that were taken from it, in
/// the order of the elements, like torch's `fold`.
void col2im(const Context &context, const PatchGrid &grid, int64_t images, const float *from,
            float *to);

/// im2col() and col2im() of the images [begin, end); compiled once per instruction set.
template <Isa isa>
void im2col(const PatchGrid &grid, int64_t begin, int64_t end, const float *from, float *to);
template <Isa isa>
void col2im(const PatchGrid &grid, int64_t begin, int64_t end, const float *from, float *to);

}  // namespace pulsora
