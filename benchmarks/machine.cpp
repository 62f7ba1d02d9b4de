#include "machine.h"

#include <cstdlib>
#include <fstream>
#include <vector>

#include "core/backend.h"
#include "measure.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace RPU::bench {
namespace {

// Chains that do not wait for one another, enough to hide the latency of two units.
constexpr int kChains = 12;
constexpr int64_t kSteps = 100000;

// Each runs kSteps * kChains dependent vector operations; what they return keeps them from being
// dropped.
#ifdef __x86_64__
float chainsV2(float start) {
  const __m128 factor = _mm_set1_ps(0.999f);
  const __m128 addend = _mm_set1_ps(start);
  __m128 sum[kChains];
  for (auto &s : sum) s = addend;
  for (int64_t step = 0; step < kSteps; step += 2) {  // a product and a sum: two operations
    for (auto &s : sum) s = _mm_add_ps(_mm_mul_ps(s, factor), addend);
  }
  for (int c = 1; c < kChains; ++c) sum[0] = _mm_add_ps(sum[0], sum[c]);
  return _mm_cvtss_f32(sum[0]);
}

__attribute__((target("avx2,fma"))) float chainsV3(float start) {
  const __m256 factor = _mm256_set1_ps(0.999f);
  const __m256 addend = _mm256_set1_ps(start);
  __m256 sum[kChains];
  for (auto &s : sum) s = addend;
  for (int64_t step = 0; step < kSteps; ++step) {
    for (auto &s : sum) s = _mm256_fmadd_ps(s, factor, addend);
  }
  for (int c = 1; c < kChains; ++c) sum[0] = _mm256_add_ps(sum[0], sum[c]);
  return _mm256_cvtss_f32(sum[0]);
}

__attribute__((target("avx512f"))) float chainsV4(float start) {
  const __m512 factor = _mm512_set1_ps(0.999f);
  const __m512 addend = _mm512_set1_ps(start);
  __m512 sum[kChains];
  for (auto &s : sum) s = addend;
  for (int64_t step = 0; step < kSteps; ++step) {
    for (auto &s : sum) s = _mm512_fmadd_ps(s, factor, addend);
  }
  for (int c = 1; c < kChains; ++c) sum[0] = _mm512_add_ps(sum[0], sum[c]);
  return _mm512_cvtss_f32(sum[0]);
}
#else
float chainsV2(float start) {
  float sum[kChains];
  for (auto &s : sum) s = start;
  for (int64_t step = 0; step < kSteps; ++step) {
    for (auto &s : sum) s = RPU::fma(s, 0.999f, start);
  }
  return sum[0] + sum[kChains - 1];
}
#endif

struct Chains {
  float (*run)(float);
  int lanes;
};

Chains chainsOf(Isa isa) {
#ifdef __x86_64__
  if (isa >= Isa::V4) return {chainsV4, 16};
  if (isa == Isa::V3) return {chainsV3, 8};
  return {chainsV2, 4};
#else
  return {chainsV2, 1};
#endif
}

}  // namespace

Peaks measurePeaks(Isa isa, int threads) {
  Context context;
  context.cpu.threads = threads;
  const Chains chains = chainsOf(isa);
  std::vector<float> kept(static_cast<size_t>(threads));
  const Timing arithmetic = measure(0.05, [&] {
    parallelRange(context, threads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t)
        kept[static_cast<size_t>(t)] = chains.run(1.0f + static_cast<float>(t));
    });
  });
  constexpr int64_t kCount = int64_t{1} << 24;  // 64 MiB each
  std::vector<float> from(kCount, 1.0f);
  std::vector<float> to(kCount);
  const Timing copy = measure(0.1, [&] {
    parallelRange(context, kCount, 1024, [&](int64_t begin, int64_t end) {
      std::copy(from.begin() + begin, from.begin() + end, to.begin() + begin);
    });
  });
  // The best of the runs: a peak is what the machine can do, not what others left of it.
  return {
      static_cast<double>(kSteps * kChains * chains.lanes * threads) / (arithmetic.fastest * 1e-6),
      static_cast<double>(2 * sizeof(float) * kCount) / (copy.fastest * 1e-6)};
}

std::string processorName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

double loadAverage() {
  double load = 0.0;
  return getloadavg(&load, 1) == 1 ? load : 0.0;
}

}  // namespace RPU::bench
