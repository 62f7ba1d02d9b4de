#include <algorithm>
#include <cmath>

#include "core/buffer.h"
#include "cuda/core/async_copy.cuh"
#include "cuda/core/cluster.cuh"
#include "cuda/core/launch.cuh"
#include "forecast/gru_kernels.h"

// A rollout in one launch. A cluster of blocks takes one member and up to 12 rows. Each block owns some
// hidden units: their weights stay in its shared memory over all steps, and so does the state of all
// units, of which it is sent what the other blocks make. Within a product every thread adds up four
// columns for half of the rows over a part of the lines; the parts are added in their order.

namespace RPU {
namespace {

constexpr int kThreads = 256;
constexpr int kGates = 3;
constexpr size_t kMostShared = size_t{227} << 10;

/// How the work is divided: by the sizes of the ensemble alone, but for the rows.
struct Division {
  int blocks;    // of a cluster
  int units;     // of a block, a multiple of 4
  int lines;     // hidden lines of a product: blocks * units
  int encoded;   // X
  int rowParts;  // clusters that share a member

  __host__ __device__ int allLines() const { return lines + encoded; }
};

/// How a product of `cols` columns is cut: every part of its lines lies on one side of a border, if
/// there is one.
struct Cut {
  int groups;      // of four columns
  int parts;       // of the lines
  int firstParts;  // those before the border
  int firstLines;  // the border
  int lines;

  __host__ __device__ Cut(int cols, int firstLines_, int lines_, bool border)
      : groups(cols / 4),
        parts(kThreads / (cols / 2) > 2 ? kThreads / (cols / 2) : 2),
        firstParts(parts),
        firstLines(lines_),
        lines(lines_) {
    if (!border) return;
    const int share = (parts * firstLines_ + lines_ / 2) / lines_;
    firstParts = share < 1 ? 1 : (share > parts - 1 ? parts - 1 : share);
    firstLines = firstLines_;
  }
  __host__ __device__ int begin(int part) const {
    return part <= firstParts
               ? part * firstLines / firstParts
               : firstLines + (part - firstParts) * (lines - firstLines) / (parts - firstParts);
  }
};

/// Two halves of kRows rows; a line of activations holds both, each in quads.
template <int kRows>
struct RowLayout {
  static constexpr int kAll = 2 * kRows;
  static constexpr int kHalf = (kRows + 3) / 4 * 4;
  static constexpr int kPitch = 2 * kHalf;
  __host__ __device__ static constexpr int place(int row) {
    return row / kRows * kHalf + row % kRows;
  }
};

/// Where things lie in a block's shared memory, in floats.
template <int kRows>
struct SharedLayout {
  using Rows = RowLayout<kRows>;
  int weights = 0, state, inputs, reset, parts, own, z, r, pre, feedback, heads, headParts, sums;
  int size;

  __host__ __device__ SharedLayout(const Division &d, bool resident) {
    const int all = d.allLines();
    const Cut gates(2 * d.units, 0, all, false);
    const Cut candidates(d.units, 0, all, false);
    const int gateSums = gates.parts * 2 * d.units;
    const int candidateSums = candidates.parts * d.units;
    const int mostSums = gateSums > candidateSums ? gateSums : candidateSums;
    const int ownSize = Rows::kAll * d.units;
    // State, inputs and reset state lie side by side: the gates' product takes the first two, the
    // candidates' the last two.
    state = resident ? all * kGates * d.units : 0;
    inputs = state + d.lines * Rows::kPitch;
    reset = inputs + d.encoded * Rows::kPitch;
    parts = reset + d.lines * Rows::kPitch;
    own = parts + mostSums * Rows::kAll;
    z = own + ownSize;
    r = z + ownSize;
    heads = r + ownSize;
    headParts = heads + 2 * d.units;
    sums = headParts + kMostBlocksOfCluster * Rows::kAll * 2;
    pre = sums + 2 * Rows::kAll;
    feedback = pre + d.encoded * Rows::kAll;
    size = feedback + d.encoded;
  }
};

struct Problem {
  EnsembleShape shape;
  EnsembleWeights weights;
  MatrixView<const float> features;
  const float *first;
  int steps;
  bool feedback;
  RolloutOutputs out;
  Division division;
  float *packed;  // weights of all blocks, where shared memory has no room for them
};

/// One block's part of a rollout.
template <int kRows, bool kResident>
class Block {
  using Rows = RowLayout<kRows>;

