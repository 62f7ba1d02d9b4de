#include "cuda/core/async_copy.cuh"
#include "cuda/core/launch.cuh"
#include "cuda/core/tensor_floats.cuh"
#include "periphery/read_kernels.h"

// The product of a large array with a mini-batch, on the tensor cores and with the accuracy of
// single precision (tensor_floats.cuh).
//
// A block makes the sums of kLines outputs for kRows rows over a part of the inputs. The number of
// parts, and so the bits of the sums, depend on the shape alone.

namespace pulsora {
namespace {

constexpr int kThreads = 128;
constexpr int kLines = 128;  // a warp takes 32
constexpr int kRows = 64;
constexpr int kDepth = 32;  // inputs of a stage
constexpr int kStages = 4;  // in flight at once, which hides the latency of memory
constexpr int kQuads = kDepth / 4;
constexpr int kRowTiles = kRows / 8;  // of a product of 16 x 8 x 8
constexpr int kBlocks = 264;          // two for each processor of an H100
constexpr int64_t kLeastDepth = 128;  // of a part
constexpr int64_t kMost = 1 << 30;    // lines, inputs or blocks: they fit into 32 bits
constexpr size_t kStageQuads = kRows * kQuads + kLines * kQuads;
constexpr size_t kSharedBytes = kStages * kStageQuads * sizeof(float4);

struct Problem {
  const float *inputs;   // [rows, depth]
  const float *weights;  // [lines, depth], or the transposed array
  int64_t lead;          // distance of rows of `weights` in memory
  float *sums;           // [parts, rows, lines]
  int rows;
  int lines;
  int depth;
  int depthOfPart;
  int rowBlocks;
  bool beside;  // whether to overlap the previous kernel
};

__device__ inline float at(const float4 &quad, int i) {
  return i == 0 ? quad.x : i == 1 ? quad.y : i == 2 ? quad.z : quad.w;
}

/// A thread's share of the copies of a stage. Quads are placed so that neither copies nor reads of
/// fragments have bank conflicts.
template <bool kAlongInputs>
struct Loader {
  static constexpr int kCopies = kLines * kQuads / kThreads;
  static constexpr int kInputCopies = kRows * kQuads / kThreads;

  const Problem &p;
  const float *inputs;
  const float *weights;
  uint32_t inputsTo;
  uint32_t weightsTo;
  int inputRow;
  int line;   // of the first copy
  int depth;  // of the first copy, within a stage
  int end;    // of the part

  __device__ Loader(const Problem &problem, uint32_t shared, int row0, int line0, int begin,
                    int end_)
      : p(problem), end(end_) {
    const int me = static_cast<int>(threadIdx.x);
    const int quad = me % kQuads;
    const int row = me / kQuads;
    inputRow = row0 + row;
    inputs = p.inputs + static_cast<int64_t>(inputRow) * p.depth + begin + 4 * quad;
    inputsTo = shared + 16U * static_cast<uint32_t>(row * kQuads + (quad ^ (row & 1) << 2));
    if constexpr (kAlongInputs) {
      line = line0 + row;
      depth = 4 * quad;
      weightsTo = 16U * static_cast<uint32_t>(row * kQuads + (quad ^ (row >> 2 & 1) << 2));
      weights = p.weights + line * p.lead + begin + depth;
    } else {
      line = line0 + me % 32 * 4;
      depth = me / 32;
      weightsTo = 16U * static_cast<uint32_t>(depth * 32 + me % 32);
      weights = p.weights + (begin + depth) * p.lead + line;
    }
    weightsTo += shared + 16U * kRows * kQuads;
  }

