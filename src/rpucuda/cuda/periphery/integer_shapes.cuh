#pragma once

#include "cuda/core/launch.cuh"
#include "cuda/periphery/integer_block.cuh"
#include "cuda/periphery/products.cuh"

// How a product of integers is cut into blocks and parts.

namespace pulsora {

constexpr int64_t kLargeSide = 128;  // lines and rows of a large block
constexpr int64_t kSmallSide = 64;
constexpr int64_t kLargeBlocks = 96;
constexpr int kFewStages = 3;  // which fit into the shared memory of every GPU
static_assert(BlockSize<1, 4, 8, kFewStages>::kSharedBytes <= 62 * 1024 &&
                  BlockSize<2, 4, 4, kFewStages>::kSharedBytes <= 62 * 1024,
              "a block fits into 64 KB, beside what kernels have themselves");

PULSORA_HD int64_t blocksAlong(int64_t size, int64_t side) { return (size + side - 1) / side; }

inline int64_t blocksOf(int64_t rows, int64_t lines, int64_t side) {
  return blocksAlong(rows, side) * blocksAlong(lines, side);
}

inline bool takesLargeBlocks(int64_t rows, int64_t lines, bool oneByte) {
  return oneByte && rows > kSmallSide && blocksOf(rows, lines, kLargeSide) >= kLargeBlocks;
}

/// Parts without which sums of 32 bits would not be exact.
PULSORA_HD int64_t necessaryParts(int64_t depth) { return blocksAlong(depth, kMostDepth); }

/// The inputs of each part: whole stages, of which the last part may have fewer.
PULSORA_HD int64_t depthOfPart(int64_t depth, int64_t parts) {
  return blocksAlong(blocksAlong(depth, parts), kStageDepth) * kStageDepth;
}

/// Whether neighbouring weights in memory can be copied by four.
PULSORA_HD bool areInQuads(const MatrixView<const float> &weights) {
  const bool along = weights.colStride == 1;
  const int64_t lead = along ? weights.rowStride : weights.colStride;
  const int64_t across = along ? weights.cols : weights.rows;
  return (along || weights.rowStride == 1) && across % 4 == 0 && lead % 4 == 0 &&
         reinterpret_cast<uintptr_t>(weights.data) % sizeof(float4) == 0;
}

/// Samples for which making the bytes of the weights beforehand is worth its time.
constexpr int64_t kManyRows = 512;

/// cudaMultiplyIntegers() with the bytes of the weights in `to.digits` (digit_product.cu).
void multiplyDigits(const Context &context, const LevelBytes &levels, int64_t rows,
                    MatrixView<const float> weights, const IntegerWeights &integers,
                    const IntegerSums &to);

/// Calls use(TypeOf<the BlockSize of a product>). Blocks of GPUs that have less shared memory than
/// those of data centres (64 KB from compute capability 7.5 on, 99 KB from 8.6 on) are small, and
/// have as many stages as fit.
template <class Use>
void withBlockSize(int device, const LevelBytes &levels, int64_t rows, int64_t lines,
                   const Use &use) {
  using Large = BlockSize<1, 8, 16>;
  const bool oneByte = levels.plane == 0;
  if (sharedBytesOf(device) >= Large::kSharedBytes) {
    if (!oneByte) {
      use(TypeOf<BlockSize<2, 4, 4>>{});
    } else if (takesLargeBlocks(rows, lines, true)) {
      use(TypeOf<Large>{});
    } else {
      use(TypeOf<BlockSize<1, 4, 8>>{});
    }
  } else if (oneByte) {
    use(TypeOf<BlockSize<1, 4, 8, kFewStages>>{});
  } else {
    use(TypeOf<BlockSize<2, 4, 4, kFewStages>>{});
  }
}

}  // namespace pulsora
