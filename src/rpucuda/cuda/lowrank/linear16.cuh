#pragma once

#include "cuda/lowrank/fragments.cuh"
#include "cuda/lowrank/staged_copy.cuh"
#include "cuda/lowrank/wide_product.cuh"

// A layer in 16 bits with its update, y = x weight^T + bias + scale ((x v) .* codes) u^T, in one
// kernel for compute capability 9.0. Blocks stay and take tile after tile of y. One warp has the
// copy engine load panels of x and of the weight; the rows of v^T follow the rows of the weight, so
// that one product makes x weight^T and, in its last columns, x v. The columns of x v are gated in
// registers and, as the sum of two numbers of 16 bits, are the left factor of one more product,
// with u.
//
// With few tiles, two warpgroups share each tile: 64 rows for each. With many tiles they take
// turns, a whole tile each: the end of one warpgroup's tile overlaps the products of the other.

namespace pulsora::lowrank::layer16 {

constexpr int kRows = 128;                         // of a tile of y
constexpr int kDepth = 64;                         // of a panel: 128 bytes of a row
constexpr int kStages = 5;                         // panels being loaded
[[maybe_unused]] constexpr int kHelpers = 3 * 32;  // threads that load u
constexpr int kThreads = 3 * 128;
constexpr int kRowBytes = 2 * kDepth;

template <class T>
struct Layer {
  MatrixMap x, weight, v;
  CodeReader<T> codes;
  Factor<T> u;
  const T *bias;
  T *y;
  int64_t yStride;
  int rows;
  int depth;   // K1 in panels
  int across;  // tiles next to one another
  int tiles;   // in all
  int rank;
  float scale;
  bool gateInPieces;  // a row of u is one or two whole pieces of 16 bytes
  bool streams;
};

/// The sizes of a kernel: N <= 8 kTiles, tiles of kRows x kWidth.
template <int kTiles, int kWidth>
struct Shape {
  static constexpr int kColumns = kWidth + 8 * kTiles;  // of a product
  static constexpr int kLeftBytes = kRows * kRowBytes;
  static constexpr int kRightBytes = kColumns * kRowBytes;
};

/// Operands of the last step of a tile: rows of u, 16 numbers each, and the bias.
template <class T, int kWidth>
struct GateFactor {
  uint8_t u[kWidth][32];
  T bias[kWidth];
  uint8_t gap[1024 - kWidth * 34 % 1024];
};

/// The shared memory of a block; its parts begin at multiples of 1024 bytes.
template <class T, int kTiles, int kWidth>
struct Memory {
  using S = Shape<kTiles, kWidth>;

  uint8_t left[kStages][S::kLeftBytes];    // panels of x
  uint8_t right[kStages][S::kRightBytes];  // panels of the weight and v^T
  GateFactor<T, kWidth> gates[2];          // of two tiles
  Barrier full[kStages], empty[kStages], gateFull[2], gateEmpty[2];
  Barrier turn[2];  // of a warpgroup: the other warpgroup has begun all products of its tile
};

/// Loads the panels of all tiles of this block, in order.
template <class T, int kTiles, int kWidth>
__device__ void bringPanels(const Layer<T> &p, Memory<T, kTiles, kWidth> &memory) {
  using S = Shape<kTiles, kWidth>;
  unsigned step = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < p.tiles;
       tile += static_cast<int>(gridDim.x)) {
    const int row = tile / p.across * kRows, col = tile % p.across * kWidth;
    for (int k = 0; k < p.depth; ++k, ++step) {
      const int stage = static_cast<int>(step % kStages);
      memory.empty[stage].wait(step / kStages % 2 ^ 1);
      memory.full[stage].arriveExpecting(S::kLeftBytes + S::kRightBytes);
      copyPart(memory.left[stage], p.x, row, k * kDepth, memory.full[stage]);
      copyPart(memory.right[stage], p.weight, col, k * kDepth, memory.full[stage]);
      copyPart(memory.right[stage] + kWidth * kRowBytes, p.v, 0, k * kDepth, memory.full[stage]);
    }
  }
}

