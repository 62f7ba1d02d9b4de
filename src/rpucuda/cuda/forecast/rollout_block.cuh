#pragma once

#include "cuda/core/async_copy.cuh"
#include "cuda/forecast/rollout_layout.cuh"
#include "forecast/gru_functors.h"
#include "forecast/gru_kernels.h"

namespace pulsora {
namespace rollouts {

/// Element o of bias + x We for kCount rows x, `apart` from one another, where such a row exists.
/// With `half`, x is rounded to 16 bits.
template <int kCount>
__device__ void encodeRows(MatrixView<const float> x, int64_t row, int64_t apart,
                           const float *encoder, int64_t outputs, const float *bias, int64_t o,
                           float (&sums)[kCount], bool half = false) {
  for (float &sum : sums) sum = bias[o];
#pragma unroll 8
  for (int64_t f = 0; f < x.cols; ++f) {
    const float weight = encoder[f * outputs + o];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (row + i * apart < x.rows) {
        const float value = x(row + i * apart, f);
        sums[i] = fma(half ? nearestHalf(value) : value, weight, sums[i]);
      }
    }
  }
}

/// Writes four numbers to shared memory in one instruction, which the compiler does not do by
/// itself.
__device__ inline void storeQuad(float *shared, const float (&quad)[4]) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
               "f"(quad[0]), "f"(quad[1]), "f"(quad[2]), "f"(quad[3])
               : "memory");
}

/// One block's part of a rollout. Integer divisions are made before the steps, because they take
/// longer than most of a step's work.
template <int kRows, bool kResident>
class Block {
  using Rows = RowLayout<kRows>;

 public:
  __device__ Block(const Problem &problem, float *shared)
      : p(problem),
        d(problem.division),
        at(problem.division, kResident),
        mem(shared),
        thread(static_cast<int>(threadIdx.x)),
        rank(static_cast<int>(blockIdx.x) % d.blocks),
        member(static_cast<int>(blockIdx.x) / d.blocks / d.rowParts),
        hidden(static_cast<int>(p.shape.hidden)),
        unit0(rank * d.units),
        width(d.units < kThreads ? d.units : kThreads),
        ownUnit(thread % width),
        ownRow(thread / width),
        rowStep(kThreads / width),
        mask(dropoutMask(problem.options, member, 0, 0)),
        inputRow(thread % Rows::kAll),
        firstInput(thread / Rows::kAll),
        gateCut(2 * d.units, d.allLines()),
        candidateCut(p.shape.resetAfter ? Cut(d.units, d.allLines(), d.encoded)
                                        : Cut(d.units, d.allLines())),
        gateTask(gateCut, thread),
        candidateTask(candidateCut, thread),
        quads(d.units * Rows::kPitch / 4),
        quad(thread % quads),
        firstOther(1 + thread / quads),
        otherStep(kThreads / quads) {
    const auto rowPart = static_cast<int64_t>(blockIdx.x) / d.blocks % d.rowParts;
    row0 = p.features.rows * rowPart / d.rowParts;
    rows = static_cast<int>(p.features.rows * (rowPart + 1) / d.rowParts - row0);
    mask.firstRow = row0;
    gateWeights =
        kResident ? mem + at.weights
                  : p.packed + static_cast<int64_t>(blockIdx.x) * d.allLines() * kGates * d.units;
    candidateWeights = gateWeights + d.allLines() * 2 * d.units;
  }

  __device__ void run() {
    pack();
    takeConstants();
    begin();
    endCopyGroup();
    awaitCopies<0>();
    syncCluster();  // all blocks have started
    for (int j = 0; j < p.steps; ++j) {
      product(gateCut, gateTask, gateWeights, mem + at.state);
      __syncthreads();
      gates();
      __syncthreads();
      send(at.reset);
      syncCluster();
      product(candidateCut, candidateTask, candidateWeights, mem + at.inputs);
      __syncthreads();
      step();
      __syncthreads();
      send(at.state);
      readHeads();
      if (p.out.states) {
        const int64_t first = (member * p.features.rows + row0) * p.steps + j;
        keep(p.out.states + first * hidden, static_cast<int64_t>(p.steps) * hidden);
      }
      syncCluster();
      advance(j);
      __syncthreads();
    }
    if (p.out.last) keep(p.out.last + (member * p.features.rows + row0) * hidden, hidden);
  }

 private:
  /// The number that a product takes for an activation.
  __device__ float operand(float value) const {
    return p.options.half ? nearestHalf(value) : value;
  }

