#include "core/patches.h"

#include "core/backend.h"
#include "core/with_isa.h"

namespace RPU {
namespace {

int64_t imagesPerThread(const PatchGrid &grid) {
  return 1 + kStepsPerThread / (1 + grid.patches() * grid.columns());
}

}  // namespace

void takePatches(const Context &context, const PatchGrid &grid, int64_t images, const float *from,
                 float *to) {
  withIsa(context.cpu.isa, [&](auto isa) {
    parallelRange(context, images, imagesPerThread(grid), [&](int64_t begin, int64_t end) {
      takePatches<isa>(grid, begin, end, from, to);
    });
  });
}

void addPatches(const Context &context, const PatchGrid &grid, int64_t images, const float *from,
                float *to) {
  withIsa(context.cpu.isa, [&](auto isa) {
    parallelRange(context, images, imagesPerThread(grid),
                  [&](int64_t begin, int64_t end) { addPatches<isa>(grid, begin, end, from, to); });
  });
}

}  // namespace RPU
