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
    if (rounds_ == kMaxRounds || high != high_) apply<kAtMostOne>(b, key);
    high_ = high;
    const auto low = static_cast<uint32_t>(sample);
    const uint32_t slots = mask >> shift;
    int size = size_;
    for (; lanes; lanes &= lanes - 1) {
      const int lane = __builtin_ctzll(lanes);
      const int round = taken_[lane]++;
      if (round == rounds_) beginRound();
      const uint32_t count = b.template pulsesOf<kAtMostOne>(lane, shift, slots);
      pulses_ += count;
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
    makeNormals(static_cast<uint32_t>(b.cell(0)), key);
    for (int r = 0; r < rounds_; ++r) {
      b.template apply<kAtMostOne>(
          n_[r], z_[r], [&](int lane) { return uint64_t{high_} << 32 | samples_[r][lane]; });
    }
    for (int j = 0; j < kBlock; ++j) taken_[j] = 0;
    rounds_ = 0;
    size_ = 0;
  }

  /// Ends the update; returns the number of coincidences.
  PULSORA_HD uint64_t finish(const Cells &b) const {
    if (loaded_) b.store();
    return pulses_;
  }

 private:
  static constexpr int kMaxRounds = 16;
  static constexpr int kMaxEvents = kMaxRounds * kBlock;

  PULSORA_HD void beginRound() {
    for (int j = 0; j < kBlock; ++j) n_[rounds_][j] = 0.0f;
    for (int j = 0; j < kBlock; ++j) z_[rounds_][j] = 0.0f;
    ++rounds_;
  }

  PULSORA_HD void makeNormals(uint32_t firstCell, RandomKey key) {
    for (int e = size_; e < size_ + kPhiloxBatch; ++e) place_[e] = samplesLow_[e] = 0;
    for (int e = 0; e < size_; e += kPhiloxBatch) {
      uint32_t elements[kPhiloxBatch];
      uint32_t groups[kPhiloxBatch];
      uint32_t within[kPhiloxBatch];
      float normals[kPhiloxBatch];
      for (int k = 0; k < kPhiloxBatch; ++k) {
        elements[k] = firstCell + place_[e + k] % kBlock;
        groups[k] = samplesLow_[e + k] >> 3 | high_ << 29;
        within[k] = samplesLow_[e + k];
      }
      PhiloxBatch batch;
      drawBatch(key, Purpose::CycleNoise, elements, groups, high_ >> 3, 0, batch);
      for (int k = 0; k < kPhiloxBatch; ++k) {
        const uint32_t even = (within[k] & 4u) ? batch.words[2][k] : batch.words[0][k];
        const uint32_t odd = (within[k] & 4u) ? batch.words[3][k] : batch.words[1][k];
        const NormalPair pair = normalPair16((within[k] & 2u) ? odd : even);
        normals[k] = (within[k] & 1u) ? pair.z1 : pair.z0;
      }
      const int count = size_ - e < kPhiloxBatch ? size_ - e : kPhiloxBatch;
      for (int k = 0; k < count; ++k)
        z_[place_[e + k] / kBlock][place_[e + k] % kBlock] = normals[k];
    }
  }

  bool loaded_ = false;
  int rounds_ = 0;  // needed by the events listed so far
  int size_ = 0;
  uint32_t high_ = 0;  // upper half of the samples' numbers
  uint64_t pulses_ = 0;
  int32_t taken_[kBlock] = {};  // events of each lane in the list
  // By round and lane; entries of rounds in which a lane has no event do not matter.
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