 public:
  __device__ Block(const Problem &problem, float *shared)
      : p(problem),
        d(problem.division),
        at(problem.division, kResident),
        mem(shared),
        rank(static_cast<int>(blockIdx.x) % d.blocks),
        member(static_cast<int>(blockIdx.x) / d.blocks / d.rowParts),
        hidden(static_cast<int>(p.shape.hidden)),
        unit0(rank * d.units) {
    const auto rowPart = static_cast<int64_t>(blockIdx.x) / d.blocks % d.rowParts;
    row0 = p.features.rows * rowPart / d.rowParts;
    rows = static_cast<int>(p.features.rows * (rowPart + 1) / d.rowParts - row0);
    gateWeights =
        kResident ? mem + at.weights
                  : p.packed + static_cast<int64_t>(blockIdx.x) * d.allLines() * kGates * d.units;
    candidateWeights = gateWeights + d.allLines() * 2 * d.units;
  }

  __device__ void run() {
    pack();
    begin();
    endCopyGroup();
    awaitCopies<0>();
    syncCluster();  // all blocks are there
    for (int j = 0; j < p.steps; ++j) {
      product(Cut(2 * d.units, 0, d.allLines(), false), gateWeights, mem + at.state);
      __syncthreads();
      gates();
      send(at.reset);
      syncCluster();
      product(candidateCut(), candidateWeights, mem + at.inputs);
      __syncthreads();
      step(j);
      __syncthreads();
      readHeads();
      send(at.state);
      syncCluster();
      increase(j);
      __syncthreads();
      if (p.feedback) takeInput();
      __syncthreads();
    }
    if (p.out.last) keep(p.out.last + (member * p.features.rows + row0) * hidden, hidden);
  }

 private:
  /// Where the reset comes after the product, that of the state is needed by itself.
  __device__ Cut candidateCut() const {
    return Cut(d.units, d.encoded, d.allLines(), p.shape.resetAfter);
  }

  /// Calls work(row, unit) for this block's units, which lie side by side, of all rows.
  template <class Work>
  __device__ void forOwn(const Work &work) const {
    for (int i = static_cast<int>(threadIdx.x); i < Rows::kAll * d.units; i += kThreads) {
      work(i / d.units, i % d.units);
    }
  }

  /// Weights of this block's units: of both gates, then of the candidates. Units that there are not
  /// have weights of 0.
  __device__ void pack() {
    const int all = d.allLines();
    const int cols = 2 * d.units;
    for (int i = static_cast<int>(threadIdx.x); i < all * kGates * d.units; i += kThreads) {
      const bool gate = i < all * cols;
      const int inside = gate ? i : i - all * cols;
      const int line = gate ? inside / cols : inside / d.units;
      const int col = gate ? inside % cols : inside % d.units;
      const int unit = unit0 + col % d.units;
      const int column = (gate ? col / d.units : 2) * hidden + unit;
      // The gates' lines are state and inputs, the candidates' inputs and state.
      const int stateLine = gate ? line : line - d.encoded;
      const bool ofState = stateLine >= 0 && stateLine < d.lines;
      const int inputLine = gate ? line - d.lines : line;
      const float *from = nullptr;
      if (unit < hidden && ofState && stateLine < hidden) {
        from = p.weights.recurrent + (member * hidden + stateLine) * kGates * hidden + column;
      } else if (unit < hidden && !ofState) {
        from = p.weights.input + (member * d.encoded + inputLine) * kGates * hidden + column;
      }
      if constexpr (kResident) {
        copyWordAsync(reinterpret_cast<uint32_t *>(gateWeights + i),
                      reinterpret_cast<const uint32_t *>(from ? from : p.weights.recurrent),
                      from != nullptr);
      } else {
        gateWeights[i] = from ? *from : 0.0f;
      }
    }
    for (int i = static_cast<int>(threadIdx.x); i < 2 * d.units; i += kThreads) {
      const int unit = unit0 + i / 2;
      mem[at.heads + i] =
          unit < hidden ? p.weights.heads[(member * hidden + unit) * 2 + i % 2] : 0.0f;
    }
    const float *encoder = p.weights.encoder + member * p.shape.inputs * p.shape.encoded;
    for (int o = static_cast<int>(threadIdx.x); o < d.encoded; o += kThreads) {
      mem[at.feedback + o] = encoder[o];
    }
  }

