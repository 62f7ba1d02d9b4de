#pragma once

#include <cstdint>

#include "array/pulsed_device.h"
#include "lrtt/parameters.h"
#include "lrtt/step_limit.h"
#include "periphery/analog_read.h"

namespace pulsora {

/// LRTTParams for a tile of a given size with all automatic values resolved. `inputs` and `outputs`
/// of the adapter are the tile's, exchanged by swap_xd. B is [rank, inputs], A is [outputs, rank].
struct LRTTSettings {
  /// Throws ConfigError, naming `lrtt.<parameter>`, for settings that contradict one another or the
  /// size.
  LRTTSettings(const LRTTParams &parameters, const UpdateParameters &update, int64_t dSize,
               int64_t xSize);

  /// The rule by which transfers write A B to the visible array.
  TransferRule transferRule() const;

  /// Largest number of the tile's lines per array, in the forward direction.
  ReadLimits readLimits() const { return {params.max_input_size, params.max_output_size}; }
  /// Like readLimits() for A and B; with swap_xd, their forward direction serves the tile's
  /// backward.
  ReadLimits readLimitsOfFactors() const {
    return params.swap_xd ? readLimits().reversed() : readLimits();
  }

  /// How often the cells of the visible array are touched: seldom, if by transfers alone that are
  /// far apart; often without an adapter, and if cells relax after each mini-batch.
  Touched touchOfVisible() const {
    const PulsedParams &cells = params.visible.common();
    const bool relaxes = cells.lifetime > 0.0f || cells.diffusion > 0.0f;
    const AutoLong &every = params.transfer_every;
    const int64_t least = params.units_in_mbatch ? kSeldom : 10 * kSeldom;  // samples
    const bool often = !every.automatic && every.value > 0 && every.value < least;
    return rank == 0 || relaxes || often ? Touched::Often : Touched::Seldom;
  }
  /// Mini-batches between transfers from which on cells that are sampled for each transfer slow a
  /// training by less than 2 % ("Computed cells" in benchmarks/NOTES.md).
  static constexpr int64_t kSeldom = 100;

  /// Whether A keeps what a transfer could not write.
  bool keepsRest() const {
    return params.keep_rest && params.transfer_mode == TransferMode::WriteVerify &&
           (params.reinit == Reinit::Decay || params.reinit == Reinit::KeepB) && transferLr != 0.0f;
  }

  /// The most that a cell may miss of its target before A holds it exactly, and the cells that can
  /// be written make up for what A B adds to them; 0 where A holds nothing. It is a few tolerances,
  /// because all cells of a row move, and a few hundredths of the range, because a row of A that
  /// holds cells learns less.
  float heldFrom() const;

  LRTTParams params;
  int64_t dSize;
  int64_t xSize;
  int64_t rank;
  int64_t inputs;
  int64_t outputs;
  float fastReach = 0.0f;  ///< range of the cells of A and B to either side of 0
  float alpha = 0.0f;
  float transferLr = 0.0f;
  float lrOfA = 0.0f;  ///< learning rates of A and B, in units of the tile's
  float lrOfB = 0.0f;
  StepResponse response{};      ///< to the update by a sample
  float gain = 0.0f;            ///< of the re-init
  float deviation = 0.0f;       ///< of an element of B after a re-init: gain sqrt(2 / inputs)
  float rowNorm = 0.0f;         ///< root of the expected square norm of a row of B: gain sqrt(2)
  UpdateParameters fastUpdate;  ///< of A and B
  UpdateParameters transferUpdate;  ///< of the pulse trains of transfers

 private:
  // Sets lrOfA, lrOfB and response. `scale` is alpha before it was rounded, `plain` is the alpha
  // with which ab_lr_scale = 'alpha' follows plain SGD.
  void setLearningRates(double scale, double plain);
};

}  // namespace pulsora
