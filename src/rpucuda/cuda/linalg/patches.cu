#include <algorithm>
#include <limits>

#include "cuda/core/launch.cuh"
#include "linalg/cuda_products.h"

namespace pulsora {
namespace {

constexpr int kMostThreads = 256;
constexpr int kMostPatches = 256;    // of a block
constexpr int64_t kElements = 8192;  // of a block, if it has more than one patch

struct Patches {
  PatchedImages images;
  float *to;
  int64_t rows;      // patches of all images
  int perBlock;      // patches
  int width;         // columns that a block writes together, each by a thread of its own
  int together;      // patches that it writes together
  uint32_t ofImage;  // patches
  uint32_t across;   // patches of an image that lie side by side

  /// Number of the first pixel of patch `patch` of the images from `image` on.
  __device__ int64_t firstOf(int64_t image, uint32_t patch) const {
    const uint32_t further = patch / ofImage;
    return images.firstOf(image + further, patch - further * ofImage, across);
  }
};

/// A block writes some patches. A thread stays with a column, whose place in an image it computes
/// once, and neighbouring threads write neighbouring elements.
__global__ void __launch_bounds__(kMostThreads)
    takePatchesKernel(const __grid_constant__ Patches p) {
  __shared__ int64_t firstOf[kMostPatches];
  awaitEarlier();
  const auto me = static_cast<int>(threadIdx.x);
  const auto columns = static_cast<int>(p.images.columns());
  const int64_t first = static_cast<int64_t>(blockIdx.x) * p.perBlock;
  const int64_t left = p.rows - first;
  const int patches = left < p.perBlock ? static_cast<int>(left) : p.perBlock;
  const int64_t image = first / p.ofImage;
  const auto ofFirst = static_cast<uint32_t>(first - image * p.ofImage);
  for (int i = me; i < patches; i += static_cast<int>(blockDim.x))
    firstOf[i] = p.firstOf(image, ofFirst + i);
  __syncthreads();
  const int own = me / p.width;  // the first patch of this thread
  if (own >= p.together) return;
  constexpr int kAhead = 8;  // pixels that are requested together
  const int64_t step = static_cast<int64_t>(p.together) * columns;
  for (int column = me - own * p.width; column < columns; column += p.width) {
    const int place = p.images.placeOf(column);
    float *to = p.to + (first + own) * columns + column;
    int i = own;
    if (place < 0) {
      for (; i < patches; i += p.together, to += step) *to = 1.0f;
      continue;
    }
    const float *from = p.images.pixels + place;
#pragma unroll 1
    for (; i + (kAhead - 1) * p.together < patches; i += kAhead * p.together) {
      float ahead[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) ahead[k] = from[firstOf[i + k * p.together]];
#pragma unroll
      for (int k = 0; k < kAhead; ++k, to += step) *to = ahead[k];
    }
    for (; i < patches; i += p.together, to += step) *to = from[firstOf[i]];
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
  const int64_t turns = (columns + kMostThreads - 1) / kMostThreads;
  const int64_t width = (columns + turns - 1) / turns;
  const int64_t perBlock = std::clamp<int64_t>(kElements / columns, 1, kMostPatches);
  const int64_t together = std::min(kMostThreads / width, perBlock);
  const CudaScope scope(context.device);
  launch(context.stream, &takePatchesKernel,
         static_cast<unsigned>((rows + perBlock - 1) / perBlock),
         static_cast<unsigned>((width * together + 31) / 32 * 32), 0,
         Patches{images, to, rows, static_cast<int>(perBlock), static_cast<int>(width),
                 static_cast<int>(together), static_cast<uint32_t>(images.grid.patches()),
                 static_cast<uint32_t>(images.grid.across())});
}

}  // namespace pulsora
