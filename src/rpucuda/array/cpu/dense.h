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

/// Takes a block through its samples, with a normal for every lane. Returns the number of
/// coincidences.
template <Isa isa, class Device>
PULSORA_HD uint64_t updateDense(Block<isa, Device> &b, RandomKey key, const PulseWords &words) {
  const PulseLayout layout = *words.layout;
  const uint32_t mask = slotMask(layout.slots);
  BlockNormals<isa> normals;
  uint32_t pulses[kBlock] = {};
  float n[kBlock];
  bool loaded = false;
  bool hit = false;
  int64_t word = -1;
  for (int64_t s = 0; s < words.samples; ++s) {
    const SlotPlace place = SlotPlace::of(layout, s);
    if (place.word != word) hit = b.loadWord(words, place.word);
    word = place.word;
    bool fires = hit && (b.anyD() >> place.shift & mask);
    if (fires) b.count(place.shift, mask, n, pulses);
    for (int part = 1; part < layout.wordsPerSample; ++part) {
      float more[kBlock];
      if (!b.loadWord(words, place.word + part)) continue;
      b.count(0, mask, more, pulses);
      for (int j = 0; j < kBlock; ++j) n[j] = fires ? n[j] + more[j] : more[j];
      fires = true;
    }
    if (!fires) continue;
    if (!loaded) b.template load<false>();
    loaded = true;
    const uint64_t sample = words.firstSample + static_cast<uint64_t>(s);
    b.template apply<false>(n, normals.of(key, static_cast<uint32_t>(b.cell(0)), sample),
                            [&](int) { return sample; });
  }
  if (!loaded) return 0;
  b.store();
  uint64_t total = 0;
  for (int j = 0; j < kBlock; ++j) total += pulses[j];
  return total;
}

/// updateDense() for the deterministic pulse types.
template <Isa isa, class Device>
PULSORA_HD uint64_t updateLevels(Block<isa, Device> &b, RandomKey key, const PulseWords &words) {
  BlockNormals<isa> normals;
  uint64_t total = 0;
  b.template load<false>();
  for (int64_t s = 0; s < words.samples; ++s) {
    float n[kBlock];
    b.countLevels(words, s, n);
    uint32_t pulses = 0;
    for (int j = 0; j < kBlock; ++j)
      pulses += static_cast<uint32_t>(static_cast<int32_t>(pulsora::abs(n[j])));
    if (!pulses) continue;
    total += pulses;
    const uint64_t sample = words.firstSample + static_cast<uint64_t>(s);
    b.template apply<false>(n, normals.of(key, static_cast<uint32_t>(b.cell(0)), sample),
                            [&](int) { return sample; });
  }
  b.store();
  return total;
}

}  // namespace cpu
}  // namespace pulsora