  /// The input of a unit for its sum, the encoder's output. A dropped unit has a sum of -infinity.
  __device__ float inputOf(float total) const {
    const float output = rectified(total);
    return operand(p.options.dropout > 0.0f ? output * mask.scale : output);
  }

  /// Four columns of a product for half of the rows over a part of the lines.
  struct Task {
    int begin, end, col, half, sums;

    __device__ Task(const Cut &cut, int task) {
      const int part = task / (2 * cut.groups);
      begin = cut.begin(part);
      end = cut.begin(part + 1);
      col = 4 * (task % cut.groups);
      half = task / cut.groups % 2;
      sums = (part * Rows::kAll + half * kRows) * 4 * cut.groups + col;
    }
  };

  /// Calls work(row, unit) for this block's units, which are adjacent, and all rows.
  template <class Work>
  __device__ void forOwn(const Work &work) const {
    if (ownRow >= rowStep) return;
#pragma unroll 1
    for (int unit = ownUnit; unit < d.units; unit += width) {
#pragma unroll 1
      for (int row = ownRow; row < Rows::kAll; row += rowStep) work(row, unit);
    }
  }

  /// Packs the weights of this block's units: both gates, then the candidates. The lines of the
  /// gates are state and inputs, the lines of the candidates inputs and state. Units beyond
  /// `hidden` have weights of 0.
  __device__ void pack() {
    const int64_t of = member * kGates * hidden;
    const float *state = p.weights.recurrent + of * hidden;
    const float *inputs = p.weights.input + of * d.encoded;
    const int cols = 2 * d.units;
    for (int gate = 0; gate < 2; ++gate) {
      float *to = gateWeights + gate * d.units;
      packLines(state, hidden, d.lines, gate, to, cols);
      packLines(inputs, d.encoded, d.encoded, gate, to + d.lines * cols, cols);
    }
    float *to = gateWeights + d.allLines() * cols;
    packLines(inputs, d.encoded, d.encoded, 2, to, d.units);
    packLines(state, hidden, d.lines, 2, to + d.encoded * d.units, d.units);
  }

  __device__ void packLines(const float *matrix, int there, int lines, int gate, float *to,
                            int cols) {
    if (ownRow >= rowStep) return;
    for (int unit = ownUnit; unit < d.units; unit += width) {
      const int column = gate * hidden + unit0 + unit;
      for (int line = ownRow; line < lines; line += rowStep) {
        const bool copied = line < there && unit0 + unit < hidden;
        const float *from = copied ? matrix + line * kGates * hidden + column : matrix;
        float *place = to + line * cols + unit;
        if constexpr (kResident) {
          copyWordAsync(reinterpret_cast<uint32_t *>(place),
                        reinterpret_cast<const uint32_t *>(from), copied);
        } else {
          *place = copied ? *from : 0.0f;
        }
      }
    }
  }

  /// Loads the other weights that the steps read.
  __device__ void takeConstants() {
    for (int i = thread; i < d.units; i += kThreads) {
      const int unit = unit0 + i;
      const bool there = unit < hidden;
      for (int gate = 0; gate < kGates; ++gate) {
        mem[at.bias + gate * d.units + i] =
            there ? p.weights.bias[(member * kGates + gate) * hidden + unit] : 0.0f;
      }
      mem[at.bias + kGates * d.units + i] =
          there && p.shape.resetAfter ? p.weights.candidateBias[member * hidden + unit] : 0.0f;
      for (int head = 0; head < 2; ++head) {
        mem[at.heads + 2 * i + head] =
            there ? p.weights.heads[(member * hidden + unit) * 2 + head] : 0.0f;
      }
    }
    const float *encoder = p.weights.encoder + member * p.shape.inputs * p.shape.encoded;
    for (int o = thread; o < d.encoded; o += kThreads) mem[at.feedback + o] = encoder[o];
    for (int j = thread; j < p.steps; j += kThreads) {
      mem[at.spreads + j] = p.weights.logVarianceBias[member] + log(static_cast<float>(j + 1));
    }
  }

