#pragma once

#include "array/cpu/block.h"

namespace pulsora {
namespace cpu {

/// Normals of one sample after another for a block: made for all lanes and eight samples at a time.
template <Isa isa>
class BlockNormals {
 public:
  using Normals = float[kBlock];

  /// Normals of sample `sample` for the cells from `firstCell` on.
  PULSORA_HD const Normals &of(RandomKey key, uint32_t firstCell, uint64_t sample) {
    if (!made_ || group_ != sample >> 3) {
      group_ = sample >> 3;
      made_ = true;
      for (int j = 0; j < kBlock; j += kPhiloxBatch) {
        PhiloxBatch batch;
        drawBatch(key, Purpose::CycleNoise, firstCell + static_cast<uint32_t>(j), group_, 0, batch);
        normalsOfBatch<kBlock, 1>(batch, &z_[0][j]);
      }
    }
    return z_[sample & 7];
  }

 private:
  bool made_ = false;
  uint64_t group_ = 0;
  Normals z_[8];
};

/// Takes a block through samples, with a normal for every lane.
template <Isa isa, class Device>
class DenseSamples {
 public:
  using Cells = Block<isa, Device>;

  /// Pulses of `words` for a block, which is loaded at its first pulse unless it is `loaded`.
  DenseSamples(Cells &b, RandomKey key, const PulseWords &words, bool loaded = false)
      : b_(b), words_(words), key_(key), loaded_(loaded) {}

  /// Applies the samples [begin, end).
  PULSORA_HD void take(int64_t begin, int64_t end) {
    if (hasLevels(words_.kind)) {
      takeLevels(begin, end);
    } else if (begin < end) {
      takeSlots(begin, end);
    }
  }

  /// Whether the block was loaded.
  bool loaded() const { return loaded_; }
  /// The number of pulses.
  PULSORA_HD uint64_t pulses() const {
    uint64_t total = 0;
    for (int j = 0; j < kBlock; ++j) total += pulses_[j];
    return total;
  }

 private:
  PULSORA_HD void takeSlots(int64_t begin, int64_t end) {
    const PulseLayout layout = *words_.layout;
    const uint32_t mask = slotMask(layout.slots);
    float n[kBlock];
    bool hit = false;
    int64_t word = -1;
    for (int64_t s = begin; s < end; ++s) {
      const SlotPlace place = SlotPlace::of(layout, s);
      if (place.word != word) hit = b_.loadWord(words_, place.word);
      word = place.word;
      bool fires = hit && (b_.anyD() >> place.shift & mask);
      if (fires) b_.count(place.shift, mask, n, pulses_);
      for (int part = 1; part < layout.wordsPerSample; ++part) {
        float more[kBlock];
        if (!b_.loadWord(words_, place.word + part)) continue;
        b_.count(0, mask, more, pulses_);
        for (int j = 0; j < kBlock; ++j) n[j] = fires ? n[j] + more[j] : more[j];
        fires = true;
      }
      if (fires) apply(n, s);
    }
  }

  PULSORA_HD void takeLevels(int64_t begin, int64_t end) {
    float n[kBlock];
    for (int64_t s = begin; s < end; ++s) {
      b_.countLevels(words_, s, n);
      uint32_t any = 0;
      for (int j = 0; j < kBlock; ++j) {
        const auto count = static_cast<uint32_t>(static_cast<int32_t>(pulsora::abs(n[j])));
        pulses_[j] += count;
        any |= count;
      }
      if (any) apply(n, s);
    }
  }

  PULSORA_HD void apply(const float (&n)[kBlock], int64_t s) {
    if (!loaded_) b_.template load<false>();
    loaded_ = true;
    const uint64_t sample = words_.firstSample + static_cast<uint64_t>(s);
    b_.template apply<false>(n, normals_.of(key_, static_cast<uint32_t>(b_.cell(0)), sample),
                             [&](int) { return sample; });
  }

  Cells &b_;
  const PulseWords &words_;
  const RandomKey key_;
  BlockNormals<isa> normals_;
  uint32_t pulses_[kBlock] = {};
  bool loaded_;
};

/// Takes a block through the samples of a mini-batch. Returns the number of pulses.
template <Isa isa, class Device>
PULSORA_HD uint64_t updateDense(Block<isa, Device> &b, RandomKey key, const PulseWords &words) {
  DenseSamples<isa, Device> samples(b, key, words);
  samples.take(0, words.samples);
  if (!samples.loaded()) return 0;
  b.store();
  return samples.pulses();
}

}  // namespace cpu
}  // namespace pulsora
