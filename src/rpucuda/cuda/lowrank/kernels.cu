#include <array>
#include <atomic>

#include "cuda/lowrank/fragments.cuh"
#include "cuda/lowrank/updates.cuh"
#include "lowrank/kernels.h"

namespace RPU {
namespace lowrank {

GpuFacts factsOf(int device) {
  constexpr size_t kRemembered = 64;
  struct Entry {
    std::atomic<int> processors{0};  // written last: 0 while nothing is known
    std::atomic<int> cacheBytes{0};
  };
  static std::array<Entry, kRemembered> entries;
  Entry other;
  Entry &entry =
      static_cast<size_t>(device) < kRemembered ? entries[static_cast<size_t>(device)] : other;
  if (entry.processors == 0) {
    int processors = 0;
    int cacheBytes = 0;
    RPU_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
    RPU_CUDA(cudaDeviceGetAttribute(&cacheBytes, cudaDevAttrL2CacheSize, device));
    entry.cacheBytes = cacheBytes;
    entry.processors = processors;
  }
  return {entry.processors, entry.cacheBytes};
}

}  // namespace lowrank

bool cudaGatedLowRank(const Context &context, const GatedLowRank &update, ConstAnyMatrix base,
                      AnyMatrix y) {
  switch (update.x.type) {
    case ElementType::Float16:
      return lowrank::forward16<Half>(context, update, base, y);
    case ElementType::BFloat16:
      return lowrank::forward16<BFloat16>(context, update, base, y);
    case ElementType::Float32:
      return lowrank::forward32(context, update, base, y);
  }
  return false;
}

bool cudaGatedLowRankLinear(const Context &, const GatedLowRank &, ConstAnyMatrix, ConstAnyMatrix,
                            AnyMatrix) {
  return false;
}

bool cudaGatedLowRankLinearPays(const Context &, const GatedLowRank &, ConstAnyMatrix,
                                ConstAnyMatrix, AnyMatrix) {
  return false;
}

bool cudaGatedLowRankBackward(const Context &context, const GatedLowRank &update, ConstAnyMatrix dy,
                              const GatedGradients &gradients) {
  switch (update.x.type) {
    case ElementType::Float16:
      return lowrank::backward16<Half>(context, update, dy, gradients);
    case ElementType::BFloat16:
      return lowrank::backward16<BFloat16>(context, update, dy, gradients);
    case ElementType::Float32:
      return false;
  }
  return false;
}

int64_t cudaGatedLowRankScratch(const Context &context, const GatedLowRank &update,
                                ConstAnyMatrix dy, const GatedGradients &gradients) {
  if (update.x.type == ElementType::Float32) return 0;
  return lowrank::scratchOfBackward16(context, update, dy, gradients);
}

}  // namespace RPU
