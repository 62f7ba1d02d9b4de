#pragma once

#include "core/view.h"
#include "cuda/core/launch.cuh"
#include "cuda/periphery/byte_products.cuh"

// The bytes of integer weights in memory, for products of many samples: each weight is converted
// once for all of them.

namespace pulsora {

/// The digits of weights (see integer_block.cuh): a plane of bytes [lines, depth] for each, the one
/// that counts least first.
struct WeightDigits {
  uint8_t *data;
  int64_t pitch;  // distance of rows, a multiple of 16; 0 after the last input
  int64_t plane;  // distance of the planes
};

/// The job of weightDigitsKernel().
struct DigitsWanted {
  MatrixView<const float> weights;  // [lines, depth]
  IntegerWeights integers;
  WeightDigits to;
  bool inQuads;  // whether neighbours in memory can be loaded by four
};

constexpr int kDigitLines = 32;    // of a block
constexpr int kDigitInputs = 128;  // of a block: four for each lane of a warp
constexpr int kDigitThreads = 256;

/// Four weights of a line from input k on; 0 beyond the last.
template <bool kAlong>
__device__ inline void loadWeights(const DigitsWanted &p, int64_t line, int64_t k, float (&w)[4]) {
  if (kAlong && p.inQuads && k < p.weights.cols) {  // whose number is a multiple of four
    const float4 quad = *reinterpret_cast<const float4 *>(&p.weights(line, k));
    w[0] = quad.x, w[1] = quad.y, w[2] = quad.z, w[3] = quad.w;
    return;
  }
#pragma unroll
  for (int e = 0; e < 4; ++e) w[e] = k + e < p.weights.cols ? p.weights(line, k + e) : 0.0f;
}

/// Writes the digits of kDigitLines lines and kDigitInputs inputs: blockIdx.x counts the inputs,
/// blockIdx.y the lines. Lanes are neighbours in memory, of the weights and of the digits.
template <int kDigits, bool kAlong, int kJobs>
__global__ void __launch_bounds__(kDigitThreads)
    weightDigitsKernel(const __grid_constant__ Jobs<DigitsWanted, kJobs> jobs) {
  constexpr int kWarps = kDigitThreads / 32;
  constexpr int kTurns = kDigitLines / kWarps;
  __shared__ uint32_t words[kAlong ? 1 : kDigits][kDigitLines][kDigitInputs / 4 + 1];
  awaitEarlier();
  const DigitsWanted &p = jobs.ofBlock();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t line0 = static_cast<int64_t>(blockIdx.y) * kDigitLines;
  const int64_t input0 = static_cast<int64_t>(blockIdx.x) * kDigitInputs;
  float w[kTurns][4] = {};
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    const int64_t line = line0 + (kAlong ? warp + kWarps * i : lane);
    const int64_t k = input0 + 4 * (kAlong ? lane : warp * kTurns + i);
    if (line < p.weights.rows) loadWeights<kAlong>(p, line, k, w[i]);
  }
  uint32_t digits[kTurns][kDigits];
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    digitsOf(p.integers, w[i], digits[i]);
    if constexpr (!kAlong) {
#pragma unroll
      for (int d = 0; d < kDigits; ++d) words[d][lane][warp * kTurns + i] = digits[i][d];
    }
  }
  if constexpr (!kAlong) __syncthreads();
  const int64_t k = input0 + 4 * lane;
  if (k >= p.to.pitch) return;
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    const int64_t line = line0 + warp + kWarps * i;
    if (line >= p.weights.rows) break;
#pragma unroll
    for (int d = 0; d < kDigits; ++d) {
      if constexpr (!kAlong) digits[i][d] = words[d][warp + kWarps * i][lane];
      auto *to = reinterpret_cast<uint32_t *>(p.to.data + d * p.to.plane + line * p.to.pitch + k);
      *to = digits[i][d];
    }
  }
}

}  // namespace pulsora
