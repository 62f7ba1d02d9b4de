#pragma once

#include <cstdint>

#include "lrtt/parameters.h"
#include "periphery/analog_read.h"

namespace pulsora {

/// LRTTParams for a tile of a given size with all automatic values resolved. The adapter has
/// `inputs` and `outputs`: those of the tile, exchanged by swap_xd. B is [rank, inputs], A is
/// [outputs, rank].
struct LRTTSettings {
  /// Throws ConfigError, naming `lrtt.<parameter>`, for settings that contradict one another or the
  /// size.
  LRTTSettings(const LRTTParams &parameters, const UpdateParameters &update, int64_t dSize,
               int64_t xSize);

  /// How A B is written onto the visible array.
  TransferRule transferRule() const;

  /// How many lines of the tile an array has at most, in its forward direction.
  ReadLimits readLimits() const { return {params.max_input_size, params.max_output_size}; }
  /// The same for A and B; with swap_xd, their forward direction serves the tile's backward.
  ReadLimits readLimitsOfFactors() const {
    return params.swap_xd ? readLimits().reversed() : readLimits();
  }

  LRTTParams params;
  int64_t dSize;
  int64_t xSize;
  int64_t rank;
  int64_t inputs;
  int64_t outputs;
  float alpha = 0.0f;
  float transferLr = 0.0f;
  float lrOfA = 0.0f;  ///< learning rates of A and B, in units of the tile's
  float lrOfB = 0.0f;
  float gain = 0.0f;            ///< of the re-init
  float deviation = 0.0f;       ///< of an element of B after a re-init: gain sqrt(2 / inputs)
  float rowNorm = 0.0f;         ///< root of the expected square norm of a row of B: gain sqrt(2)
  UpdateParameters fastUpdate;  ///< of A and B
  UpdateParameters transferUpdate;  ///< of the trains of a transfer
};

}  // namespace pulsora
