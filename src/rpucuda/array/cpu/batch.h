#pragma once

#include "array/cpu/affine.h"
#include "pulses/coincidences.h"

// Updates with noise_merge = "batch": pulses are counted over the whole mini-batch, then each cell
// takes them at once (devices/batch_noise.h). Cells that come near a bound are deferred: they are
// collected from many blocks and take the mini-batch sample by sample in full vectors.

namespace pulsora {
namespace cpu {

/// Cells, not necessarily neighbours, that take a mini-batch sample by sample.
template <Isa isa, class Device>
class DeferredCells : public Lanes<isa, Device> {
  using Base = Lanes<isa, Device>;
  using Base::a_;
  using Base::cells_;

 public:
  using Base::Base;
  using typename Base::Params;

  bool full() const { return count_ == kBlock; }
  PULSORA_HD void add(uint32_t cell) { cells_[count_++] = cell; }

  /// Updates the cells that were added since the last call.
  void run(const PulseWords &words) {
    if (count_ == 0) return;
    Base::loadCells(count_);
    for (int j = 0; j < kBlock; ++j) rows_[j] = cells_[j] / a_.cols;
    float n[kBlock] = {};
    float z[8][kBlock];
    for (int64_t s = 0; s < words.sampleCount(); ++s) {
      const uint64_t sample = words.firstSample + static_cast<uint64_t>(s);
      if (s == 0 || (sample & 7U) == 0) makeNormals(sample, z);
      for (int j = 0; j < count_; ++j) {
        n[j] = static_cast<float>(
            signedCoincidences(words, *words.layout, s, rows_[j], cells_[j] - rows_[j] * a_.cols));
      }
      Base::template apply<false>(n, z[sample & 7U], [&](int) { return sample; });
    }
    Base::storeCells(count_);
    count_ = 0;
  }

 private:
  PULSORA_HD void makeNormals(uint64_t sample, float (&z)[8][kBlock]) const {
    uint32_t group[kPhiloxBatch];
    for (uint32_t &g : group) g = static_cast<uint32_t>(sample >> 3);
    for (int j = 0; j < kBlock; j += kPhiloxBatch) {
      uint32_t cells[kPhiloxBatch];
      for (int k = 0; k < kPhiloxBatch; ++k) cells[k] = cells_[j + k];
      PhiloxBatch batch;
      drawBatch(a_.key, Purpose::CycleNoise, cells, group, static_cast<uint32_t>(sample >> 35), 0,
                batch);
      normalsOfBatch<kBlock, 1>(batch, &z[0][j]);
    }
  }

  int count_ = 0;
  int64_t rows_[kBlock];
};

/// Pulses up and down of every lane in a mini-batch.
struct LaneCounts {
  uint32_t up[kBlock] = {};
  uint32_t down[kBlock] = {};

  template <Isa isa, class Device>
  PULSORA_HD void countWords(Block<isa, Device> &b, const PulseWords &words) {
    const int64_t count = words.layout->words(words.sampleCount());
    for (int64_t word = 0; word < count; ++word) {
      if (!b.loadWord(words, word)) continue;
      for (int j = 0; j < kBlock; ++j) {
        up[j] += popcount(b.both()[j] & b.differ()[j]);
        down[j] += popcount(b.both()[j] & ~b.differ()[j]);
      }
    }
  }

  template <Isa isa, class Device>
  PULSORA_HD void countLevels(Block<isa, Device> &b, const PulseWords &words) {
    for (int64_t s = 0; s < words.sampleCount(); ++s) {
      float n[kBlock];
      b.countLevels(words, s, n);
      for (int j = 0; j < kBlock; ++j) {
        const auto signedCount = static_cast<int32_t>(n[j]);
        up[j] += static_cast<uint32_t>(signedCount > 0 ? signedCount : 0);
        down[j] += static_cast<uint32_t>(signedCount < 0 ? -signedCount : 0);
      }
    }
  }

  PULSORA_HD uint64_t total() const {
    uint64_t sum = 0;
    for (int j = 0; j < kBlock; ++j) sum += up[j] + down[j];
    return sum;
  }
};

/// normalOfUpdate() for the lanes of a block.
template <Isa isa>
PULSORA_HD void normalsOfUpdate(RandomKey key, uint64_t firstCell, uint64_t firstSample,
                                float (&z)[kBlock]) {
  static_assert(kBlock + 7 <= 8 * kPhiloxBatch, "one batch serves a block that starts anywhere");
  PhiloxBatch batch;
  drawBatch(key, Purpose::CycleNoiseBatch, static_cast<uint32_t>(firstCell >> 3), firstSample, 0,
            batch);
  float all[8 * kPhiloxBatch];
  normalsOfBatch<1, 8>(batch, all);
  const float *first = all + (firstCell & 7U);
  for (int j = 0; j < kBlock; ++j) z[j] = first[j];
}

/// Adds the lanes marked in `marks` to the deferred cells.
template <Isa isa, class Device>
PULSORA_HD void defer(const Block<isa, Device> &b, const uint32_t (&marks)[kBlock],
                      const PulseWords &words, DeferredCells<isa, Device> &deferred) {
  for (uint64_t left = lanesWith(marks, 1U); left; left &= left - 1) {
    const int lane = __builtin_ctzll(left);
    if (lane >= b.count()) break;
    deferred.add(static_cast<uint32_t>(b.cell(lane)));
    if (deferred.full()) deferred.run(words);
  }
}

/// One block takes a mini-batch. Cells that must take it sample by sample are added to `deferred`,
/// and keep their weights until `deferred` runs.
template <Isa isa, class Device>
PULSORA_HD uint64_t updateMerged(Block<isa, Device> &b, RandomKey key, const PulseWords &words,
                                 DeferredCells<isa, Device> &deferred) {
  LaneCounts counts;
  if (hasLevels(words.kind)) {
    counts.countLevels(b, words);
  } else {
    counts.countWords(b, words);
  }
  const uint64_t total = counts.total();
  if (total == 0) return 0;
  float z[kBlock];
  uint32_t marks[kBlock];
  normalsOfUpdate<isa>(key, b.cell(0), words.firstSample, z);
  b.template load<false>();
  b.mergePulses(counts.up, counts.down, z, marks);
  b.store();
  defer(b, marks, words, deferred);
  return total;
}

/// updateMerged() for a step that is an affine function of the weight.
template <bool kMultiplicative, Isa isa, class Device>
PULSORA_HD uint64_t updateInOrder(Block<isa, Device> &b, RandomKey key,
                                  const typename Device::Params &p, const PulseWords &words,
                                  DeferredCells<isa, Device> &deferred) {
  LaneMoments<isa, Device, kMultiplicative> moments(p);
  const uint64_t total = moments.run(b, words);
  if (total == 0) return 0;
  float z[kBlock];
  uint32_t marks[kBlock];
  normalsOfUpdate<isa>(key, b.cell(0), words.firstSample, z);
  moments.finish(b, z, marks);
  b.store();
  defer(b, marks, words, deferred);
  return total;
}

}  // namespace cpu
}  // namespace pulsora