  /// The first states, and what the encoder makes of the features.
  __device__ void begin() {
    for (int i = static_cast<int>(threadIdx.x); i < d.lines * Rows::kPitch; i += kThreads) {
      mem[at.state + i] = 0.0f;
      mem[at.reset + i] = 0.0f;
    }
    for (int i = static_cast<int>(threadIdx.x); i < d.encoded * Rows::kPitch; i += kThreads) {
      mem[at.inputs + i] = 0.0f;
    }
    for (int i = static_cast<int>(threadIdx.x); i < 2 * Rows::kAll; i += kThreads) {
      mem[at.sums + i] = 0.0f;
    }
    __syncthreads();
    const int64_t rowOfAll = member * p.features.rows + row0;
    for (int i = static_cast<int>(threadIdx.x); p.first && i < rows * hidden; i += kThreads) {
      mem[at.state + i % hidden * Rows::kPitch + Rows::place(i / hidden)] =
          p.first[rowOfAll * hidden + i];
    }
    const float *encoder = p.weights.encoder + member * p.shape.inputs * p.shape.encoded;
    const float *bias = p.weights.encoderBias + member * p.shape.encoded;
    for (int i = static_cast<int>(threadIdx.x); i < rows * d.encoded; i += kThreads) {
      const int row = i / d.encoded;
      const int o = i % d.encoded;
      float sum = bias[o];
      for (int64_t f = 0; f < p.features.cols; ++f) {
        sum = fma(p.features(row0 + row, f), encoder[f * d.encoded + o], sum);
      }
      mem[at.pre + o * Rows::kAll + row] = sum;
      mem[at.inputs + o * Rows::kPitch + Rows::place(row)] = rectified(sum);
    }
    __syncthreads();
    forOwn([&](int row, int unit) {
      mem[at.own + row * d.units + unit] =
          mem[at.state + (unit0 + unit) * Rows::kPitch + Rows::place(row)];
    });
  }

  /// The parts of a product with `lines`: [parts, rows, columns].
  __device__ void product(const Cut &cut, const float *weights, const float *lines) {
    const int cols = 4 * cut.groups;
    const int tasks = 2 * cut.groups * cut.parts;
    for (int task = static_cast<int>(threadIdx.x); task < tasks; task += kThreads) {
      const int part = task / (2 * cut.groups);
      const int group = task % cut.groups;
      const int half = task / cut.groups % 2;
      const int end = cut.begin(part + 1);
      const float *line = lines + half * Rows::kHalf;
      float4 sums[kRows] = {};
#pragma unroll 4
      for (int k = cut.begin(part); k < end; ++k) {
        const float4 w = *reinterpret_cast<const float4 *>(weights + k * cols + 4 * group);
        float values[Rows::kHalf];
#pragma unroll
        for (int q = 0; q < Rows::kHalf; q += 4) {
          *reinterpret_cast<float4 *>(values + q) =
              *reinterpret_cast<const float4 *>(line + k * Rows::kPitch + q);
        }
#pragma unroll
        for (int row = 0; row < kRows; ++row) {
          sums[row].x = fma(values[row], w.x, sums[row].x);
          sums[row].y = fma(values[row], w.y, sums[row].y);
          sums[row].z = fma(values[row], w.z, sums[row].z);
          sums[row].w = fma(values[row], w.w, sums[row].w);
        }
      }
      float *to = mem + at.parts + (part * Rows::kAll + half * kRows) * cols + 4 * group;
#pragma unroll
      for (int row = 0; row < kRows; ++row)
        *reinterpret_cast<float4 *>(to + row * cols) = sums[row];
    }
  }

  /// The sum of parts [from, to) of a product with `cols` columns.
  __device__ float sumOf(int from, int to, int cols, int row, int col) const {
    float sum = 0.0f;
    for (int part = from; part < to; ++part) {
      sum += mem[at.parts + (part * Rows::kAll + row) * cols + col];
    }
    return sum;
  }

  __device__ float biasOf(int gate, int unit) const {
    const int place = unit0 + unit;
    return place < hidden ? p.weights.bias[(member * kGates + gate) * hidden + place] : 0.0f;
  }

