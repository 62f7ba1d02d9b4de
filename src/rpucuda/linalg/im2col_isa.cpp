#include "linalg/im2col.h"
#include "numerics/simd_copy.h"

namespace pulsora {

template <>
void im2col<Isa::PULSORA_ISA>(const PatchGrid &grid, int64_t begin, int64_t end, const float *from,
                              float *to) {
  const PatchGrid g = grid;
  const int64_t down = g.down();
  const int64_t across = g.across();
  for (int64_t place = begin * down; place < end * down; ++place) {
    const float *image = from + place / down * g.channels * g.height * g.width;
    const int64_t top = place % down * g.stride[0];
    float *row = to + place * across * g.columns();
    for (int64_t left = 0; left < across * g.stride[1]; left += g.stride[1]) {
      for (int64_t c = 0; c < g.channels; ++c) {
        for (int64_t i = 0; i < g.kernel[0]; ++i) {
          const float *line = image + (c * g.height + top + i * g.dilation[0]) * g.width + left;
          if (g.dilation[1] == 1) {
            copyLanes(row, line, g.kernel[1]);
          } else {
            for (int64_t j = 0; j < g.kernel[1]; ++j) row[j] = line[j * g.dilation[1]];
          }
          row += g.kernel[1];
        }
      }
    }
  }
}

template <>
void col2im<Isa::PULSORA_ISA>(const PatchGrid &grid, int64_t begin, int64_t end, const float *from,
                              float *to) {
  const PatchGrid g = grid;
  const int64_t down = g.down();
  const int64_t across = g.across();
  const int64_t columns = g.columns();
  const int64_t pixels = g.channels * g.height * g.width;
  for (int64_t p = begin * pixels; p < end * pixels; ++p) to[p] = 0.0f;
  for (int64_t place = begin * g.channels; place < end * g.channels; ++place) {
    const float *patches = from + place / g.channels * down * across * columns +
                           place % g.channels * g.kernel[0] * g.kernel[1];
    float *plane = to + place * g.height * g.width;
    for (int64_t e = 0; e < g.kernel[0] * g.kernel[1]; ++e) {
      float *corner =
          plane + e / g.kernel[1] * g.dilation[0] * g.width + e % g.kernel[1] * g.dilation[1];
      for (int64_t y = 0; y < down; ++y) {
        float *line = corner + y * g.stride[0] * g.width;
        const float *elements = patches + y * across * columns + e;
        for (int64_t x = 0; x < across; ++x) line[x * g.stride[1]] += elements[x * columns];
      }
    }
  }
}

}  // namespace pulsora
