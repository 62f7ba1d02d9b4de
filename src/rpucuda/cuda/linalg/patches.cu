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
};

/// A block writes the elements of some patches one after another. What a division takes is computed
/// once for each patch, and for each column if there is memory for it.
template <bool kKeepsPlaces>
__global__ void __launch_bounds__(kThreads) takePatchesKernel(const __grid_constant__ Patches p) {
  extern __shared__ int placeOf[];
  __shared__ int64_t firstOf[kMostPatches];
  awaitEarlier();
  const auto me = static_cast<int>(threadIdx.x);
  const auto columns = static_cast<int>(p.images.columns());
  const int64_t first = static_cast<int64_t>(blockIdx.x) * p.perBlock;
  const int64_t left = p.images.rows() - first;
  const int patches = left < p.perBlock ? static_cast<int>(left) : p.perBlock;
  if (kKeepsPlaces) {
    for (int c = me; c < columns; c += kThreads) placeOf[c] = static_cast<int>(p.images.placeOf(c));
  }
  if (me < patches) firstOf[me] = p.images.firstOf(first + me);
  __syncthreads();
  float *to = p.to + first * columns;
  int patch = me / columns;
  int column = me - patch * columns;
  const int patchStep = kThreads / columns;
  const int columnStep = kThreads - patchStep * columns;
  const int all = patches * columns;
  constexpr int kAhead = kKeepsPlaces ? 8 : 1;  // pixels that are requested together
#pragma unroll 1
  for (int i = me; i < all; i += kAhead * kThreads) {
    float ahead[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      ahead[k] = 1.0f;
      if (i + k * kThreads < all) {
        const int64_t place = kKeepsPlaces ? placeOf[column] : p.images.placeOf(column);
        if (place >= 0) ahead[k] = p.images.pixels[firstOf[patch] + place];
      }
      const bool ends = column + columnStep >= columns;
      patch += patchStep + (ends ? 1 : 0);
      column += columnStep - (ends ? columns : 0);
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k)
      if (i + k * kThreads < all) to[i + k * kThreads] = ahead[k];
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
  launch(context.stream, keepsPlaces ? &takePatchesKernel<true> : &takePatchesKernel<false>,
         static_cast<unsigned>((rows + perBlock - 1) / perBlock), kThreads,
         keepsPlaces ? static_cast<size_t>(columns) * sizeof(int) : 0,
         Patches{images, to, static_cast<int>(perBlock)});
}

}  // namespace pulsora