  /// Sets the first states and the encoder's sums for the features.
  __device__ void begin() {
    const int lines = 2 * d.lines + d.encoded;
    for (int i = thread; i < lines * Rows::kPitch; i += kThreads) mem[at.state + i] = 0.0f;
    for (int i = at.headParts + thread; i < at.feedback; i += kThreads) mem[i] = 0.0f;
    __syncthreads();
    const int64_t rowOfAll = member * p.features.rows + row0;
    for (int i = thread; p.first && i < rows * hidden; i += kThreads) {
      mem[at.state + i % hidden * Rows::kPitch + i / hidden] =
          operand(p.first[rowOfAll * hidden + i]);
    }
    const float *encoder = p.weights.encoder + member * p.shape.inputs * p.shape.encoded;
    const float *bias = p.weights.encoderBias + member * p.shape.encoded;
    const auto own = p.features.block(row0, 0, rows, p.features.cols);
    const int across = d.encoded < kThreads ? d.encoded : kThreads;
    const int apart = kThreads / across;
    for (int o = thread % across; o < d.encoded && thread < across * apart; o += across) {
      for (int row = thread / across; row < rows; row += kRows * apart) {
        float sums[kRows];
        encodeRows(own, row, apart, encoder, d.encoded, bias, o, sums, p.options.half);
        for (int i = 0; i < kRows && row + i * apart < rows; ++i) {
          const int place = row + i * apart;
          float sum = sums[i];
          if (p.options.dropout > 0.0f && mask.factor(place, o) == 0.0f && sum == sum) {
            sum = -INFINITY;
          }
          mem[at.pre + o * Rows::kAll + place] = sum;
          mem[at.inputs + o * Rows::kPitch + place] = inputOf(sum);
        }
      }
    }
    __syncthreads();
    forOwn([&](int row, int unit) {
      const bool given = p.first && row < rows && unit0 + unit < hidden;
      mem[at.own + row * d.units + unit] =
          given ? p.first[(rowOfAll + row) * hidden + unit0 + unit] : 0.0f;
    });
  }

  /// Computes the parts of a product with `lines`: [parts, rows, columns].
  __device__ void product(const Cut &cut, const Task &first, const float *weights,
                          const float *lines) {
    const int tasks = cut.tasks();
    Task task = first;
#pragma unroll 1
    for (int i = thread; i < tasks;) {
      add(4 * cut.groups, task, weights, lines);
      i += kThreads;
      if (i < tasks) task = Task(cut, i);
    }
  }

