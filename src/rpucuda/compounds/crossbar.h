#pragma once

#include <limits>
#include <string>

#include "array/array_keys.h"
#include "array/pulsed_device.h"
#include "array/pulsed_weight_updater.h"
#include "compounds/tile_periphery.h"
#include "periphery/analog_read.h"
#include "storage/state.h"

namespace pulsora {

/// One array of cells [rows, cols] with its reads in both directions, its pulsed update, and the
/// keys of its random numbers. Compounds are made of crossbars.
class Crossbar {
 public:
  /// The array in `slot` of the tile that `keys` belong to; no two arrays of a tile may share a
  /// slot. Larger arrays than `limits` (in the forward direction) are read in blocks (AnalogRead);
  /// updates, writes and states do not depend on blocks. `touched` tells how often cells change.
  Crossbar(const Context &context, const DeviceParams &device, int64_t rows, int64_t cols,
           const TilePeriphery &periphery, const TileKeys &keys, uint32_t slot,
           const ReadLimits &limits = {}, Touched touched = Touched::Often)
      : cellKey_(
            PulsedDevice::cellKey(device.common(), keys.ofRead(slot, Role::Cells).spreads, slot)),
        cells_(context, device, rows, cols, keys.of(slot, Role::Cells), cellKey_, touched),
        reads_(context, periphery.forward, periphery.backward, rows, cols,
               keys.ofRead(slot, Role::Read), limits),
        updater_(periphery.update, keys.of(slot, Role::Update)) {}

  int64_t rows() const { return cells_.rows(); }
  int64_t cols() const { return cells_.cols(); }
  PulsedDevice &cells() { return cells_; }
  const PulsedDevice &cells() const { return cells_; }
  /// PulsedDevice::retain(), with draws that belong to the cells.
  void retain(const Retention &retention) { cells_.retain(retention, cellKey_); }
  AnalogRead &read(Pass pass) {
    return pass == Pass::Forward ? reads_.forward() : reads_.backward();
  }
  const AnalogRead &read(Pass pass) const {
    return pass == Pass::Forward ? reads_.forward() : reads_.backward();
  }
  PulsedWeightUpdater &updater() { return updater_; }
  const PulsedWeightUpdater &updater() const { return updater_; }

  /// The matrix that a read in that direction multiplies with: W [rows, cols] forward, W^T
  /// backward.
  MatrixView<const float> weights(Pass pass = Pass::Forward) const {
    return pass == Pass::Forward ? cells_.weights() : cells_.weights().transposed();
  }

  /// y [m, rows] = W x for x [m, cols] (forward), or dx [m, cols] = W^T d for d [m, rows]
  /// (backward), through the periphery; the first sample's number keys the noise.
  void run(const Context &context, Pass pass, MatrixView<const float> in, MatrixView<float> out,
           uint64_t firstSample) {
    read(pass).run(context, weights(pass), in, out, firstSample);
  }
  /// W <- W - lr d^T x by pulses, as part of a mini-batch, which cells().relax() ends.
  void update(const Context &context, MatrixView<const float> x, MatrixView<const float> d,
              float lr, uint64_t firstSample) {
    updater_.update(context, cells_, x, d, lr, firstSample, Bounds::Later);
  }

  /// Tells both reads the largest weight that the cells may have, so that products can be in
  /// integers, and returns it; waits for a GPU. To be called when cells were made or loaded.
  double boundReads(const Context &context) {
    const bool isAsked =
        read(Pass::Forward).asksForIntegers() || read(Pass::Backward).asksForIntegers();
    const double bound = isAsked ? weightBound(context) : std::numeric_limits<double>::infinity();
    for (Pass pass : {Pass::Forward, Pass::Backward}) read(pass).setWeightBound(bound);
    return bound;
  }
  /// PulsedDevice::weightBound(); infinity where updates pass by the bounds of cells.
  double weightBound(const Context &context) const {
    const bool isBounded = updater_.parameters().pulse_type != PulseType::None;
    return isBounded ? cells_.weightBound(context) : std::numeric_limits<double>::infinity();
  }

  /// Saves / loads the state of the array and its reads, under names that begin with `prefix`.
  void saveTo(const Context &context, State &state, const std::string &prefix) const {
    cells_.saveTo(context, state, prefix);
    read(Pass::Forward).saveTo(context, state, prefix + "forward/");
    read(Pass::Backward).saveTo(context, state, prefix + "backward/");
  }
  void loadFrom(const Context &context, const State &state, const std::string &prefix) {
    cells_.loadFrom(context, state, prefix);
    read(Pass::Forward).loadFrom(context, state, prefix + "forward/");
    read(Pass::Backward).loadFrom(context, state, prefix + "backward/");
  }

 private:
  RandomKey cellKey_;  // of what was sampled when the cells were made
  PulsedDevice cells_;
  ForwardBackwardPass reads_;
  PulsedWeightUpdater updater_;
};

}  // namespace pulsora
