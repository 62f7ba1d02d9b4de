#include <algorithm>
#include <limits>

#include "cuda/core/launch.cuh"
#include "linalg/cuda_products.h"

namespace pulsora {
namespace {

constexpr int kThreads = 256;
constexpr int kMostPatches = 256;       // of a block
constexpr int64_t kMostColumns = 8192;  // whose places in an image are kept in shared memory
constexpr int64_t kElements = 8192;     // of a block, if it has more than one patch

struct Patches {
  PatchedImages images;
  float *to;
  int perBlock;
  bool keepsPlaces;
};

/// A block writes the elements of some patches one after another. What a division takes is computed
/// once for each patch and for each column.
__global__ void __launch_bounds__(kThreads) takePatchesKernel(const __grid_constant__ Patches p) {
  extern __shared__ int placeOf[];
  __shared__ int64_t firstOf[kMostPatches];
  awaitEarlier();
  const auto me = static_cast<int>(threadIdx.x);
  const auto columns = static_cast<int>(p.images.columns());
  const int64_t first = static_cast<int64_t>(blockIdx.x) * p.perBlock;
  const int64_t left = p.images.rows() - first;
  const int patches = left < p.perBlock ? static_cast<int>(left) : p.perBlock;
  if (p.keepsPlaces) {
    for (int c = me; c < columns; c += kThreads) placeOf[c] = static_cast<int>(p.images.placeOf(c));
  }
  if (me < patches) firstOf[me] = p.images.firstOf(first + me);
  __syncthreads();
  float *to = p.to + first * columns;
  int patch = me / columns;
  int column = me - patch * columns;
  const int patchStep = kThreads / columns;
  const int columnStep = kThreads - patchStep * columns;
#pragma unroll 4
  for (int i = me; i < patches * columns; i += kThreads) {
    const int64_t place = p.keepsPlaces ? placeOf[column] : p.images.placeOf(column);
    to[i] = place < 0 ? 1.0f : p.images.pixels[firstOf[patch] + place];
    patch += patchStep;
    column += columnStep;
    if (column >= columns) {
      column -= columns;
      ++patch;
    }
  }
}

}  // namespace

void detail::cudaTakePatches(const Context &context, const PatchedImages &images, float *to) {
  const int64_t rows = images.rows();
  const int64_t columns = images.columns();
  if (rows == 0) return;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  PULSORA_CHECK(InputError, columns <= kMost && images.grid.pixels() <= kMost, "images of ",
                images.grid.pixels(), " pixels and patches of ", columns,
                " elements are more than the GPU takes");
  const bool keepsPlaces = columns <= kMostColumns;
  const int64_t perBlock = std::clamp<int64_t>(kElements / columns, 1, kMostPatches);
  const CudaScope scope(context.device);
  launch(context.stream, &takePatchesKernel,
         static_cast<unsigned>((rows + perBlock - 1) / perBlock), kThreads,
         keepsPlaces ? static_cast<size_t>(columns) * sizeof(int) : 0,
         Patches{images, to, static_cast<int>(perBlock), keepsPlaces});
}

}  // namespace pulsora