  __device__ void add(int cols, const Task &task, const float *weights, const float *lines) {
    float sums[kRows][4] = {};
    const float *w = weights + task.begin * cols + task.col;
    const float *line = lines + task.begin * Rows::kPitch + task.half * kRows;
#pragma unroll 4
    for (int k = task.begin; k < task.end; ++k, w += cols, line += Rows::kPitch) {
      const float4 four = *reinterpret_cast<const float4 *>(w);
      float values[kRows];
#pragma unroll
      for (int q = 0; q < kRows; q += 2) {
        *reinterpret_cast<float2 *>(values + q) = *reinterpret_cast<const float2 *>(line + q);
      }
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        sums[row][0] = fma(values[row], four.x, sums[row][0]);
        sums[row][1] = fma(values[row], four.y, sums[row][1]);
        sums[row][2] = fma(values[row], four.z, sums[row][2]);
        sums[row][3] = fma(values[row], four.w, sums[row][3]);
      }
    }
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      storeQuad(mem + at.sums + task.sums + row * cols, sums[row]);
    }
  }

  /// The sum of parts [from, to) of a product with `cols` columns.
  __device__ float sumOf(int from, int to, int cols, int row, int col) const {
    const float *part = mem + at.sums + (from * Rows::kAll + row) * cols + col;
    float sum = 0.0f;
#pragma unroll 8
    for (int i = from; i < to; ++i, part += Rows::kAll * cols) sum += *part;
    return sum;
  }

  __device__ float biasOf(int gate, int unit) const { return mem[at.bias + gate * d.units + unit]; }

  __device__ void gates() {
    const int cols = 2 * d.units;
    forOwn([&](int row, int unit) {
      const int i = row * d.units + unit;
      const float z = sumOf(0, gateCut.parts, cols, row, unit);
      const float r = sumOf(0, gateCut.parts, cols, row, d.units + unit);
      const float gate = logistic(r + biasOf(1, unit));
      mem[at.z + i] = logistic(z + biasOf(0, unit));
      mem[at.r + i] = gate;
      mem[at.reset + (unit0 + unit) * Rows::kPitch + row] =
          operand(p.shape.resetAfter ? mem[at.own + i] : gate * mem[at.own + i]);
    });
  }

  __device__ void step() {
    const Cut &cut = candidateCut;
    forOwn([&](int row, int unit) {
      const int i = row * d.units + unit;
      float a = sumOf(0, cut.firstParts, d.units, row, unit) + biasOf(2, unit);
      if (p.shape.resetAfter) {
        const float after = sumOf(cut.firstParts, cut.parts, d.units, row, unit);
        a += mem[at.r + i] * (after + biasOf(kGates, unit));
      }
      const float h = moved(mem[at.z + i], mem[at.own + i], tanh(a));
      mem[at.own + i] = h;
      mem[at.state + (unit0 + unit) * Rows::kPitch + row] = operand(h);
    });
  }

  /// Writes this block's units of the state; rows are `stride` apart.
  __device__ void keep(float *to, int64_t stride) const {
    forOwn([&](int row, int unit) {
      if (row >= rows || unit0 + unit >= hidden) return;
      to[row * stride + unit0 + unit] = mem[at.own + row * d.units + unit];
    });
  }

  /// Sends this block's lines of the array at `place` to the other blocks.
  __device__ void send(int place) {
    auto *own = reinterpret_cast<float4 *>(mem + place) + rank * quads;
    if (otherStep == 0) {  // more quads than threads
      for (int i = thread; i < quads; i += kThreads) {
        for (int other = 1; other < d.blocks; ++other) put(other, own + i);
      }
      return;
    }
    if (firstOther > otherStep) return;
    for (int other = firstOther; other < d.blocks; other += otherStep) put(other, own + quad);
  }

  /// Copies *own to the block `later` places after this one.
  __device__ void put(int later, float4 *own) const {
    const int block = rank + later < d.blocks ? rank + later : rank + later - d.blocks;
    *sharedOf(block, own) = *own;
  }

  /// Sends the share of this block's units in the heads' sums. Half a warp takes a row.
  __device__ void readHeads() {
    const int lane = thread % 16;
    const int row = thread / 16;
    if (row / 2 * 2 >= Rows::kAll) return;  // whole warps alone
    float mean = 0.0f;
    float variance = 0.0f;
    for (int unit = lane; unit < d.units; unit += 16) {
      float h = mem[at.own + row * d.units + unit];
      if (p.options.dropout > 0.0f) h *= mask.factor(row, d.encoded + unit0 + unit);
      h = operand(h);
      mean = fma(h, mem[at.heads + 2 * unit], mean);
      variance = fma(h, mem[at.heads + 2 * unit + 1], variance);
    }
    for (int apart = 8; apart > 0; apart /= 2) {
      mean += __shfl_xor_sync(0xFFFFFFFFU, mean, apart);
      variance += __shfl_xor_sync(0xFFFFFFFFU, variance, apart);
    }
    if (lane >= d.blocks) return;
    float *to = sharedOf(lane, mem + at.headParts) + (rank * Rows::kAll + row) * 2;
    *reinterpret_cast<float2 *>(to) = make_float2(mean, variance);
  }

  /// Computes the increment of a row, its outputs, and the next inputs. Each thread has one row.
  __device__ void advance(int j) {
    if (inputRow >= rows) return;
    float read[2] = {};
#pragma unroll
    for (int block = 0; block < kMostBlocksOfCluster; ++block) {  // missing blocks add 0
      const auto part = *reinterpret_cast<const float2 *>(mem + at.headParts +
                                                          (block * Rows::kAll + inputRow) * 2);
      read[0] += part.x;
      read[1] += part.y;
    }
    sum += read[0];
    if (rank == 0 && firstInput == 0) {
      const int64_t to = (member * p.features.rows + row0 + inputRow) * p.steps + j;
      if (p.out.mean) p.out.mean[to] = sum;
      if (p.out.logVariance) {
        p.out.logVariance[to] = read[1] + mem[at.spreads + j];
      }
    }
    if (!p.feedback || firstInput >= kThreads / Rows::kAll) return;
    float *to = mem + at.inputs + inputRow;
#pragma unroll 4
    for (int o = firstInput; o < d.encoded; o += kThreads / Rows::kAll) {
      const float shift = read[0] * mem[at.feedback + o];
      to[o * Rows::kPitch] = inputOf(mem[at.pre + o * Rows::kAll + inputRow] + shift);
    }
  }

  const Problem &p;
  const Division &d;
  const SharedLayout<kRows> at;
  float *const mem;
  const int thread;
  const int rank;
  const int64_t member;
  const int hidden;
  const int unit0;
  const int width, ownUnit, ownRow, rowStep;
  DropoutMask mask;  // of rows from row0 on
  const int inputRow, firstInput;
  const Cut gateCut, candidateCut;
  const Task gateTask, candidateTask;
  const int quads, quad, firstOther, otherStep;
  int64_t row0;
  int rows;
  float sum = 0.0f;  // of the increments of this thread's row
  float *gateWeights;
  const float *candidateWeights;
};

}  // namespace rollouts
}  // namespace pulsora
