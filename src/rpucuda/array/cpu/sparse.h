#pragma once

#include "array/cpu/block.h"

namespace pulsora {
namespace cpu {

/// The coincidences of a block over many samples. They are listed first, so that normals are made
/// for them alone and in full vectors, and then applied in rounds: the first coincidence of every
/// lane, then the second of every lane, and so on. A lane takes its coincidences in the order of
/// samples, and lanes are independent, so that a few rounds serve all samples.
template <Isa isa, class Device>
class EventList {
 public:
  using Cells = Block<isa, Device>;

  /// Lists the coincidences of one sample: those under `mask` in the word that the block loaded
  /// last. `shift` is the first slot.
  template <bool kAtMostOne>
  PULSORA_HD void add(Cells &b, RandomKey key, uint32_t mask, int shift, uint64_t sample) {
    uint64_t lanes = lanesWith(b.both(), mask);
    if (!lanes) return;
    const auto high = static_cast<uint32_t>(sample >> 32);
    if (listed_ == kMaxRounds || high != high_) apply<kAtMostOne>(b, key);
    high_ = high;
    ++listed_;
    const auto low = static_cast<uint32_t>(sample);
    const uint32_t slots = mask >> shift;
    if constexpr (kAtMostOne) pulses_ += static_cast<uint64_t>(__builtin_popcountll(lanes));
    int size = size_;
    for (; lanes; lanes &= lanes - 1) {
      const int lane = __builtin_ctzll(lanes);
      uint32_t count = 1;
      if constexpr (!kAtMostOne) {
        count = b.template pulsesOf<false>(lane, shift, slots);
        pulses_ += count;
      }
      const int round = taken_[lane]++;
      n_[round][lane] = b.signedCount(lane, shift, count);
      if constexpr (!kAtMostOne) samples_[round][lane] = low;
      place_[size] = static_cast<uint32_t>(round * kBlock + lane);
      samplesLow_[size++] = low;
    }
    size_ = size;
  }

  /// Applies the listed coincidences and empties the list.
  template <bool kAtMostOne>
  PULSORA_HD void apply(Cells &b, RandomKey key) {
    if (size_ == 0) return;
    if (!loaded_) b.template load<kAtMostOne>();
    loaded_ = true;
    int rounds = 0;
    for (int j = 0; j < kBlock; ++j) rounds = rounds < taken_[j] ? taken_[j] : rounds;
    makeNormals(static_cast<uint32_t>(b.cell(0)), key);
    for (int r = 0; r < rounds; ++r) {
      float n[kBlock];
      float z[kBlock];
      for (int j = 0; j < kBlock; ++j) {
        n[j] = r < taken_[j] ? n_[r][j] : 0.0f;
        z[j] = r < taken_[j] ? z_[r][j] : 0.0f;
      }
      b.template apply<kAtMostOne>(
          n, z, [&](int lane) { return uint64_t{high_} << 32 | samples_[r][lane]; });
    }
    for (int j = 0; j < kBlock; ++j) taken_[j] = 0;
    listed_ = 0;
    size_ = 0;
  }

  /// Ends the update; returns the number of coincidences.
  PULSORA_HD uint64_t finish(const Cells &b) const {
    if (loaded_) b.store();
    return pulses_;
  }

 private:
  static constexpr int kMaxRounds = 32;
  static constexpr int kMaxEvents = kMaxRounds * kBlock;

  PULSORA_HD void makeNormals(uint32_t firstCell, RandomKey key) {
    for (int e = size_; e < size_ + kPhiloxBatch; ++e) place_[e] = samplesLow_[e] = 0;
    for (int e = 0; e < size_; e += kPhiloxBatch) {
      uint32_t cells[kPhiloxBatch];
      uint32_t low[kPhiloxBatch];
      float normals[kPhiloxBatch];
      for (int k = 0; k < kPhiloxBatch; ++k) {
        cells[k] = firstCell + place_[e + k] % kBlock;
        low[k] = samplesLow_[e + k];
      }
      normalsOfSamples(key, cells, low, high_, normals);
      const int count = size_ - e < kPhiloxBatch ? size_ - e : kPhiloxBatch;
      for (int k = 0; k < count; ++k)
        z_[place_[e + k] / kBlock][place_[e + k] % kBlock] = normals[k];
    }
  }

  bool loaded_ = false;
  int listed_ = 0;  // samples with events in the list, which take a round each at most
  int size_ = 0;
  uint32_t high_ = 0;  // upper half of the samples' numbers
  uint64_t pulses_ = 0;
  int32_t taken_[kBlock] = {};  // events of each lane in the list
  // By round and lane; only the rounds in which a lane has an event are made.
  float n_[kMaxRounds][kBlock];  // signed counts; negative is down
  float z_[kMaxRounds][kBlock];
  uint32_t samples_[kMaxRounds][kBlock];
  // By event, and room for a last batch that is not full.
  uint32_t place_[kMaxEvents + kPhiloxBatch];  // round * kBlock + lane
  uint32_t samplesLow_[kMaxEvents + kPhiloxBatch];
};

/// Event by event over a block; for short pulse trains, where most samples leave most cells alone.
/// Returns the number of coincidences.
template <bool kAtMostOne, Isa isa, class Device>
PULSORA_HD uint64_t updateSparse(Block<isa, Device> &b, RandomKey key, const PulseWords &words) {
  const PulseLayout layout = *words.layout;
  EventList<isa, Device> events;
  const int64_t wordCount = layout.words(words.samples);
  for (int64_t word = 0; word < wordCount; ++word) {
    if (!b.loadWord(words, word)) continue;
    const uint64_t first = words.firstSample + static_cast<uint64_t>(word * layout.samplesPerWord);
    uint32_t left = b.anyD();
    while (left) {
      const int sample = __builtin_ctz(left) / (kAtMostOne ? 1 : layout.slots);
      const int shift = sample * (kAtMostOne ? 1 : layout.slots);
      const uint32_t mask = slotMask(kAtMostOne ? 1 : layout.slots) << shift;
      events.template add<kAtMostOne>(b, key, mask, shift, first + static_cast<uint64_t>(sample));
      left &= ~mask;
    }
  }
  events.template apply<kAtMostOne>(b, key);
  return events.finish(b);
}

}  // namespace cpu
}  // namespace pulsora