  /// Starts the copies of the inputs from `first` on, counted from the start of the part; `left`
  /// remain.
  __device__ void ask(int stage, int first, int left) const {
    const uint32_t shared = static_cast<uint32_t>(stage * kStageQuads * sizeof(float4));
    constexpr int kRowsOfCopy = kThreads / kQuads;
    const bool inside = static_cast<int>(threadIdx.x) % kQuads * 4 < left;
#pragma unroll
    for (int i = 0; i < kInputCopies; ++i) {
      const bool there = inside && inputRow + i * kRowsOfCopy < p.rows;
      const int64_t from = static_cast<int64_t>(i * kRowsOfCopy) * p.depth + first;
      copyPieceAsync(shared + inputsTo + 16U * kThreads * i, there ? inputs + from : p.inputs,
                     there);
    }
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int lineStep = kAlongInputs ? i * kRowsOfCopy : 0;
      const int depthStep = kAlongInputs ? 0 : i * (kThreads / 32);
      const bool there = line + lineStep < p.lines && depth + depthStep < left;
      const int64_t from = kAlongInputs ? lineStep * p.lead + first : (depthStep + first) * p.lead;
      const uint32_t to = kAlongInputs ? weightsTo : weightsTo ^ 16U * ((i & 3) << 1);
      copyPieceAsync(shared + to + 16U * kThreads * i, there ? weights + from : p.weights, there);
    }
  }
};

/// A lane's share of kDepth / 2 inputs: four lines and kRowTiles rows. Inputs may be assigned to
/// the places of the tensor cores in any order, as long as both factors agree.
template <bool kAlongInputs>
struct Fragments {
  float4 w[4];
  float4 x[kRowTiles];

  __device__ Fragments(const float4 *stage, int half) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int g = lane / 4;
    const int t = lane % 4;
    const float4 *weights = stage + kRows * kQuads;
    const int quad = 4 * half + t;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      w[i] = kAlongInputs ? weights[(32 * warp + 4 * g + i) * kQuads + (quad ^ (g & 1) << 2)]
                          : weights[32 * (16 * half + 4 * t + i) + ((8 * warp + g) ^ t << 1)];
    }
#pragma unroll
    for (int j = 0; j < kRowTiles; ++j) x[j] = stage[(8 * j + g) * kQuads + (quad ^ (g & 1) << 2)];
  }
  __device__ float weight(int line, int k) const {
    return kAlongInputs ? at(w[line], k) : at(w[k], line);
  }
};

/// sums += the products of a stage, for two tiles of 16 lines and kRowTiles of 8 rows.
template <bool kAlongInputs, bool kExact>
__device__ void multiplyStage(const float4 *stage, float (&sums)[2][kRowTiles][4]) {
  float part[2][kRowTiles][4] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const Fragments<kAlongInputs> f(stage, half);
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      uint32_t a[2][4], aRest[2][4], b[kRowTiles][2], bRest[kRowTiles][2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          splitValue(f.weight(2 * i + e % 2, 2 * step + e / 2), a[i][e], aRest[i][e]);
      }
#pragma unroll
      for (int j = 0; j < kRowTiles; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) splitValue(at(f.x[j], 2 * step + e), b[j][e], bRest[j][e]);
      }
      if constexpr (kExact) {
#pragma unroll
        for (int j = 0; j < kRowTiles; ++j) {
#pragma unroll
          for (int i = 0; i < 2; ++i) multiplyTile(part[i][j], aRest[i], b[j]);
        }
#pragma unroll
        for (int j = 0; j < kRowTiles; ++j) {
#pragma unroll
          for (int i = 0; i < 2; ++i) multiplyTile(part[i][j], a[i], bRest[j]);
        }
      }
#pragma unroll
      for (int j = 0; j < kRowTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) multiplyTile(part[i][j], a[i], b[j]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < kRowTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[i][j][e] += part[i][j][e];
    }
  }
}