  __device__ void gates() {
    const int cols = 2 * d.units;
    const int parts = Cut(cols, 0, d.allLines(), false).parts;
    forOwn([&](int row, int unit) {
      const int i = row * d.units + unit;
      const float r = logistic(sumOf(0, parts, cols, row, d.units + unit) + biasOf(1, unit));
      mem[at.z + i] = logistic(sumOf(0, parts, cols, row, unit) + biasOf(0, unit));
      mem[at.r + i] = r;
      mem[at.reset + (unit0 + unit) * Rows::kPitch + Rows::place(row)] =
          p.shape.resetAfter ? mem[at.own + i] : r * mem[at.own + i];
    });
  }

  __device__ void step(int j) {
    const Cut cut = candidateCut();
    const bool after = p.shape.resetAfter;
    forOwn([&](int row, int unit) {
      const int i = row * d.units + unit;
      const int place = unit0 + unit;
      float a = sumOf(0, cut.firstParts, d.units, row, unit) + biasOf(2, unit);
      if (after && place < hidden) {
        const float bias = p.weights.candidateBias[member * hidden + place];
        a += mem[at.r + i] * (sumOf(cut.firstParts, cut.parts, d.units, row, unit) + bias);
      }
      const float h = moved(mem[at.z + i], mem[at.own + i], tanh(a));
      mem[at.own + i] = h;
      mem[at.state + place * Rows::kPitch + Rows::place(row)] = h;
    });
    if (!p.out.states) return;
    const int64_t first = (member * p.features.rows + row0) * p.steps + j;
    __syncthreads();
    keep(p.out.states + first * hidden, static_cast<int64_t>(p.steps) * hidden);
  }

  /// Writes this block's units of the state; rows are `stride` apart.
  __device__ void keep(float *to, int64_t stride) const {
    forOwn([&](int row, int unit) {
      if (row >= rows || unit0 + unit >= hidden) return;
      to[row * stride + unit0 + unit] = mem[at.own + row * d.units + unit];
    });
  }

  /// Sends this block's lines of what lies at `place` to the other blocks.
  __device__ void send(int place) {
    __syncthreads();
    const int quads = d.units * Rows::kPitch / 4;
    auto *own = reinterpret_cast<float4 *>(mem + place) + rank * quads;
    for (int i = static_cast<int>(threadIdx.x); i < quads * (d.blocks - 1); i += kThreads) {
      const int other = (rank + 1 + i / quads) % d.blocks;
      sharedOf(other, own)[i % quads] = own[i % quads];
    }
  }

  /// Sends what this block's units add to what the heads read.
  __device__ void readHeads() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int row = static_cast<int>(threadIdx.x) / 32; row < rows; row += kThreads / 32) {
      float mean = 0.0f;
      float variance = 0.0f;
      for (int unit = lane; unit < d.units; unit += 32) {
        const float h = mem[at.own + row * d.units + unit];
        mean = fma(h, mem[at.heads + 2 * unit], mean);
        variance = fma(h, mem[at.heads + 2 * unit + 1], variance);
      }
      for (int apart = 16; apart > 0; apart /= 2) {
        mean += __shfl_xor_sync(0xFFFFFFFFU, mean, apart);
        variance += __shfl_xor_sync(0xFFFFFFFFU, variance, apart);
      }
      if (lane >= d.blocks) continue;
      float *to = sharedOf(lane, mem + at.headParts) + (rank * Rows::kAll + row) * 2;
      to[0] = mean;
      to[1] = variance;
    }
  }

  /// The increment of each row, and what is wanted of it.
  __device__ void increase(int j) {
    const int row = static_cast<int>(threadIdx.x);
    if (row >= rows) return;
    float read[2] = {};
    for (int block = 0; block < d.blocks; ++block) {
      for (int head = 0; head < 2; ++head) {
        read[head] += mem[at.headParts + (block * Rows::kAll + row) * 2 + head];
      }
    }
    mem[at.sums + row] = read[0];
    mem[at.sums + Rows::kAll + row] += read[0];
    if (rank != 0) return;
    const int64_t to = (member * p.features.rows + row0 + row) * p.steps + j;
    if (p.out.mean) p.out.mean[to] = mem[at.sums + Rows::kAll + row];
    if (p.out.logVariance) {
      p.out.logVariance[to] =
          read[1] + p.weights.logVarianceBias[member] + log(static_cast<float>(j + 1));
    }
  }