/// Loads the rows of u, and the bias, of all tiles: 8 numbers twice, for both halves of the gated x
/// v, or 16 numbers.
template <class T, int kTiles, int kWidth>
__device__ void bringGateFactor(const Layer<T> &p, Memory<T, kTiles, kWidth> &memory, int helper) {
  unsigned turn = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < p.tiles;
       tile += static_cast<int>(gridDim.x), ++turn) {
    GateFactor<T, kWidth> &gate = memory.gates[turn % 2];
    memory.gateEmpty[turn % 2].wait(turn / 2 % 2 ^ 1);
#pragma unroll 1
    for (int row = helper; row < kWidth; row += kHelpers) {
      const int of = tile % p.across * kWidth + row;
      // The places of the two pieces of a row of 32 bytes, as the copy engine permutes them.
      uint8_t *const to = gate.u[row];
      const int swap = (row >> 2 & 1) * 16;
      gate.bias[row] = p.bias && of < p.u.rows ? p.bias[of] : T{};
      if (p.gateInPieces) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          uint4 piece = make_uint4(0, 0, 0, 0);
          if (of < p.u.rows)
            piece = __ldg(reinterpret_cast<const uint4 *>(p.u.data + of * p.u.rowStride) +
                          (kTiles == 1 ? 0 : half));
          *reinterpret_cast<uint4 *>(to + (half * 16 ^ swap)) = piece;
        }
      } else {
#pragma unroll 1
        for (int n = 0; n < 16; n += 2)
          *reinterpret_cast<uint32_t *>(to + (2 * n ^ swap)) = p.u.pairAt(of, n % (8 * kTiles));
      }
    }
    publishShared();
    memory.gateFull[turn % 2].arrive();
  }
}

/// The codes of columns 2 t and 2 t + 1, and 8 further, of rows `row` and row + 8.
template <class T, int kTiles>
__device__ void readCodes(const Layer<T> &p, int row, int t, uint32_t (&codes)[kTiles][2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const float2 both = codesAt(p.codes, min(row + 8 * r, p.rows - 1), n * 8 + 2 * t, p.rank);
      codes[n][r] = Pair<T>::pack(both.x, both.y);
    }
  }
}

/// x v of rows g and g + 8, gated, scaled and split into two numbers of 16 bits; and the factors of
/// the sums of these rows before and after the product with u is added.
template <class T, int kTiles>
struct Gates {
  uint32_t high[kTiles][2];
  uint32_t low[kTiles][2];
  PowerOfTwo range[2];

  template <int kSums>
  __device__ Gates(const float (&d)[kSums], const uint32_t (&codes)[kTiles][2], float scale) {
    constexpr int kFirst = kSums - 4 * kTiles;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float2 h[kTiles];
      float largest = 0.0f;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const float2 code = Pair<T>::unpack(codes[n][r]);
        h[n].x = d[kFirst + 4 * n + 2 * r] * code.x * scale;
        h[n].y = d[kFirst + 4 * n + 2 * r + 1] * code.y * scale;
        largest = fmaxf(largest, fmaxf(fabsf(h[n].x), fabsf(h[n].y)));
      }
      // The four lanes of a row hold the whole row. From 2^-8 to 2^15 two halves keep at least 17
      // bits without scaling. Numbers below 2^-50 do not matter, and the sums must not overflow.
      largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, 2));
      const bool fits = largest == 0.0f || (largest >= 0x1p-8f && largest < 0x1p15f);
      range[r] = fits ? PowerOfTwo() : rangeOf<T>(fmaxf(largest, 0x1p-50f));
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
        splitPair<T>(make_float2(h[n].x * range[r].up, h[n].y * range[r].up), high[n][r],
                     low[n][r]);
    }
  }

  /// d += the product with u in shared memory.
  template <int kWidth, int kSums>
  __device__ void addProduct(float (&d)[kSums], uint64_t u) const {
    if constexpr (kTiles == 1) {
      const uint32_t both[4] = {high[0][0], high[0][1], low[0][0], low[0][1]};
      GatedProduct<T, kWidth>::add(d, both, u);
    } else {
      const uint32_t first[4] = {high[0][0], high[0][1], high[1][0], high[1][1]};
      const uint32_t second[4] = {low[0][0], low[0][1], low[1][0], low[1][1]};
      GatedProduct<T, kWidth>::add(d, first, u);
      GatedProduct<T, kWidth>::add(d, second, u);
    }
  }
};

