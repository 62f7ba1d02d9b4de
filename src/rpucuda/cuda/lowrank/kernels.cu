#include <array>
#include <atomic>

#include "cuda/lowrank/fragments.cuh"
#include "cuda/lowrank/updates.cuh"
#include "lowrank/kernels.h"

namespace pulsora {
namespace lowrank {

GpuFacts factsOf(int device) {
  constexpr size_t kRemembered = 64;
  struct Entry {
    std::atomic<int> processors{0};  // written last: 0 while nothing is known
    std::atomic<int> cacheBytes{0};
    std::atomic<int> capability{0};
  };
  static std::array<Entry, kRemembered> entries;
  Entry other;
  Entry &entry =
      static_cast<size_t>(device) < kRemembered ? entries[static_cast<size_t>(device)] : other;
  if (entry.processors == 0) {
    int processors = 0;
    int cacheBytes = 0;
    int major = 0;
    int minor = 0;
    PULSORA_CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
    PULSORA_CUDA_CHECK(cudaDeviceGetAttribute(&cacheBytes, cudaDevAttrL2CacheSize, device));
    PULSORA_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    PULSORA_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
    entry.cacheBytes = cacheBytes;
    entry.capability = 10 * major + minor;
    entry.processors = processors;
  }
  return {entry.processors, entry.cacheBytes, entry.capability};
}

}  // namespace lowrank

bool cudaGatedLowRank(const Context &context, const GatedLowRank &update, ConstAnyMatrix base,
                      AnyMatrix y) {
  if (!lowrank::multiplies(lowrank::factsOf(context.device), update.x.type)) return false;
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

bool cudaGatedLowRankLinear(const Context &context, const GatedLowRank &update,
                            ConstAnyMatrix weight, ConstAnyMatrix bias, AnyMatrix y) {
  if (update.x.type == ElementType::Float32) {
    if (!lowrank::canStack32(context, update, weight, y)) return false;
    lowrank::stacked32(context, update, weight, bias, y);
    return true;
  }
  if (!lowrank::canFuse16(context, update, weight, bias, y)) return false;
  update.x.type == ElementType::Float16
      ? lowrank::fused16<Half>(context, update, weight, bias, y)
      : lowrank::fused16<BFloat16>(context, update, weight, bias, y);
  return true;
}

bool cudaGatedLowRankLinearPays(const Context &context, const GatedLowRank &update,
                                ConstAnyMatrix weight, ConstAnyMatrix bias, AnyMatrix y) {
  if (update.x.type == ElementType::Float32)
    return lowrank::canStack32(context, update, weight, y) && lowrank::stacking32Pays(update);
  return lowrank::canFuse16(context, update, weight, bias, y) && lowrank::fusing16Pays(update);
}

bool cudaGatedLowRankBackward(const Context &context, const GatedLowRank &update, ConstAnyMatrix dy,
                              const GatedGradients &gradients) {
  if (!lowrank::multiplies(lowrank::factsOf(context.device), update.x.type)) return false;
  switch (update.x.type) {
    case ElementType::Float16:
      return lowrank::backward16<Half>(context, update, dy, gradients) ||
             lowrank::products16<Half>(context, update, dy, gradients);
    case ElementType::BFloat16:
      return lowrank::backward16<BFloat16>(context, update, dy, gradients) ||
             lowrank::products16<BFloat16>(context, update, dy, gradients);
    case ElementType::Float32:
      return false;
  }
  return false;
}

int64_t cudaGatedLowRankScratch(const Context &context, const GatedLowRank &update,
                                ConstAnyMatrix dy, const GatedGradients &gradients) {
  const bool fits = lowrank::multiplies(lowrank::factsOf(context.device), update.x.type);
  if (update.x.type == ElementType::Float32 || !fits) return 0;
  return lowrank::scratchOfBackward16(context, update, dy, gradients);
}

}  // namespace pulsora
