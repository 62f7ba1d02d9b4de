#pragma once

#include "core/random.h"

namespace RPU {

/// What a stream of random numbers belongs to within a tile: the third coordinate of makeKey(). The
/// values are part of the random-number contract: never renumber or reuse one, only append.
enum class ArrayId : uint32_t {
  Visible = 0,  ///< cells of the visible array (of a tile's only array)
  FastA = 1,
  FastB = 2,
  VisibleUpdate = 8,  ///< pulse trains
  FastAUpdate = 9,
  FastBUpdate = 10,
  VisibleIo = 16,  ///< periphery of the reads
  FastAIo = 17,
  FastBIo = 18,
  ProjectionAIo = 19,  ///< the reads with which an adapter's update projects d and x
  ProjectionBIo = 20,
  TransferAIo = 21,  ///< the one-hot reads that feed a transfer
  TransferBIo = 22,
  Reinit = 32,  ///< values that an adapter starts anew with
};

inline RandomKey makeKey(uint64_t seed, uint32_t tileId, ArrayId array) {
  return makeKey(seed, tileId, static_cast<uint32_t>(array));
}

}  // namespace RPU