/// Writes rows `row` and row + 8 of 64 from column `first` on. Lanes of a row exchange pairs of
/// columns, four times eight columns per step, so that each lane has eight columns: 16 bytes.
template <class T, int kWidth, int kSums>
__device__ void writeTile(const Layer<T> &p, const float (&d)[kSums], const PowerOfTwo (&range)[2],
                          const T *bias, int row, int first, int t) {
#pragma unroll
  for (int j = 0; j < kWidth / 8; j += 4) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      uint32_t out[4];
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const float2 added =
            Pair<T>::unpack(*reinterpret_cast<const uint32_t *>(bias + (j + q) * 8));
        out[q] = Pair<T>::pack(fmaf(d[(j + q) * 4 + 2 * r], range[r].down, added.x),
                               fmaf(d[(j + q) * 4 + 2 * r + 1], range[r].down, added.y));
      }
#pragma unroll
      for (int s = 1; s < 4; s *= 2) {
        const bool isHigh = (t & s) != 0;
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          if (q & s) continue;
          const uint32_t got = __shfl_xor_sync(0xFFFFFFFFU, isHigh ? out[q] : out[q | s], s);
          out[q] = isHigh ? got : out[q];
          out[q | s] = isHigh ? out[q | s] : got;
        }
      }
      const int at = row + 8 * r, col = first + (j + t) * 8;
      if (at < p.rows && col < p.u.rows)
        write(p.y + at * p.yStride + col, make_uint4(out[0], out[1], out[2], out[3]), p.streams);
    }
  }
}

