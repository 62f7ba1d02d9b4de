#pragma once

#include "core/vector_access.h"
#include "noise_models/kept_device.h"
#include "noise_models/usual_lengths.h"
#include "numerics/random.h"

namespace pulsora {

/// A reading of programmed cells: its time, what it draws, and where its results go.
template <class Model>
struct CellReading {
  RandomKey key;
  typename Model::Time time;
  float frozen;
  float fresh;
  float *weights;
  float *variance;
};

/// Four cells of two devices each, the devices of one block of random numbers. All places are known
/// to the compiler, so that a GPU keeps the numbers of all devices in registers. What does not
/// depend on the time serves every reading. The results have the bits of makeDevices() of `Work`,
/// a Realise<Model>.
template <class Work, class Model, bool kUsual>
class PairsOfBlock {
  using Params = typename Model::Params;
  static constexpr int kCells = 4;

 public:
  /// `drifts` says whether readings are made of devices that have drifted.
  PULSORA_HD PairsOfBlock(const Work &work, int64_t group, bool drifts)
      : work_(work),
        loop_{work.p},
        firstCell_(group * kCells),
        block_(work.r.firstDevice / 8 + static_cast<uint64_t>(group)) {
    const auto &r = work.r;
    float target[8];
    float start[8];
    float w[kCells] = {};
    if (r.wanted) loadFloats(r.wanted + firstCell_, r.cells - firstCell_, w);
    for (int l = 0; l < 8; ++l) target[l] = r.cell.continuousTarget(w[l / 2], l % 2);
    if (r.cell.levels > 0.0f) {
      for (int l = 0; l < 8; ++l) target[l] = r.cell.rounded(target[l]);
    }
    for (int l = 0; l < 8; ++l) target[l] = work.conductanceOf(target[l]);
    if (r.measured) {
      for (int l = 0; l < 8; ++l) start[l] = work.measured(2 * firstCell_ + l, target[l]);
    } else if (r.exact) {
      for (int l = 0; l < 8; ++l) start[l] = target[l];
    } else {
      const Normal8 error = work.normals(r.keys.device, Purpose::Program, block_);
      for (int l = 0; l < 8; ++l) start[l] = Model::programmed(target[l], error.z[l], loop_.p);
    }
    Normal8 kept{};
    if (drifts) kept = work.normals(r.keys.device, Purpose::Drift, block_);
    for (int l = 0; l < 8; ++l)
      device_[l] = KeptDevice<Model>::of(target[l], start[l], kept.z[l], loop_.p);
  }

  /// Makes the weights of a reading, and their variances if it has a place for them.
  PULSORA_HD void read(const CellReading<Model> &reading) const {
    const Normal8 anew = work_.normals(reading.key, Purpose::Drift, block_);
    const Normal8 noise = work_.normals(reading.key, Purpose::Program, block_);
    float g[8];
    float sigma[8];
    for (int l = 0; l < 8; ++l) {
      const DeviceReading seen =
          device_[l].read(anew.z[l], noise.z[l], reading.time, loop_.p, reading.frozen);
      g[l] = seen.conductance;
      sigma[l] = seen.sigma;
    }
    if (work_.sticks()) work_.stickDevices(block_, g, sigma);
    const int64_t left = work_.r.cells - firstCell_;
    float sums[kCells];
    for (int c = 0; c < kCells; ++c) {
      sums[c] = work_.r.cell.constant;
      for (int k = 0; k < 2; ++k) sums[c] = work_.weightWith(k, g[2 * c + k], sums[c]);
    }
    if (reading.weights) storeFloats(sums, left, reading.weights + firstCell_);
    if (!reading.variance) return;
    for (int c = 0; c < kCells; ++c) {
      sums[c] = 0.0f;
      for (int k = 0; k < 2; ++k)
        sums[c] = work_.varianceWith(k, reading.fresh * sigma[2 * c + k], sums[c]);
    }
    storeFloats(sums, left, reading.variance + firstCell_);
  }

 private:
  const Work &work_;
  LoopParams<Params, kUsual> loop_;
  int64_t firstCell_;
  uint64_t block_;
  KeptDevice<Model> device_[8];
};

}  // namespace pulsora