template <bool kAlongInputs, bool kExact, int kJobs>
__global__ void __launch_bounds__(kThreads, 2)
    productKernel(const __grid_constant__ Jobs<Problem, kJobs> jobs) {
  const Problem &p = jobs.ofBlock();
  if (!p.beside) awaitEarlier();
  extern __shared__ __align__(128) float4 stages[];
  const int row0 = static_cast<int>(blockIdx.x) % p.rowBlocks * kRows;
  const int line0 = static_cast<int>(blockIdx.x) / p.rowBlocks * kLines;
  const int begin = static_cast<int>(blockIdx.y) * p.depthOfPart;
  const int depth = min(p.depthOfPart, p.depth - begin);
  const int steps = (depth + kDepth - 1) / kDepth;
  const Loader<kAlongInputs> loader(p, static_cast<uint32_t>(__cvta_generic_to_shared(stages)),
                                    row0, line0, begin, depth);
  float sums[2][kRowTiles][4] = {};
  const auto ask = [&](int step) {
    if (step < steps) loader.ask(step % kStages, step * kDepth, depth - step * kDepth);
    endCopyGroup();  // also an empty group, so that groups can be counted
  };
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) ask(step);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    awaitCopies<kStages - 2>();
    __syncthreads();
    ask(step + kStages - 1);
    multiplyStage<kAlongInputs, kExact>(stages + step % kStages * kStageQuads, sums);
  }
  if (p.beside) awaitEarlier();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int line = line0 + static_cast<int>(threadIdx.x) / 32 * 32 + lane / 4 * 4;
  if (line >= p.lines) return;
  float *out = p.sums + static_cast<int64_t>(blockIdx.y) * p.rows * p.lines + line;
#pragma unroll
  for (int j = 0; j < kRowTiles; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int row = row0 + 8 * j + lane % 4 * 2 + e;
      if (row >= p.rows) continue;
      *reinterpret_cast<float4 *>(out + static_cast<int64_t>(row) * p.lines) =
          make_float4(sums[0][j][e], sums[0][j][2 + e], sums[1][j][e], sums[1][j][2 + e]);
    }
  }
}

template <bool kAlongInputs, bool kExact>
void multiply(const Context &context, const Problem &p, unsigned parts) {
  constexpr JobKernel<Problem> kernel = {&productKernel<kAlongInputs, kExact, 1>,
                                         &productKernel<kAlongInputs, kExact, kMostJobs<Problem>>};
  letShare(kernel, kSharedBytes);
  const auto blocks = static_cast<unsigned>(p.rowBlocks * ((p.lines + kLines - 1) / kLines));
  launchJob(context.stream, kernel, dim3(blocks, parts), kThreads, kSharedBytes, p);
}

}  // namespace

int64_t cudaProductParts(const Context &context, MatrixView<const float> weights, int64_t rows) {
  int major = 0;
  PULSORA_CUDA_CHECK(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, context.device));
  if (major < 8) return 0;  // no tf32
  const int64_t lines = weights.rows;
  const int64_t depth = weights.cols;
  const int64_t lead = weights.colStride == 1 ? weights.rowStride : weights.colStride;
  const bool inQuads = lines % 4 == 0 && depth % 4 == 0 && lead % 4 == 0 &&
                       reinterpret_cast<uintptr_t>(weights.data) % sizeof(float4) == 0;
  const bool adjacent = weights.colStride == 1 || weights.rowStride == 1;
  const int64_t blocks = (rows + kRows - 1) / kRows * ((lines + kLines - 1) / kLines);
  if (!inQuads || !adjacent || pulsora::max(pulsora::max(lines, depth), blocks) > kMost) return 0;
  return pulsora::max(pulsora::min(kBlocks / blocks, depth / kLeastDepth), int64_t{1});
}

void cudaMultiplyParts(const Context &context, const PlainRead &read, bool exact, bool beside) {
  const MatrixView<const float> weights = read.weights;
  const bool along = weights.colStride == 1;
  const int64_t rows = read.input.in.rows;
  const int64_t parts = read.parts;
  const int64_t stagesOfPart = ((weights.cols + parts - 1) / parts + kDepth - 1) / kDepth;
  const Problem p{read.input.converted,
                  weights.data,
                  along ? weights.rowStride : weights.colStride,
                  read.sums,
                  static_cast<int>(rows),
                  static_cast<int>(weights.rows),
                  static_cast<int>(weights.cols),
                  static_cast<int>(stagesOfPart * kDepth),
                  static_cast<int>((rows + kRows - 1) / kRows),
                  beside};
  const CudaScope scope(context.device);
  const auto count = static_cast<unsigned>(parts);
  if (along) {
    exact ? multiply<true, true>(context, p, count) : multiply<true, false>(context, p, count);
  } else {
    exact ? multiply<false, true>(context, p, count) : multiply<false, false>(context, p, count);
  }
}

}  // namespace pulsora
