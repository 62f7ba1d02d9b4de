#pragma once

#include "array/cpu/block.h"

namespace RPU {
namespace cpu {

/// The coincidences of a block over many samples. They are listed first, so that normals are made
/// for them alone and in full vectors, and then applied sample by sample: within a sample each lane
/// has one.
template <Isa isa, class Device>
class EventList {
 public:
  using Cells = Block<isa, Device>;

  /// Lists the coincidences of one sample: those under `mask` in the word that the block loaded
  /// last. `shift` is the first slot.
  template <bool kAtMostOne>
  RPU_HD void add(Cells &b, RandomKey key, uint32_t mask, int shift, uint64_t sample) {
    uint64_t lanes = lanesWith(b.both(), mask);
    if (!lanes) return;
    if (samples_ == kMaxSamples || (samples_ > 0 && sample >> 32 != sample_[0] >> 32))
      apply<kAtMostOne>(b, key);
    b.template count<kAtMostOne>(shift, mask >> shift, n_[samples_], pulses_);
    sample_[samples_++] = sample;
    int size = size_;
    const uint32_t first = static_cast<uint32_t>(b.cell(0));
    const uint32_t low = static_cast<uint32_t>(sample);
    while (lanes) {
      cells_[size] = first + static_cast<uint32_t>(__builtin_ctzll(lanes));
      samplesLow_[size++] = low;
      lanes &= lanes - 1;
    }
    size_ = size;
    end_[samples_ - 1] = size;
  }

  /// Applies the listed coincidences and empties the list.
  template <bool kAtMostOne>
  RPU_HD void apply(Cells &b, RandomKey key) {
    if (samples_ == 0) return;
    if (!loaded_) b.template load<kAtMostOne>();
    loaded_ = true;
    makeNormals(key);
    const uint32_t first = static_cast<uint32_t>(b.cell(0));
    int e = 0;
    for (int s = 0; s < samples_; ++s) {
      for (; e < end_[s]; ++e) z_[cells_[e] - first] = normals_[e];
      b.template apply<kAtMostOne>(n_[s], z_, sample_[s]);
    }
    samples_ = 0;
    size_ = 0;
  }

  /// Ends the update; returns the number of coincidences.
  RPU_HD uint64_t finish(const Cells &b) const {
    if (!loaded_) return 0;
    b.store();
    uint64_t total = 0;
    for (int j = 0; j < kBlock; ++j) total += pulses_[j];
    return total;
  }

 private:
  static constexpr int kMaxSamples = 16;
  static constexpr int kMaxEvents = kMaxSamples * kBlock;

  RPU_HD void makeNormals(RandomKey key) {
    const uint32_t high = static_cast<uint32_t>(sample_[0] >> 32);
    for (int e = 0; e < size_; e += kPhiloxBatch) {
      uint32_t elements[kPhiloxBatch];
      uint32_t groups[kPhiloxBatch];
      uint32_t within[kPhiloxBatch];
      for (int k = 0; k < kPhiloxBatch; ++k) {
        elements[k] = cells_[e + k];
        groups[k] = samplesLow_[e + k] >> 3 | high << 29;
        within[k] = samplesLow_[e + k];
      }
      PhiloxBatch batch;
      drawBatch(key, Purpose::CycleNoise, elements, groups, high >> 3, 0, batch);
      for (int k = 0; k < kPhiloxBatch; ++k) {
        const uint32_t even = (within[k] & 4u) ? batch.words[2][k] : batch.words[0][k];
        const uint32_t odd = (within[k] & 4u) ? batch.words[3][k] : batch.words[1][k];
        const NormalPair pair = normalPair16((within[k] & 2u) ? odd : even);
        normals_[e + k] = (within[k] & 1u) ? pair.z1 : pair.z0;
      }
    }
  }

  bool loaded_ = false;
  int samples_ = 0;
  int size_ = 0;
  uint64_t sample_[kMaxSamples];
  int end_[kMaxSamples];          // end of a sample's events
  float n_[kMaxSamples][kBlock];  // signed counts; negative is down
  float z_[kBlock] = {};          // normals of one sample's events, by lane
  uint32_t pulses_[kBlock] = {};
  uint32_t cells_[kMaxEvents] = {};
  uint32_t samplesLow_[kMaxEvents] = {};
  float normals_[kMaxEvents];
};

/// Event by event over a block; for short trains, where most samples leave most cells alone.
/// Returns the number of coincidences.
template <bool kAtMostOne, Isa isa, class Device>
RPU_HD uint64_t updateSparse(Block<isa, Device> &b, RandomKey key, const PulseWords &words) {
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
}  // namespace RPU