  __device__ void takeInput() {
    for (int i = static_cast<int>(threadIdx.x); i < d.encoded * Rows::kAll; i += kThreads) {
      const int o = i / Rows::kAll;
      const int row = i % Rows::kAll;
      if (row >= rows) continue;
      const float shift = mem[at.sums + row] * mem[at.feedback + o];
      mem[at.inputs + o * Rows::kPitch + Rows::place(row)] = rectified(mem[at.pre + i] + shift);
    }
  }

  const Problem &p;
  const Division &d;
  const SharedLayout<kRows> at;
  float *const mem;
  const int rank;
  const int64_t member;
  const int hidden;
  const int unit0;
  int64_t row0;
  int rows;
  float *gateWeights;
  const float *candidateWeights;
};

template <int kRows, bool kResident>
__global__ void __launch_bounds__(kThreads, 1) rolloutKernel(const __grid_constant__ Problem p) {
  extern __shared__ float4 shared[];
  letNextBegin();
  awaitEarlier();
  Block<kRows, kResident>(p, reinterpret_cast<float *>(shared)).run();
}

template <int kRows, bool kResident>
void launchRollout(const Context &context, const Problem &p) {
  const auto kernel = &rolloutKernel<kRows, kResident>;
  const size_t bytes = sizeof(float) * SharedLayout<kRows>(p.division, kResident).size;
  RPU_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                static_cast<int>(bytes)));
  const int64_t blocks = p.shape.members * p.division.rowParts * p.division.blocks;
  launchClusters(context.stream, kernel, dim3(static_cast<unsigned>(blocks)), kThreads, bytes,
                 static_cast<unsigned>(p.division.blocks), p);
}

template <int kRows>
bool rollOut(const Context &context, Problem p, size_t room) {
  if (sizeof(float) * SharedLayout<kRows>(p.division, true).size <= room) {
    launchRollout<kRows, true>(context, p);
    return true;
  }
  if (sizeof(float) * SharedLayout<kRows>(p.division, false).size > room) return false;
  const Division &d = p.division;
  const int64_t blocks = p.shape.members * d.rowParts * d.blocks;
  Buffer<float> packed(context, blocks * d.allLines() * kGates * d.units);
  p.packed = packed.data();
  launchRollout<kRows, false>(context, p);
  return true;
}

}  // namespace

bool cudaRollout(const Context &context, const EnsembleShape &shape, const EnsembleWeights &weights,
                 MatrixView<const float> features, const float *first, int64_t steps, bool feedback,
                 const RolloutOutputs &out) {
  constexpr int64_t kMostEncoded = 4096;  // more have no room in shared memory
  constexpr int64_t kMostBlocks = int64_t{1} << 30;
  constexpr int kLong = 6;  // rows of half a cluster
  constexpr int kShort = 2;
  if (shape.encoded > kMostEncoded || features.rows > kMostBlocks / shape.members / 8) return false;
  const CudaScope scope(context.device);
  int room = 0;
  int processors = 0;
  RPU_CUDA(cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerBlockOptin, context.device));
  RPU_CUDA(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, context.device));
  const auto hidden = static_cast<int>(shape.hidden);
  int blocks = launchesOverlap() ? kMostBlocksOfCluster : 1;  // clusters came with compute 9.0 too
  while (blocks > 1 && blocks * 4 > hidden) blocks /= 2;
  const int units = ((hidden + blocks - 1) / blocks + 3) / 4 * 4;
  const auto partsOf = [&](int half) { return (features.rows + 2 * half - 1) / (2 * half); };
  const bool fewRows = shape.members * partsOf(kShort) * blocks <= processors;
  const auto rowParts = static_cast<int>(partsOf(fewRows ? kShort : kLong));
  const Division division{blocks, units, blocks * units, static_cast<int>(shape.encoded), rowParts};
  const Problem p{shape,    weights, features, first,  static_cast<int>(steps),
                  feedback, out,     division, nullptr};
  const size_t bytes = std::min(static_cast<size_t>(room), kMostShared);
  return fewRows ? rollOut<kShort>(context, p, bytes) : rollOut<kLong>(context, p, bytes);
}

}  // namespace RPU