/// Computes the tiles of this block, or every second tile.
template <class T, int kTiles, int kWidth, bool kTakesTurns>
__device__ void multiplyTiles(const Layer<T> &p, Memory<T, kTiles, kWidth> &memory, int group) {
  using S = Shape<kTiles, kWidth>;
  constexpr int kHalves = kTakesTurns ? 2 : 1;  // 64 rows each
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int g = lane / 4, t = lane % 4;
  const bool speaks = threadIdx.x % 128 == 0;  // for its warpgroup
  const int firstRow = kTakesTurns ? 0 : group * 64;
  for (unsigned turn = kTakesTurns ? group : 0;; turn += kTakesTurns ? 2 : 1) {
    const auto tile = static_cast<int>(blockIdx.x + turn * gridDim.x);
    if (tile >= p.tiles) break;
    const int band = tile / p.across;
    const int row = band * kRows + firstRow + warp * 16 + g;
    int firstCol = (tile - band * p.across) * kWidth;
    uint32_t codes[kTiles][2];  // of 64 rows; of the other 64 once registers are free
    readCodes<T, kTiles>(p, row, t, codes);
    float d[kHalves][S::kColumns / 2];
    unsigned step = turn * static_cast<unsigned>(p.depth);
    // A barrier tells a phase apart only from the phase before.
    if (kTakesTurns && turn > 0) memory.turn[group].wait((turn - 1) / 2 % 2);
    for (int k = 0; k < p.depth; ++k, ++step) {
      const int stage = static_cast<int>(step % kStages);
      memory.full[stage].wait(step / kStages % 2);
      const uint32_t left = sharedAddress(memory.left[stage]) + firstRow * kRowBytes;
      const uint32_t right = sharedAddress(memory.right[stage]);
      beginProducts();
#pragma unroll
      for (int s = 0; s < kDepth / 16; ++s) {
#pragma unroll
        for (int half = 0; half < kHalves; ++half)
          WideProduct<T, S::kColumns>::run(
              d[half], describe(left + half * 64 * kRowBytes + s * 32, Swizzle::k128Bytes),
              describe(right + s * 32, Swizzle::k128Bytes), k | s);
      }
      commitProducts();
      waitForProducts<1>();
      if (k > 0 && speaks) memory.empty[(step - 1) % kStages].arrive();
    }
    if (kTakesTurns && speaks) memory.turn[1 - group].arrive();
    waitForProducts<0>();
    for (auto &half : d) settle(half);
    if (speaks) memory.empty[(step - 1) % kStages].arrive();
    const GateFactor<T, kWidth> &gate = memory.gates[turn % 2];
    memory.gateFull[turn % 2].wait(turn / 2 % 2);
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      if (half > 0) readCodes<T, kTiles>(p, row + half * 64, t, codes);
      // Keeps the compiler from holding values for both halves in registers that the sums need.
      asm volatile("" : "+r"(firstCol));
      const Gates<T, kTiles> gates(d[half], codes, p.scale);
      if (std::is_same_v<T, Half> &&
          __any_sync(0xFFFFFFFFU, gates.range[0].up != 1.0f || gates.range[1].up != 1.0f)) {
#pragma unroll
        for (int i = 0; i < kWidth / 2; ++i) d[half][i] *= gates.range[i / 2 % 2].up;
      }
      beginProducts();
      gates.template addProduct<kWidth>(d[half],
                                        describe(sharedAddress(gate.u), Swizzle::k32Bytes));
      commitProducts();
      waitForProducts<0>();
      settle(d[half]);
      writeTile<T, kWidth>(p, d[half], gates.range, gate.bias + 2 * t, row + half * 64, firstCol,
                           t);
    }
    __syncwarp();
    if (lane == 0) memory.gateEmpty[turn % 2].arrive();
  }
}

template <class T, int kTiles, int kWidth, bool kTakesTurns>
__global__ void __launch_bounds__(kThreads, 1) linearKernel(const __grid_constant__ Layer<T> p) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) uint8_t bytes[];
  auto &memory = *reinterpret_cast<Memory<T, kTiles, kWidth> *>(bytes);
  if (threadIdx.x == 0) {
    constexpr unsigned kReaders = kTakesTurns ? 1 : 2;
    for (int i = 0; i < kStages; ++i) {
      memory.full[i].init(1);
      memory.empty[i].init(kReaders);
    }
    for (int i = 0; i < 2; ++i) {
      memory.gateFull[i].init(kHelpers);
      memory.gateEmpty[i].init(4 * kReaders);  // its warps
      memory.turn[i].init(1);
    }
    announceBarriers();
  }
  __syncthreads();
  awaitEarlier();
  const int group = static_cast<int>(threadIdx.x) / 128;
  constexpr bool kNeedsMost = kTakesTurns && kWidth > 128;
  // Registers that one warpgroup gives up are taken by the others: 504 for three threads in all.
  if (group == 0) {
    keepRegisters<kNeedsMost ? 24 : 40>();
    if (threadIdx.x == 0) bringPanels(p, memory);
    if (threadIdx.x >= 32) bringGateFactor(p, memory, static_cast<int>(threadIdx.x) - 32);
  } else {
    takeRegisters<kNeedsMost ? 240 : 232>();
    multiplyTiles<T, kTiles, kWidth, kTakesTurns>(p, memory, group - 1);
  }
#else
  __trap();  // never launched: only compute capability 9.0 has code
#endif
}

}  // namespace pulsora::lowrank::layer16
