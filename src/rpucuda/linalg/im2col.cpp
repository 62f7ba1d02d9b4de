#include "linalg/im2col.h"

#include "core/backend.h"
#include "core/isa_dispatch.h"
#include "linalg/cuda_products.h"

namespace pulsora {
namespace {

int64_t imagesPerThread(const PatchGrid &grid) {
  return 1 + kStepsPerThread / (1 + grid.patches() * grid.columns());
}

// One patch, with its ones.
void takeRow(const PatchedImages &images, int64_t row, float *to) {
  const int64_t columns = images.columns();
  const float *first = images.pixels + images.firstOf(row);
  for (int64_t column = 0; column < columns; ++column) {
    const int64_t place = images.placeOf(column);
    to[row * columns + column] = place < 0 ? 1.0f : first[place];
  }
}

}  // namespace

void takePatches(const Context &context, const PatchedImages &images, float *to) {
  if (!context.onCpu()) {
    detail::cudaTakePatches(context, images, to);
  } else if (images.hasOnes) {
    const int64_t columns = images.columns();
    parallelRange(context, images.rows(), 1 + kStepsPerThread / columns,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t row = begin; row < end; ++row) takeRow(images, row, to);
                  });
  } else {
    im2col(context, images.grid, images.count, images.pixels, to);
  }
}

void im2col(const Context &context, const PatchGrid &grid, int64_t images, const float *from,
            float *to) {
  withIsa(context.cpu.isa, [&](auto isa) {
    parallelRange(context, images, imagesPerThread(grid),
                  [&](int64_t begin, int64_t end) { im2col<isa>(grid, begin, end, from, to); });
  });
}

void col2im(const Context &context, const PatchGrid &grid, int64_t images, const float *from,
            float *to) {
  withIsa(context.cpu.isa, [&](auto isa) {
    parallelRange(context, images, imagesPerThread(grid),
                  [&](int64_t begin, int64_t end) { col2im<isa>(grid, begin, end, from, to); });
  });
}

}  // namespace pulsora
