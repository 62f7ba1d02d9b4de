#include "linalg/im2col.h"

#include "core/backend.h"
#include "core/isa_dispatch.h"
#include "linalg/matrix_functors.h"

namespace pulsora {
namespace {

int64_t imagesPerThread(const PatchGrid &grid) {
  return 1 + kStepsPerThread / (1 + grid.patches() * grid.columns());
}

}  // namespace

void takePatches(const Context &context, const PatchedImages &images, float *to) {
  if (context.onCpu() && !images.hasOnes) {
    im2col(context, images.grid, images.count, images.pixels, to);
    return;
  }
  forEach(context, images.rows() * images.columns(), PatchTaker{images, to});
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
